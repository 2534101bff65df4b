"""Determines a chat's policies as if one of them had other values or were removed."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from chats.models import Chat
from chats.prompt import model_choice
from contextpolicy import resolution
from contextpolicy.models import PolicyAssignment

# The level of a proposal that counts only where the policy is assigned today.
ASSIGNED = "assigned"
GROUP = "group"
# The level of a proposal to remove the policy, from everywhere or from a group.
REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class PolicyProposal:
    """A policy as edited in a form: its name, values and locks.

    In chats where the policy already applies, these values replace the published ones. In
    other chats, the policy counts as assigned at `level` and replaces the policy of that
    level. With `ASSIGNED`, other chats do not change. At the group level, it replaces only
    the policy of this group; a user's other groups keep theirs. With `REMOVED`, the
    policy applies nowhere. If `group_id` is set as well, only its assignment to this group
    is removed.
    """

    slug: str
    name: str
    version: int
    values: Mapping[str, Any]
    locks: Collection[str]
    level: str = "chat"
    # The group, at the group level or for a removal. `replaces` is the slug of the policy that the
    # group has today, at the group level.
    group_id: int | None = None
    replaces: str = ""


def build_group_proposal(group_id: int, **said: Any) -> PolicyProposal:
    rows = PolicyAssignment.objects.filter(level=GROUP, group=group_id)
    has = rows.values_list("policy__slug", flat=True).first() or ""
    return PolicyProposal(level=GROUP, group_id=group_id, replaces=has, **said)


def resolve_assigned_policies(
    chat: Chat, *, proposal: PolicyProposal | None
) -> tuple[resolution.Assigned, ...]:
    """Return the policies of a chat with the proposal applied, most general level first.

    They include the policy that an API client chose for the chat.
    """
    found = resolution.list_assigned_policies(
        user_id=chat.owner_id, group_ids=None, chat_id=chat.pk
    )
    found = resolution.insert_agent_policy(found, policy=model_choice.get_client_policy(chat))
    if proposal is None:
        return found
    if proposal.level == REMOVED:
        return remove_policy(found, proposal)
    said = json.dumps(dict(proposal.values)), json.dumps(sorted(proposal.locks))
    own = (proposal.slug, proposal.name, proposal.version, *said)
    if proposal.level == GROUP:
        return apply_group_proposal(found, proposal.replaces, (GROUP, *own))
    if any(each[1] == proposal.slug for each in found):
        return tuple((each[0], *own) if each[1] == proposal.slug else each for each in found)
    if proposal.level == ASSIGNED:
        return found
    others = (each for each in found if each[0] != proposal.level)
    return resolution.sort_far_to_near((*others, (proposal.level, *own)))


def remove_policy(
    found: tuple[resolution.Assigned, ...], proposal: PolicyProposal
) -> tuple[resolution.Assigned, ...]:
    """Return the assigned policies without the proposal's policy, as if it were removed."""
    if proposal.group_id is None:
        return tuple(each for each in found if each[1] != proposal.slug)
    kept = list(found)
    for each in found:
        if each[:2] == (GROUP, proposal.slug):
            # Another group of the user may have the same policy, which stays.
            kept.remove(each)
            break
    return tuple(kept)


def apply_group_proposal(
    found: tuple[resolution.Assigned, ...], replaces: str, own: resolution.Assigned
) -> tuple[resolution.Assigned, ...]:
    """Return the policies with a group's current policy replaced by the proposed one."""
    kept = [(each[0], *own[1:]) if each[1] == own[1] else each for each in found]
    for each in kept:
        if each[:2] == (GROUP, replaces):
            kept.remove(each)
            break
    # Same order as stored ones: of several groups, the policy with the first slug is the nearest.
    return resolution.sort_far_to_near(sorted([*kept, own], key=lambda each: each[1], reverse=True))


def choose_under(chat: Chat, *, proposal: PolicyProposal | None) -> model_choice.ChosenModel:
    """Return the model and the policy of a chat under a proposal; without one, the current ones.

    Raises `NoModel`, `ModelNotAllowed` and `PolicyRefused`.
    """
    assigned = resolve_assigned_policies(chat, proposal=proposal)
    return model_choice.choose_with(chat=chat, assigned=assigned)

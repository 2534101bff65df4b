"""The policy that would hold in a chat if one of its policies said something else; unsaved."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from chats.models import Chat
from chats.prompt import model_choice
from contextpolicy import resolution
from contextpolicy.models import PolicyAssignment

# The level of a policy that counts only where it is assigned today.
ASSIGNED = "assigned"
GROUP = "group"


@dataclass(frozen=True, slots=True)
class PolicyProposal:
    """A policy as it is written in a form: its name, what it would set, what it would lock.

    Where the policy applies already, its values stand in for those in force; elsewhere it counts
    as if it were assigned at `level`, in place of what applies there; `ASSIGNED`: not at all. At
    the level of groups only what this group has makes way; other groups of a person keep theirs.
    """

    slug: str
    name: str
    version: int
    values: Mapping[str, Any]
    locks: Collection[str]
    level: str = "chat"
    # Of the level of groups: the group, and what it has at present, by its slug.
    group_id: int | None = None
    replaces: str = ""


def for_group(group_id: int, **said: Any) -> PolicyProposal:
    """Return a policy as it is written that would be assigned to a group."""
    rows = PolicyAssignment.objects.filter(level=GROUP, group=group_id)
    has = rows.values_list("policy__slug", flat=True).first() or ""
    return PolicyProposal(level=GROUP, group_id=group_id, replaces=has, **said)


def assigned_in(chat: Chat, *, proposal: PolicyProposal | None) -> tuple[resolution.Assigned, ...]:
    """Return the policies of a chat, far to near, with the proposed one in its place."""
    found = resolution.assigned_for(user_id=chat.owner_id, group_ids=None, chat_id=chat.pk)
    if proposal is None:
        return found
    said = json.dumps(dict(proposal.values)), json.dumps(sorted(proposal.locks))
    own = (proposal.slug, proposal.name, proposal.version, *said)
    if proposal.level == GROUP:
        return in_group(found, proposal.replaces, (GROUP, *own))
    if any(each[1] == proposal.slug for each in found):
        return tuple((each[0], *own) if each[1] == proposal.slug else each for each in found)
    if proposal.level == ASSIGNED:
        return found
    others = (each for each in found if each[0] != proposal.level)
    return resolution.far_to_near((*others, (proposal.level, *own)))


def in_group(
    found: tuple[resolution.Assigned, ...], replaces: str, own: resolution.Assigned
) -> tuple[resolution.Assigned, ...]:
    """Return policies with one more of a group, in place of that which the group has."""
    kept = [(each[0], *own[1:]) if each[1] == own[1] else each for each in found]
    for each in kept:
        if each[:2] == (GROUP, replaces):
            kept.remove(each)
            break
    # As they are found: of several groups the policy that comes first by slug is the nearest.
    return resolution.far_to_near(sorted([*kept, own], key=lambda each: each[1], reverse=True))


def choose_under(chat: Chat, *, proposal: PolicyProposal | None) -> model_choice.ChosenModel:
    """Return the model and the policy of a chat under a proposal; without one, those in force.

    Raises `NoModel`, `ModelNotAllowed` and `PolicyRefused`.
    """
    assigned = assigned_in(chat, proposal=proposal)
    return model_choice.choose_with(chat=chat, assigned=assigned)

"""Teams: create, change, copy, delete and restore them, and choose one for a chat."""

import hashlib
import json
import uuid
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.text import slugify
from django.utils.translation import gettext_noop

from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.ground.refusals import NotFound, Refusal
from chats.models import Agent, Chat, Round, Team, TeamVersion
from chats.record import access
from chats.record.locking import lock_chat_for_writing
from chats.teams.draft_checks import (
    LONGEST_ROLE_ID,
    LONGEST_TEAM_NAME,
    TAKEN_ROLES,
    _Found,
    check_team_draft,
)
from chats.teams.team_drafts import RULES, AgentDraft, TeamDraft, build_version_draft
from chats.turns.roster import load_roster
from chats.turns.statements import PERSON_LOCK
from contextpolicy import ledger
from contextpolicy.engine.team import team

MOST_TEAMS = 100
# Their next agents would be those of the former team.
ROUNDS_THAT_MAY_CONTINUE = (Round.Status.WAITING, Round.Status.LIMIT)


class NotYours(Refusal):
    """The team is shared, and only administrators can create or change shared teams."""

    code = "team_not_yours"
    status = 403
    sentence = gettext_noop("This team is shared. Copy it, or ask an administrator to change it.")


class TeamChanged(Refusal):
    """A newer version than the one that you edit exists. Nothing was saved."""

    code = "team_changed_meanwhile"
    status = 409
    sentence = gettext_noop(
        "Version {number} of this team was saved while you were editing, so your changes are not "
        "saved yet. Compare them with that version, then save again to replace it."
    )

    def __init__(self, *, number: int) -> None:
        super().__init__(number=number)
        self.number = number


class TooManyTeams(Refusal):
    """You have 100 teams, which is the limit. Delete one first."""

    code = "too_many_teams"
    status = 409
    sentence = gettext_noop("You have reached the limit of {limit} teams. Delete one first.")


class TeamBusy(Refusal):
    """A reply is being written in the chat. Choose the team after the reply has ended."""

    code = "team_busy"
    status = 409
    sentence = gettext_noop(
        "A reply is being written in this chat. Choose the team when the reply is finished."
    )


@dataclass(frozen=True, slots=True)
class Saved:
    """A stored team, and warnings about it for the user."""

    team: Team
    warnings: tuple[str, ...] = ()


def create_team(
    *,
    user: User,
    draft: TeamDraft,
    shared: bool,
    now: datetime,
    original: Team | None = None,
) -> Saved:
    """Create a team of the person, or a shared one; a copy keeps the policies of its `original`.

    Raises `InvalidTeam`, `NotYours` and `TooManyTeams`.
    """
    if shared and not user.has_perm(EDITS_POLICIES):
        raise NotYours
    found, warnings = check_team_draft(draft, user=user, known=original, shared=shared)
    with transaction.atomic():
        # Without this lock, parallel requests would not count each other's teams.
        PERSON_LOCK.hold(owner=user.pk)
        if Team.objects.filter(owner=user, deleted_at=None).count() >= MOST_TEAMS:
            raise TooManyTeams(limit=MOST_TEAMS)
        made = Team.objects.create(owner=None if shared else user, created_at=now)
        store_team_version(made, draft=draft, found=found, now=now)
        record_team_event("team.created", made, user=user, now=now)
    return Saved(made, warnings)


def update_team(
    *,
    user: User,
    team_id: uuid.UUID,
    draft: TeamDraft,
    now: datetime,
    based_on: int | None = None,
) -> Saved:
    """Save a new version of a team.

    `based_on`: the number of the edited version. None: a newer version is replaced too. Raises
    `NotFound`, `NotYours`, `InvalidTeam` and `TeamChanged`.
    """
    with transaction.atomic():
        known = lock_editable_team(user=user, team_id=team_id)
        number = known.current.number if known.current else None
        if number is not None and based_on not in {None, number}:
            raise TeamChanged(number=number)
        shared = known.owner_id is None
        found, warnings = check_team_draft(draft, user=user, known=known, shared=shared)
        store_team_version(known, draft=draft, found=found, now=now)
        record_team_event("team.changed", known, user=user, now=now)
    return Saved(known, warnings)


def copy_team(*, user: User, team_id: uuid.UUID, now: datetime) -> Saved:
    """Copy a team for the person. The copied agents have new role ids.

    Raises `NotFound`, `InvalidTeam` and `TooManyTeams`.
    """
    original = access.get_team(user=user, team_id=team_id)
    if original.current is None:
        raise NotFound
    draft = build_version_draft(original.current)
    name = f"{draft.name[: LONGEST_TEAM_NAME - 7]} (copy)"
    agents = [AgentDraft(**{**asdict(agent), "role_id": ""}) for agent in draft.agents]
    values = {name: getattr(draft, name) for name in RULES}
    copied = TeamDraft(name=name, agents=agents, **values)
    return create_team(user=user, draft=copied, shared=False, now=now, original=original)


def delete_team(*, user: User, team_id: uuid.UUID, now: datetime) -> None:
    """Delete a team: new chats cannot choose it, and existing chats continue with it.

    Raises `NotFound` and `NotYours`.
    """
    with transaction.atomic():
        known = lock_editable_team(user=user, team_id=team_id)
        known.deleted_at = now
        known.save(update_fields=["deleted_at"])
        record_team_event("team.deleted", known, user=user, now=now)


def restore_team(*, user: User, team_id: uuid.UUID, now: datetime) -> None:
    """Restore a deleted shared team. Raises `NotFound` and `NotYours`."""
    if not user.has_perm(EDITS_POLICIES):
        raise NotYours
    with transaction.atomic():
        rows = Team.objects.select_for_update(of=("self",), no_key=True)
        known = rows.filter(pk=team_id, owner=None, deleted_at__isnull=False).first()
        if known is None or known.current is None:
            raise NotFound
        known.deleted_at = None
        known.save(update_fields=["deleted_at"])
        record_team_event("team.restored", known, user=user, now=now)


def lock_editable_team(*, user: User, team_id: uuid.UUID) -> Team:
    """Return a locked team that the person may change. Raises `NotFound` and `NotYours`."""
    access.get_team(user=user, team_id=team_id)
    known = Team.objects.select_for_update(of=("self",), no_key=True).get(pk=team_id)
    if known.owner_id is None and not user.has_perm(EDITS_POLICIES):
        raise NotYours
    return known


def set_chat_team(*, user: User, chat: Chat, team_id: uuid.UUID | None, now: datetime) -> Chat:
    """Choose the team that replies in a chat from the next message on. None: the model replies.

    Rounds of the former team that wait for a person or are at a limit end. The chat
    receives the team's task if it has none. The chat's team can be chosen again after it was
    deleted. Raises `NotFound` and `TeamBusy`.
    """
    chosen = chat.team if team_id == chat.team_id else None
    if team_id and chosen is None:
        chosen = access.get_team(user=user, team_id=team_id)
    with transaction.atomic():
        chat = lock_chat_for_writing(chat.pk)
        if chat.active_branch and chat.active_branch.turns.filter(finished_at=None).exists():
            raise TeamBusy
        if chat.team_id != (chosen.pk if chosen else None):
            ended = Round.objects.filter(branch__chat=chat, status__in=ROUNDS_THAT_MAY_CONTINUE)
            ended.update(status=Round.Status.REPLACED)
        chat.team = chosen
        if chosen and chosen.current and chat.team_task is None and chosen.current.task:
            chat.team_task = chosen.current.task
        chat.save(update_fields=["team", "team_task"])
        ledger.record_event(
            "team.chosen",
            actor=f"user:{user.pk}",
            now=now,
            chat_id=chat.pk,
            data={"team": str(chosen.pk) if chosen else ""},
        )
    return chat


def record_team_event(event: str, made: Team, *, user: User, now: datetime) -> None:
    """Record an event of a team in the ledger, without its texts."""
    data: dict[str, Any] = {"team": str(made.pk), "shared": made.owner_id is None}
    if made.current is not None:
        roster = load_roster(made.current)
        data |= {
            "version": made.current.number,
            "sha256": compute_version_digest(made.current),
            "agents": [agent.role_id for agent in roster.agents],
        }
    ledger.record_event(event, actor=f"user:{user.pk}", now=now, data=data)


def compute_version_digest(version: TeamVersion) -> str:
    """Return a digest of a version's values, which identifies the version in the ledger."""
    values = asdict(build_version_draft(version))
    # Leave out newer options at their default, so that older versions keep their recorded digest.
    for name in ("message_cap", "max_bytes"):
        if not values[name]:
            del values[name]
    for agent in values["agents"]:
        if agent["prompt_form"] == Agent.PromptForm.MESSAGES:
            del agent["prompt_form"]
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def store_team_version(made: Team, *, draft: TeamDraft, found: _Found, now: datetime) -> None:
    """Store a checked draft as the next version of a team. The caller has locked the team."""
    last = made.versions.order_by("-number").first()
    rules = {name: getattr(draft, name) for name in RULES}
    rules["task"] = team.cut_team_task(draft.task)
    version = TeamVersion.objects.create(
        team=made, number=last.number + 1 if last else 1, name=draft.name, created_at=now, **rules
    )
    known = set(last.agents.values_list("role_id", flat=True)) if last else set()
    # Never reuse the id of a removed role, because its messages would be attributed to the new one.
    taken = set(Agent.objects.filter(version__team=made).values_list("role_id", flat=True))
    for place, agent in enumerate(draft.agents):
        role_id = (
            agent.role_id if agent.role_id in known else generate_role_id(agent.name, taken=taken)
        )
        taken.add(role_id)
        Agent.objects.create(
            version=version,
            place=place,
            role_id=role_id,
            name=agent.name,
            type=agent.type,
            agent_type=agent.agent_type,
            model=found.models.get(agent.model),
            instruction=agent.instruction,
            instruction_file_text=agent.instruction_file_text,
            prompt_form=agent.prompt_form,
            window_size=agent.window_size,
            policy=found.policies.get(agent.policy),
            rests=agent.rests,
        )
    made.current = version
    made.save(update_fields=["current"])


def generate_role_id(name: str, *, taken: set[str]) -> str:
    """Return an id for a new role, derived from its name: `planner`, `planner-2`."""
    base = slugify(name, allow_unicode=True)[: LONGEST_ROLE_ID - 4] or "agent"
    base = f"{base}-agent" if base in TAKEN_ROLES else base
    numbers = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (base, *numbers) if each not in taken)

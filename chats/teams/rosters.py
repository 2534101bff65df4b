"""Teams as people and administrators make them: created, changed by versions, copied, taken away.

A change is a new version with agents of its own, so a round that runs keeps what it began with. An
agent's role keeps its id as long as it is not taken out, so its messages stay its own.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.text import slugify

from chats.compaction.people.rights import EDITS_POLICIES
from chats.ground.refusals import NotFound, Refusal
from chats.models import Agent, Chat, Team, TeamVersion
from chats.record import access
from chats.record.locking import chat_to_write_in
from chats.record.messages import UNSTORABLE
from chats.teams.conversation import LARGEST_WINDOW, LONGEST_INSTRUCTION, cut_notice
from chats.turns.roster import roster_of
from contextpolicy import ledger
from contextpolicy.engine import names, rounds, team, team_view
from contextpolicy.engine.agentformats import FORMS, normalized_agent_type
from contextpolicy.models import ContextPolicy, ModelSpec

MOST_TEAMS = 100
LONGEST_TEAM_NAME = 100
LEAST_CAP, MOST_CAP = 20, 100_000
LEAST_BYTES, MOST_BYTES = 1_024, 100_000_000
MOST_HOPS, MOST_TOKENS, MOST_SECONDS = 50, 10_000_000, 86_400
LONGEST_ROLE_ID = 80
# What a person and a model without a team say is theirs.
TAKEN_ROLES = (*team_view.RESERVED, "assistant")


class InvalidTeam(Refusal):
    """A value of a team or of one of its agents cannot be; the sentence says which and why."""

    code = "invalid_team"
    status = 422
    sentence = "{reason}"

    def __init__(self, reason: str, *, param: str) -> None:
        super().__init__(reason=reason)
        self.param = param


class NotYours(Refusal):
    """The team is everybody's, and the person does not make teams for everybody."""

    code = "team_not_yours"
    status = 403
    sentence = "This team is shared. Copy it to make one of your own, or ask an administrator."


class TooManyTeams(Refusal):
    """The person has as many teams as they may."""

    code = "too_many_teams"
    status = 409
    sentence = "You have {limit} teams and can make no more. Delete one first."


class TeamBusy(Refusal):
    """A reply is being written in the chat, so its team cannot be changed now."""

    code = "team_busy"
    status = 409
    sentence = "A reply is being written in this chat. Choose its team when it is there."


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDraft:
    """An agent as it is asked for; `role_id` names one that the team has, empty a new one."""

    name: str
    role_id: str = ""
    type: str = "ai"
    agent_type: str = ""
    model: str = ""
    instruction: str = ""
    instruction_file_text: str = ""
    prompt_form: str = Agent.PromptForm.MESSAGES
    window_size: int = team.WINDOW_SIZE
    policy: str = ""
    rests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamDraft:
    """A team as it is asked for."""

    name: str
    agents: Sequence[AgentDraft] = ()
    routing: str = "all"
    independent: bool = False
    hop_limit: int = rounds.HOP_LIMIT
    token_limit: int = rounds.TOKEN_LIMIT
    seconds_limit: int = rounds.SECONDS_LIMIT
    goes_on_after_failure: bool = True
    message_cap: int = 0
    max_bytes: int = team.MAX_BYTES
    task: str = ""


@dataclass(frozen=True, slots=True)
class Saved:
    """A stored team, and what to tell the person about it."""

    team: Team
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """The models and policies that the agents of a draft name, by slug."""

    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    policies: Mapping[str, ContextPolicy] = field(default_factory=dict)


def draft_of(version: TeamVersion) -> TeamDraft:
    """Return a version as a draft, to show it in a form or to copy it."""
    values = {name: getattr(version, name) for name in RULES}
    agents = [
        AgentDraft(
            name=agent.name,
            role_id=agent.role_id,
            type=agent.type,
            agent_type=agent.agent_type,
            model=agent.model.slug if agent.model else "",
            instruction=agent.instruction,
            instruction_file_text=agent.instruction_file_text,
            prompt_form=agent.prompt_form,
            window_size=agent.window_size,
            policy=agent.policy.slug if agent.policy else "",
            rests=agent.rests,
        )
        for agent in roster_of(version).agents
    ]
    return TeamDraft(name=version.name, agents=agents, **values)


def form_for(agent_type: str) -> str:
    """Return the prompt form of a kind of agent; without a kind, a message for each message."""
    if not agent_type:
        return Agent.PromptForm.MESSAGES
    full = normalized_agent_type(agent_type)
    return full if full in FORMS else Agent.PromptForm.PLAIN


RULES = (
    "routing",
    "independent",
    "hop_limit",
    "token_limit",
    "seconds_limit",
    "goes_on_after_failure",
    "message_cap",
    "max_bytes",
    "task",
)


def create(
    *,
    user: User,
    draft: TeamDraft,
    shared: bool,
    now: datetime,
    original: Team | None = None,
) -> Saved:
    """Make a team of one's own, or for everybody; a copy keeps the policies of its `original`.

    Raises `InvalidTeam`, `NotYours` and `TooManyTeams`.
    """
    if shared and not user.has_perm(EDITS_POLICIES):
        raise NotYours
    found, warnings = checked(draft, user=user, known=original)
    with transaction.atomic():
        if Team.objects.filter(owner=user, deleted_at=None).count() >= MOST_TEAMS:
            raise TooManyTeams(limit=MOST_TEAMS)
        made = Team.objects.create(owner=None if shared else user, created_at=now)
        store(made, draft=draft, found=found, now=now)
        tell("team.created", made, user=user, now=now)
    return Saved(made, warnings)


def change(*, user: User, team_id: uuid.UUID, draft: TeamDraft, now: datetime) -> Saved:
    """Give a team a new version. Raises `NotFound`, `NotYours` and `InvalidTeam`."""
    with transaction.atomic():
        known = to_change(user=user, team_id=team_id)
        found, warnings = checked(draft, user=user, known=known)
        store(known, draft=draft, found=found, now=now)
        tell("team.changed", known, user=user, now=now)
    return Saved(known, warnings)


def copy(*, user: User, team_id: uuid.UUID, now: datetime) -> Saved:
    """Make a team of one's own of another one; its agents are others, which call each other.

    Raises `NotFound`, `InvalidTeam` and `TooManyTeams`.
    """
    original = access.team_for(user=user, team_id=team_id)
    if original.current is None:
        raise NotFound
    draft = draft_of(original.current)
    name = f"{draft.name[: LONGEST_TEAM_NAME - 7]} (copy)"
    agents = [AgentDraft(**{**asdict(agent), "role_id": ""}) for agent in draft.agents]
    values = {name: getattr(draft, name) for name in RULES}
    copied = TeamDraft(name=name, agents=agents, **values)
    return create(user=user, draft=copied, shared=False, now=now, original=original)


def delete(*, user: User, team_id: uuid.UUID, now: datetime) -> None:
    """Offer a team for no new chat any more; chats that have it keep it.

    Raises `NotFound` and `NotYours`.
    """
    with transaction.atomic():
        known = to_change(user=user, team_id=team_id)
        known.deleted_at = now
        known.save(update_fields=["deleted_at"])
        tell("team.deleted", known, user=user, now=now)


def restore(*, user: User, team_id: uuid.UUID, now: datetime) -> None:
    """Offer a deleted team of everybody again. Raises `NotFound` and `NotYours`."""
    if not user.has_perm(EDITS_POLICIES):
        raise NotYours
    with transaction.atomic():
        rows = Team.objects.select_for_update(of=("self",), no_key=True)
        known = rows.filter(pk=team_id, owner=None, deleted_at__isnull=False).first()
        if known is None or known.current is None:
            raise NotFound
        known.deleted_at = None
        known.save(update_fields=["deleted_at"])
        tell("team.restored", known, user=user, now=now)


def to_change(*, user: User, team_id: uuid.UUID) -> Team:
    """Return a team, locked, that the person may change. Raises `NotFound` and `NotYours`."""
    access.team_for(user=user, team_id=team_id)
    known = Team.objects.select_for_update(of=("self",), no_key=True).get(pk=team_id)
    if known.owner_id is None and not user.has_perm(EDITS_POLICIES):
        raise NotYours
    return known


def choose(*, user: User, chat: Chat, team_id: uuid.UUID | None, now: datetime) -> Chat:
    """Let a team reply in a chat from the next message on, or with None its model alone.

    The chat takes the team's task where it has none. Raises `NotFound` and `TeamBusy`.
    """
    chosen = access.team_for(user=user, team_id=team_id) if team_id else None
    with transaction.atomic():
        chat = chat_to_write_in(chat.pk)
        if chat.active_branch and chat.active_branch.turns.filter(finished_at=None).exists():
            raise TeamBusy
        chat.team = chosen
        if chosen and chosen.current and chat.team_task is None and chosen.current.task:
            chat.team_task = chosen.current.task
        chat.save(update_fields=["team", "team_task"])
        ledger.record(
            "team.chosen",
            actor=f"user:{user.pk}",
            now=now,
            chat_id=chat.pk,
            data={"team": str(chosen.pk) if chosen else ""},
        )
    return chat


def tell(event: str, made: Team, *, user: User, now: datetime) -> None:
    """Record in the ledger what became of a team: numbers, never its words."""
    data: dict[str, Any] = {"team": str(made.pk), "shared": made.owner_id is None}
    if made.current is not None:
        roster = roster_of(made.current)
        data |= {
            "version": made.current.number,
            "sha256": digest_of(made.current),
            "agents": [agent.role_id for agent in roster.agents],
        }
    ledger.record(event, actor=f"user:{user.pk}", now=now, data=data)


def digest_of(version: TeamVersion) -> str:
    """Return a digest of a version's values: by it the ledger shows which one was in force."""
    values = asdict(draft_of(version))
    # Versions from before an option keep the digest that the ledger has of them.
    for name in ("message_cap", "max_bytes"):
        if not values[name]:
            del values[name]
    for agent in values["agents"]:
        if agent["prompt_form"] == Agent.PromptForm.MESSAGES:
            del agent["prompt_form"]
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def store(made: Team, *, draft: TeamDraft, found: _Found, now: datetime) -> None:
    """Store a checked draft as the next version of a team, which the caller has locked."""
    last = made.versions.order_by("-number").first()
    rules = {name: getattr(draft, name) for name in RULES}
    rules["task"] = team.cut_team_task(draft.task)
    version = TeamVersion.objects.create(
        team=made, number=last.number + 1 if last else 1, name=draft.name, created_at=now, **rules
    )
    known = set(last.agents.values_list("role_id", flat=True)) if last else set()
    # An id that was given once never becomes another's, whose words would be taken for its own.
    taken = set(Agent.objects.filter(version__team=made).values_list("role_id", flat=True))
    for place, agent in enumerate(draft.agents):
        role_id = agent.role_id if agent.role_id in known else new_role_id(agent.name, taken=taken)
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


def new_role_id(name: str, *, taken: set[str]) -> str:
    """Return an id for a new role, made of its name: `planner`, `planner-2`."""
    base = slugify(name, allow_unicode=True)[: LONGEST_ROLE_ID - 4] or "agent"
    base = f"{base}-agent" if base in TAKEN_ROLES else base
    numbers = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (base, *numbers) if each not in taken)


def checked(
    draft: TeamDraft, *, user: User, known: Team | None = None
) -> tuple[_Found, tuple[str, ...]]:
    """Check a draft whole; return what its agents name, and warnings. Raises `InvalidTeam`."""
    check_team(draft)
    names: dict[str, str] = {}
    roles: set[str] = set()
    for place, agent in enumerate(draft.agents):
        check_agent(agent, param=f"agents.{place}")
        if agent.role_id and agent.role_id in roles:
            raise InvalidTeam(
                f"Two members have the role {agent.role_id[:LONGEST_ROLE_ID]}. Leave it empty for"
                " the new one.",
                param=f"agents.{place}.role_id",
            )
        roles.add(agent.role_id)
        twin = names.get(team_view.folded(agent.name))
        if twin is not None:
            raise InvalidTeam(
                f"{twin} and {agent.name} cannot be told apart: case, spaces and hyphens do not"
                " count in a name.",
                param=f"agents.{place}.name",
            )
        names[team_view.folded(agent.name)] = agent.name
    if not any(agent.type == "ai" and not agent.rests for agent in draft.agents):
        raise InvalidTeam("A team needs an agent that does not rest. Add one.", param="agents")
    found = _Found(models=models_of(draft), policies=policies_of(draft, user=user, known=known))
    small = [a.name for a in draft.agents if a.type == "ai" and a.window_size < draft.hop_limit]
    warnings = []
    if small:
        warnings.append(
            f"The window of {', '.join(small)} is smaller than the {draft.hop_limit} replies of a"
            " round: they do not see all of it, only the message that began it."
        )
    if notice := cut_notice(draft.task, kept=team.cut_team_task(draft.task)):
        warnings.append(notice)
    return found, tuple(warnings)


def check_team(draft: TeamDraft) -> None:
    """Check what a team has beside its agents. Raises `InvalidTeam`."""
    if len(draft.name) > LONGEST_TEAM_NAME or not names.is_sound(draft.name):
        raise InvalidTeam(
            f"A team needs a name of 1 to {LONGEST_TEAM_NAME} characters, without line breaks and"
            " characters that cannot be seen.",
            param="name",
        )
    if not draft.agents:
        raise InvalidTeam("A team has at least one agent. Add one.", param="agents")
    if len(draft.agents) > rounds.MOST_MEMBERS:
        raise InvalidTeam(f"A team has at most {rounds.MOST_MEMBERS} members.", param="agents")
    if draft.routing not in TeamVersion.Routing.values:
        raise InvalidTeam(
            f"The routing is one of {', '.join(TeamVersion.Routing.values)}.", param="routing"
        )
    limits = (
        ("hop_limit", "replies", MOST_HOPS),
        ("token_limit", "tokens", MOST_TOKENS),
        ("seconds_limit", "seconds", MOST_SECONDS),
    )
    for param, what, most in limits:
        if not 1 <= getattr(draft, param) <= most:
            raise InvalidTeam(f"A round has a limit of 1 to {most:,} {what}.", param=param)
    check_prompt_limits(draft)
    if found := UNSTORABLE.search(draft.task):
        raise InvalidTeam(
            f"The task has a character that cannot be stored, at position {found.start()}.",
            param="task",
        )


def check_prompt_limits(draft: TeamDraft) -> None:
    """Check the limits of messages and of bytes; a whole round fits under the cap.

    Raises `InvalidTeam`.
    """
    least = max(LEAST_CAP, draft.hop_limit)
    if draft.message_cap and not least <= draft.message_cap <= MOST_CAP:
        raise InvalidTeam(
            f"The most messages in prompts are {least:,} to {MOST_CAP:,}, or 0 for as many as"
            " there are.",
            param="message_cap",
        )
    if draft.max_bytes and not LEAST_BYTES <= draft.max_bytes <= MOST_BYTES:
        raise InvalidTeam(
            f"The byte limit of a prompt is {LEAST_BYTES:,} to {MOST_BYTES:,} bytes, or 0 for no"
            " limit.",
            param="max_bytes",
        )


def check_agent(agent: AgentDraft, *, param: str) -> None:
    """Check a member by itself. Raises `InvalidTeam`."""
    if problem := team_view.name_problem(agent.name):
        raise InvalidTeam(problem, param=f"{param}.name")
    if agent.type not in Agent.Type.values:
        raise InvalidTeam("A member is `ai` or `human`.", param=f"{param}.type")
    if not 0 <= agent.window_size <= LARGEST_WINDOW:
        raise InvalidTeam(
            f"The window of {agent.name} is {agent.window_size}. Give 0 for no earlier messages,"
            f" or a number up to {LARGEST_WINDOW}.",
            param=f"{param}.window_size",
        )
    if agent.prompt_form not in Agent.PromptForm.values:
        raise InvalidTeam(
            f"The prompt form of {agent.name} is one of {', '.join(Agent.PromptForm.values)}.",
            param=f"{param}.prompt_form",
        )
    if len(agent.agent_type) > 60 or (agent.agent_type and not names.is_sound(agent.agent_type)):
        raise InvalidTeam("A kind of agent has at most 60 characters.", param=f"{param}.agent_type")
    for name in ("instruction", "instruction_file_text"):
        text = getattr(agent, name)
        if len(text) > LONGEST_INSTRUCTION or UNSTORABLE.search(text):
            raise InvalidTeam(
                f"The instruction of {agent.name} has at most {LONGEST_INSTRUCTION:,} characters,"
                " without those that cannot be stored.",
                param=f"{param}.{name}",
            )


def models_of(draft: TeamDraft) -> dict[str, ModelSpec]:
    """Return the models that the agents name. Raises `InvalidTeam`."""
    wanted = {agent.model for agent in draft.agents if agent.model}
    found = {row.slug: row for row in ModelSpec.objects.filter(slug__in=wanted, enabled=True)}
    for place, agent in enumerate(draft.agents):
        if agent.model and agent.model not in found:
            raise InvalidTeam(
                f"There is no model called “{agent.model[:120]}” here. Choose one from the list.",
                param=f"agents.{place}.model",
            )
    return found


def policies_of(draft: TeamDraft, *, user: User, known: Team | None) -> dict[str, ContextPolicy]:
    """Return the policies that the agents name; who edits policies gives new ones.

    What a team has already stays. Raises `InvalidTeam`.
    """
    wanted = {agent.policy for agent in draft.agents if agent.policy}
    usable = ContextPolicy.objects.filter(slug__in=wanted, retired=False, current__isnull=False)
    if not user.has_perm(EDITS_POLICIES):
        before = known.current.agents.all() if known and known.current else []
        usable = usable.filter(pk__in=[agent.policy_id for agent in before if agent.policy_id])
    found = {row.slug: row for row in usable.select_related("current")}
    for place, agent in enumerate(draft.agents):
        if agent.policy and agent.policy not in found:
            raise InvalidTeam(
                f"The policy “{agent.policy[:60]}” cannot be given to an agent: it does not exist,"
                " or only an administrator gives it.",
                param=f"agents.{place}.policy",
            )
    return found

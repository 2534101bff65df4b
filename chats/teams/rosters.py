"""Creates, changes, copies and deletes teams.

A change creates a new version with new agent rows, so a running round keeps the version it began
with. A role keeps its id until it is removed from the team, so its messages stay attributed to it.
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
from django.utils.translation import gettext, gettext_noop

from chats.compaction.people.rights import EDITS_POLICIES
from chats.ground.refusals import NotFound, Refusal
from chats.ground.texts import UNSTORABLE
from chats.models import Agent, Chat, Team, TeamVersion
from chats.record import access
from chats.record.locking import lock_chat_for_writing
from chats.teams.conversation import LARGEST_WINDOW, LONGEST_INSTRUCTION, cut_notice
from chats.turns.roster import load_roster
from contextpolicy import ledger, two_persons
from contextpolicy.engine.team import rounds, team, team_view
from contextpolicy.engine.team.agent_formats import FORMS, normalise_agent_type
from contextpolicy.engine.text import names
from contextpolicy.models import ContextPolicy, ModelSpec

MOST_TEAMS = 100
LONGEST_TEAM_NAME = 100
LEAST_CAP, MOST_CAP = 20, 100_000
LEAST_BYTES, MOST_BYTES = 1_024, 100_000_000
UNKNOWN_TYPE = gettext_noop("Set the type of each member to `ai` or `human`.")
POLICY_NOT_ASSIGNABLE = gettext_noop(
    "The policy “{policy}” cannot be assigned to an agent: it does not exist, or only an "
    "administrator can assign it."
)
SECOND_PERSON_ASSIGNS = gettext_noop(
    "This instance requires two people for policy changes. You wrote the published version of "
    "the policy “{policy}”, so ask another administrator to assign it to the agent."
)
MOST_HOPS, MOST_TOKENS, MOST_SECONDS = 50, 10_000_000, 86_400
LONGEST_ROLE_ID = 80
# Role ids of messages by people and models without a team.
TAKEN_ROLES = (*team_view.RESERVED, "assistant")
NO_AGENT = gettext_noop("A team needs at least one agent. Add one.")
NO_ACTIVE_AGENT = gettext_noop("A team needs at least one active agent. Add one.")


class InvalidTeam(Refusal):
    """A value of the team or of an agent is invalid. `param` names the field."""

    code = "invalid_team"
    status = 422

    def __init__(self, sentence: str, *, param: str, **details: Any) -> None:
        self.sentence = sentence
        super().__init__(**details)
        self.param = param


class NotYours(Refusal):
    """The team is shared, and only administrators can create or change shared teams."""

    code = "team_not_yours"
    status = 403
    sentence = gettext_noop("This team is shared. Copy it, or ask an administrator to change it.")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDraft:
    """A requested agent; `role_id` is the id of an existing role, or empty for a new one."""

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
    """A team as submitted: its name, rules and agents, not yet validated."""

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
    """A stored team, and warnings for the user."""

    team: Team
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Found:
    """The models and policies of a draft's agents, by slug."""

    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    policies: Mapping[str, ContextPolicy] = field(default_factory=dict)


def build_version_draft(version: TeamVersion) -> TeamDraft:
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
        for agent in load_roster(version).agents
    ]
    return TeamDraft(name=version.name, agents=agents, **values)


def choose_prompt_form(agent_type: str) -> str:
    """Return the prompt form of an agent type; without a type, separate messages."""
    if not agent_type:
        return Agent.PromptForm.MESSAGES
    full = normalise_agent_type(agent_type)
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
        if Team.objects.filter(owner=user, deleted_at=None).count() >= MOST_TEAMS:
            raise TooManyTeams(limit=MOST_TEAMS)
        made = Team.objects.create(owner=None if shared else user, created_at=now)
        store_team_version(made, draft=draft, found=found, now=now)
        record_team_event("team.created", made, user=user, now=now)
    return Saved(made, warnings)


def update_team(*, user: User, team_id: uuid.UUID, draft: TeamDraft, now: datetime) -> Saved:
    """Save a new version of a team. Raises `NotFound`, `NotYours` and `InvalidTeam`."""
    with transaction.atomic():
        known = lock_editable_team(user=user, team_id=team_id)
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

    The chat receives the team's task if it has none. Raises `NotFound` and `TeamBusy`.
    """
    chosen = access.get_team(user=user, team_id=team_id) if team_id else None
    with transaction.atomic():
        chat = lock_chat_for_writing(chat.pk)
        if chat.active_branch and chat.active_branch.turns.filter(finished_at=None).exists():
            raise TeamBusy
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


def check_team_draft(
    draft: TeamDraft, *, user: User, shared: bool, known: Team | None = None
) -> tuple[_Found, tuple[str, ...]]:
    """Check a whole draft. Returns its models and policies, and warnings. Raises `InvalidTeam`."""
    check_team(draft)
    names: dict[str, str] = {}
    roles: set[str] = set()
    for place, agent in enumerate(draft.agents):
        check_agent(agent, param=f"agents.{place}")
        if agent.role_id and agent.role_id in roles:
            raise InvalidTeam(
                gettext_noop(
                    "Two members have the role {role}. Leave the role of the new member empty."
                ),
                param=f"agents.{place}.role_id",
                role=agent.role_id[:LONGEST_ROLE_ID],
            )
        roles.add(agent.role_id)
        twin = names.get(team_view.fold_member_name(agent.name))
        if twin is not None:
            raise InvalidTeam(
                gettext_noop(
                    "{first} and {second} count as the same name, because case, spaces and "
                    "hyphens are ignored. Rename one of them."
                ),
                param=f"agents.{place}.name",
                first=twin,
                second=agent.name,
            )
        names[team_view.fold_member_name(agent.name)] = agent.name
    if not any(agent.type == "ai" and not agent.rests for agent in draft.agents):
        raise InvalidTeam(NO_ACTIVE_AGENT, param="agents")
    policies = load_draft_policies(draft, user=user, known=known, shared=shared)
    found = _Found(models=load_draft_models(draft), policies=policies)
    small = [a.name for a in draft.agents if a.type == "ai" and a.window_size < draft.hop_limit]
    warnings = []
    if small:
        warnings.append(
            gettext(
                "The window of {names} is smaller than the {n} replies of a round. They see the "
                "message that started the round, but not every reply."
            ).format(names=", ".join(small), n=draft.hop_limit)
        )
    if notice := cut_notice(draft.task, kept=team.cut_team_task(draft.task)):
        warnings.append(notice)
    return found, tuple(warnings)


def check_team(draft: TeamDraft) -> None:
    """Check the fields of a team other than its agents. Raises `InvalidTeam`."""
    if len(draft.name) > LONGEST_TEAM_NAME or not names.is_allowed_name(draft.name):
        raise InvalidTeam(
            gettext_noop(
                "Enter a name of 1 to {limit} characters, without line breaks or invisible "
                "characters."
            ),
            param="name",
            limit=LONGEST_TEAM_NAME,
        )
    if not draft.agents:
        raise InvalidTeam(NO_AGENT, param="agents")
    if len(draft.agents) > rounds.MOST_MEMBERS:
        raise InvalidTeam(
            gettext_noop("A team can have at most {limit} members. Remove members."),
            param="agents",
            limit=rounds.MOST_MEMBERS,
        )
    if draft.routing not in TeamVersion.Routing.values:
        raise InvalidTeam(
            gettext_noop("Choose one of these routings: {known}."),
            param="routing",
            known=", ".join(TeamVersion.Routing.values),
        )
    limits = (
        ("hop_limit", gettext_noop("Enter a limit of 1 to {most:,} replies per round."), MOST_HOPS),
        (
            "token_limit",
            gettext_noop("Enter a limit of 1 to {most:,} tokens per round."),
            MOST_TOKENS,
        ),
        (
            "seconds_limit",
            gettext_noop("Enter a limit of 1 to {most:,} seconds per round."),
            MOST_SECONDS,
        ),
    )
    for param, sentence, most in limits:
        if not 1 <= getattr(draft, param) <= most:
            raise InvalidTeam(sentence, param=param, most=most)
    check_prompt_limits(draft)
    if found := UNSTORABLE.search(draft.task):
        raise InvalidTeam(
            gettext_noop(
                "The task contains a character that cannot be stored, at position {position}. "
                "Remove it."
            ),
            param="task",
            position=found.start() + 1,
        )


def check_prompt_limits(draft: TeamDraft) -> None:
    """Check the message and byte limits. A whole round must fit within the message cap.

    Raises `InvalidTeam`.
    """
    least = max(LEAST_CAP, draft.hop_limit)
    if draft.message_cap and not least <= draft.message_cap <= MOST_CAP:
        raise InvalidTeam(
            gettext_noop("Enter a message limit of {least:,} to {most:,}, or 0 for no limit."),
            param="message_cap",
            least=least,
            most=MOST_CAP,
        )
    if draft.max_bytes and not LEAST_BYTES <= draft.max_bytes <= MOST_BYTES:
        raise InvalidTeam(
            gettext_noop(
                "Enter a byte limit of {least:,} to {most:,} per prompt, or 0 for no limit."
            ),
            param="max_bytes",
            least=LEAST_BYTES,
            most=MOST_BYTES,
        )


def check_agent(agent: AgentDraft, *, param: str) -> None:
    """Check the fields of one member. Raises `InvalidTeam`."""
    if problem := team_view.find_name_problem(agent.name):
        raise InvalidTeam(problem.template, param=f"{param}.name", **problem.values)
    if agent.type not in Agent.Type.values:
        raise InvalidTeam(UNKNOWN_TYPE, param=f"{param}.type")
    if not 0 <= agent.window_size <= LARGEST_WINDOW:
        raise InvalidTeam(
            gettext_noop(
                "The window of {name} is {size}. Enter 0 for no earlier messages, or a number "
                "up to {limit}."
            ),
            param=f"{param}.window_size",
            name=agent.name,
            size=agent.window_size,
            limit=LARGEST_WINDOW,
        )
    if agent.prompt_form not in Agent.PromptForm.values:
        raise InvalidTeam(
            gettext_noop("Choose a prompt form for {name}: {known}."),
            param=f"{param}.prompt_form",
            name=agent.name,
            known=", ".join(Agent.PromptForm.values),
        )
    if len(agent.agent_type) > 60 or (
        agent.agent_type and not names.is_allowed_name(agent.agent_type)
    ):
        raise InvalidTeam(
            gettext_noop("The agent type is not valid. Enter up to 60 printable characters."),
            param=f"{param}.agent_type",
        )
    for name in ("instruction", "instruction_file_text"):
        text = getattr(agent, name)
        if len(text) > LONGEST_INSTRUCTION or UNSTORABLE.search(text):
            raise InvalidTeam(
                gettext_noop(
                    "The instructions of {name} are longer than {limit:,} characters or "
                    "contain characters that cannot be stored. Correct them."
                ),
                param=f"{param}.{name}",
                name=agent.name,
                limit=LONGEST_INSTRUCTION,
            )


def load_draft_models(draft: TeamDraft) -> dict[str, ModelSpec]:
    """Return the models of the agents. Raises `InvalidTeam`."""
    wanted = {agent.model for agent in draft.agents if agent.model}
    found = {row.slug: row for row in ModelSpec.objects.filter(slug__in=wanted, enabled=True)}
    for place, agent in enumerate(draft.agents):
        if agent.model and agent.model not in found:
            raise InvalidTeam(
                gettext_noop(
                    "The model “{model}” does not exist or is disabled. Choose another one."
                ),
                param=f"agents.{place}.model",
                model=agent.model[:120],
            )
    return found


def load_draft_policies(
    draft: TeamDraft, *, user: User, known: Team | None, shared: bool
) -> dict[str, ContextPolicy]:
    """Return the policies of the agents by slug. Raises `InvalidTeam`.

    Only policy editors can add new ones; policies that the team already has stay allowed. If
    two-person approval is on, the author of a policy needs a second person to assign it to agents
    of a `shared` team, or of any team if the policy locks or erases something.
    """
    wanted = {agent.policy for agent in draft.agents if agent.policy}
    usable = ContextPolicy.objects.filter(slug__in=wanted, retired=False, current__isnull=False)
    before = known.current.agents.all() if known and known.current else []
    given = {agent.policy_id for agent in before if agent.policy_id}
    if not user.has_perm(EDITS_POLICIES):
        usable = usable.filter(pk__in=given)
    found = {row.slug: row for row in usable.select_related("current")}
    for place, agent in enumerate(draft.agents):
        if agent.policy and agent.policy not in found:
            raise InvalidTeam(
                POLICY_NOT_ASSIGNABLE,
                param=f"agents.{place}.policy",
                policy=agent.policy[:60],
            )
        policy = found.get(agent.policy)
        if (
            policy
            and policy.pk not in given
            and is_approval_required(policy, by=user, shared=shared)
        ):
            raise InvalidTeam(
                SECOND_PERSON_ASSIGNS,
                param=f"agents.{place}.policy",
                policy=policy,
            )
    return found


def is_approval_required(policy: ContextPolicy, *, by: User, shared: bool) -> bool:
    """Return True if assigning this policy to agents of a team requires a second person."""
    version = policy.current
    return version is not None and two_persons.is_needed(
        values=version.values,
        locks=version.locks,
        before=None,
        levels={two_persons.SHARED if shared else two_persons.OTHER},
        author=version.created_by_id,
        by=by.pk,
    )

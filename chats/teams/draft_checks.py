"""Checks of team drafts: names, agents, limits, models and policies."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.utils.translation import gettext, gettext_noop

from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.ground.refusals import Refusal
from chats.ground.texts import UNSTORABLE
from chats.models import Agent, Team, TeamVersion
from chats.teams.conversation import LARGEST_WINDOW, LONGEST_INSTRUCTION, cut_notice
from chats.teams.team_drafts import AgentDraft, TeamDraft
from contextpolicy import two_persons
from contextpolicy.engine.team import rounds, team, team_view
from contextpolicy.engine.text import names
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.wording import join_items

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


@dataclass(slots=True)
class _Found:
    """The models and policies of a draft's agents, by slug."""

    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    policies: Mapping[str, ContextPolicy] = field(default_factory=dict)


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
                "The window of {names} is smaller than the {n} replies in a round. An "
                "agent with this window sees the message that started the round, but not "
                "every reply."
            ).format(names=join_items(small), n=draft.hop_limit)
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
            gettext_noop("Choose a prompt format for {name}: {known}."),
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

    Only policy editors can add new ones; policies that the team already has stay allowed. With
    two-person approval, the author of a policy cannot add it to a `shared` team, nor to any team if
    it locks or erases something.
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

"""Drafts of teams and agents, as clients and pages submit them."""

from collections.abc import Sequence
from dataclasses import dataclass

from chats.models import Agent, TeamVersion
from chats.turns.roster import load_roster
from contextpolicy.engine.team import rounds, team
from contextpolicy.engine.team.agent_formats import FORMS, normalise_agent_type


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
    """Return the prompt format for an agent type.

    Without a type, this is separate messages; for a type without its own format, plain text.
    """
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

"""Estimates for the next message of a team's chat: first speaker, prompt tokens and cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from chats.models import Agent, Chat, Receipt, Team
from chats.prompt import model_choice
from chats.prompt.agent_next_prompt import estimate_agent_tokens
from chats.prompt.agents import build_agent_view
from chats.prompt.composition import PromptRefused
from chats.prompt.next_prompt import Outlook
from chats.record.receipts import select_reply_calls
from chats.teams import play
from chats.turns.roster import Roster
from contextpolicy.engine.policy.costs import UsedTokens, parse_reported_usage
from contextpolicy.engine.team.rounds import build_opening_queue
from contextpolicy.models import ModelSpec


@dataclass(frozen=True, slots=True)
class Ahead:
    """An estimate for the next message without recipients.

    `tokens`: size of the first prompt; None if it cannot be built. `cost`: cost of that prompt;
    None if the size or a price of the model is unknown.
    """

    agents: int
    first: str
    routing: str
    most_replies: int
    most_tokens: int
    tokens: int | None
    cost: Decimal | None


def estimate_next_message(chat: Chat, *, roster: Roster, outlook: Outlook) -> Ahead | None:
    """Estimate the first prompt for the next message. None if no agent is active.

    Runs no query.
    """
    role_ids = (m.role_id for m in reversed(outlook.given.history) if m.role == "assistant")
    queue = build_opening_queue(
        roster.members,
        roster.rules,
        addressees=(),
        last=next((role for role in role_ids if role), ""),
    )
    first = roster.agent(queue[0]) if queue else None
    if first is None:
        return None
    try:
        view = build_agent_view(first, chat=chat, team=roster.agents)
        tokens = estimate_agent_tokens(outlook, view=view)
    except PromptRefused:
        tokens = None
    model = first.model or outlook.choice.model
    return Ahead(
        agents=len(list_active_agents(roster)),
        first=first.name,
        routing=roster.version.routing,
        most_replies=roster.version.hop_limit,
        most_tokens=roster.version.token_limit,
        tokens=tokens,
        cost=model_choice.calculate_call_cost(model, UsedTokens(input=tokens))
        if tokens is not None
        else None,
    )


def list_active_agents(roster: Roster) -> list[Agent]:
    """Return the agents that may reply: active members, without human roles."""
    return [agent for agent in roster.agents if agent.type == Agent.Type.AI and not agent.rests]


def load_active_agent_names(teams: Sequence[Team]) -> list[tuple[Team, str]]:
    """Return one pair of team and name for each active agent of the teams. Uses one query."""
    agents = Agent.objects.filter(
        version__in=[team.current_id for team in teams], type=Agent.Type.AI, rests=False
    )
    found: dict[UUID, list[str]] = {}
    for agent in agents.order_by("place"):
        found.setdefault(agent.version_id, []).append(agent.name)
    listed = [(team, found.get(team.current_id, [])) for team in teams if team.current_id]
    return [(team, name) for team, names in listed for name in names]


def is_priced(roster: Roster, *, model: ModelSpec) -> bool:
    """Return True if any agent's model has a price. `model` is the chat's default model."""
    return any(model_choice.has_price(agent.model or model) for agent in list_active_agents(roster))


def list_reply_costs(chat: Chat) -> Sequence[Decimal | None]:
    """Return the cost of each model call for the replies to the newest message.

    None: the model has no price, or its provider reported no usage for a completed call. Other
    calls without usage are left out.
    """
    made = play.find_newest_chat_round(chat)
    if made is None:
        return ()
    calls = select_reply_calls().filter(turn__round=made).select_related("turn__model")
    found = []
    for call in calls.only("usage", "outcome", "turn__model"):
        used = parse_reported_usage(call.usage)
        if used is not None:
            found.append(model_choice.calculate_call_cost(call.turn.model, used))
        elif call.outcome == Receipt.Outcome.OK:
            found.append(None)
    return found

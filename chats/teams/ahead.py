"""Estimates for the next message of a team's chat: first speaker, prompt tokens and cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

from chats.models import Agent, Chat, Team, Turn
from chats.prompt import model_choice
from chats.prompt.agent_outlook import sent_to_agent
from chats.prompt.agents import view_of
from chats.prompt.composition import PromptRefused
from chats.prompt.outlook import Outlook
from chats.teams import play
from chats.turns.roster import Roster
from contextpolicy.engine.costs import UsedTokens, used_of
from contextpolicy.engine.rounds import opening_queue
from contextpolicy.models import ModelSpec


@dataclass(frozen=True, slots=True)
class Ahead:
    """The estimate for the next message without addressees; `tokens` are those of the first prompt.

    `cost`: of that prompt; None if its model has no price.
    """

    agents: int
    first: str
    routing: str
    most_replies: int
    most_tokens: int
    tokens: int | None
    cost: Decimal | None


def ahead(chat: Chat, *, roster: Roster, outlook: Outlook) -> Ahead | None:
    """Estimate the next message without a query; None if no agent is active."""
    said = (m.role_id for m in reversed(outlook.given.history) if m.role == "assistant")
    queue = opening_queue(
        roster.members, roster.rules, addressees=(), last=next((role for role in said if role), "")
    )
    first = roster.agent(queue[0]) if queue else None
    if first is None:
        return None
    try:
        view = view_of(first, chat=chat, team=roster.agents)
        tokens = sent_to_agent(outlook, view=view)
    except PromptRefused:
        tokens = None
    model = first.model or outlook.choice.model
    return Ahead(
        agents=len(awake(roster)),
        first=first.name,
        routing=roster.version.routing,
        most_replies=roster.version.hop_limit,
        most_tokens=roster.version.token_limit,
        tokens=tokens,
        cost=model_choice.price_of(model, UsedTokens(input=tokens)) if tokens is not None else None,
    )


def awake(roster: Roster) -> list[Agent]:
    """Return the agents that may reply: active ones, without people."""
    return [agent for agent in roster.agents if agent.type == Agent.Type.AI and not agent.rests]


def names_in(teams: Sequence[Team]) -> list[tuple[Team, str]]:
    """Return the names of each team's active agents, in one query."""
    agents = Agent.objects.filter(
        version__in=[team.current_id for team in teams], type=Agent.Type.AI, rests=False
    )
    found: dict[UUID, list[str]] = {}
    for agent in agents.order_by("place"):
        found.setdefault(agent.version_id, []).append(agent.name)
    listed = [(team, found.get(team.current_id, [])) for team in teams if team.current_id]
    return [(team, name) for team, names in listed for name in names]


def is_priced(roster: Roster, *, model: ModelSpec) -> bool:
    """Return True if the model of any agent has a price; `model` is the chat's default."""
    return any(model_choice.has_price(agent.model or model) for agent in awake(roster))


def spent(chat: Chat) -> Sequence[Decimal | None]:
    """Return the cost of each reply to the newest message.

    None: the model has no price, or its provider reported no usage.
    """
    made = play.newest_round(chat)
    if made is None:
        return ()
    turns = Turn.objects.filter(round=made).select_related("model")
    found = []
    for turn in turns.only("usage", "model", "status"):
        used = used_of(turn.usage)
        if used is not None:
            found.append(model_choice.price_of(turn.model, used))
        elif turn.status == Turn.Status.COMPLETED:
            found.append(None)
    return found

"""Says in words what the next message of a team's chat takes, and what the newest one has cost."""

from dataclasses import dataclass
from decimal import Decimal

from chats.models import Chat
from chats.prompt.outlook import Outlook
from chats.teams import ahead, play
from chats.teams.ahead import Ahead
from chats.web.thread.round_state import replies
from chats.web.words import grouped

# Smaller sums are not written out.
SMALLEST = Decimal("0.0001")


@dataclass(frozen=True, slots=True)
class AheadWords:
    """The sentence at the message box, and those beside it in the breakdown."""

    line: str
    notes: tuple[str, ...]


def ahead_words(chat: Chat, *, outlook: Outlook) -> AheadWords | None:
    """Return what is said of the next message; None where no team replies."""
    roster = play.roster_in(chat)
    found = ahead.ahead(chat, roster=roster, outlook=outlook) if roster else None
    if roster is None or found is None:
        return None
    notes = [
        "The sizes above are those of the whole chat; each agent is sent what its own window"
        " leaves of it.",
        f"No further reply begins once they have taken {grouped(found.most_tokens)} tokens,"
        " prompts and replies together.",
    ]
    cost = ahead.spent(chat) if ahead.is_priced(roster, model=outlook.choice.model) else None
    if cost is not None:
        notes.append(f"The replies to the newest message have cost {money(cost)}.")
    if cost is not None or found.cost is not None:
        notes.append("Costs are in the currency of the model’s price.")
    return AheadWords(line_of(found), tuple(notes))


def line_of(found: Ahead) -> str:
    """Say who replies, how often at most, and what the first of them is sent."""
    agents = f"{found.agents} {'agent replies' if found.agents == 1 else 'agents reply'}"
    who = {
        "all": agents,
        "round_robin": f"{agents} in turn" if found.agents > 1 else agents,
        "person": f"{found.first} replies, or whom you name",
    }
    line = f"{who[found.routing]}, at most {replies(found.most_replies)}"
    if found.tokens is None:
        return f"{line}."
    cost = f", at a cost of about {money(found.cost)}" if found.cost is not None else ""
    return f"{line}; about {grouped(rounded(found.tokens))} tokens sent for the first{cost}."


def rounded(tokens: int) -> int:
    """Round an estimate to two figures: more would be said than is known."""
    return round(tokens, -max(len(str(tokens)) - 2, 0))


def money(cost: Decimal) -> str:
    """Write a sum of money."""
    return f"{cost:,.4f}" if cost >= SMALLEST or not cost else f"less than {SMALLEST}"

"""Previews the next message of a team chat: agents, token limits, and the cost so far."""

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from django.utils.translation import gettext, ngettext

from chats.models import Chat
from chats.prompt.next_prompt import Outlook
from chats.teams import ahead, play
from chats.teams.ahead import Ahead
from chats.web.thread.round_state import format_reply_count
from chats.web.words import format_number
from contextpolicy.engine.policy.costs import sum_known_costs

# Smaller amounts are shown as "less than".
SMALLEST = Decimal("0.0001")


class AheadNote(NamedTuple):
    """A note in the breakdown: a stable code and its sentence."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class AheadWords:
    """The sentence next to the message box, and the notes in the breakdown."""

    line: str
    notes: tuple[AheadNote, ...]


def build_next_message_preview(chat: Chat, *, outlook: Outlook) -> AheadWords | None:
    """Return the preview for the next message; None if the chat has no team."""
    roster = play.find_roster(chat)
    found = ahead.estimate_next_message(chat, roster=roster, outlook=outlook) if roster else None
    if roster is None or found is None:
        return None
    sizes = gettext(
        "The sizes above are for the whole chat. Each agent receives only the part within its"
        " own window."
    )
    limit = gettext(
        "No further reply starts after a total of {tokens} tokens in prompts and replies."
    )
    notes = [
        AheadNote("agent-windows", sizes),
        AheadNote("round-limit", limit.format(tokens=format_number(found.most_tokens))),
    ]
    costs = (
        ahead.list_reply_costs(chat) if ahead.is_priced(roster, model=outlook.choice.model) else ()
    )
    cost = sum_known_costs(*costs) if costs else None
    if cost is not None:
        words = gettext("The replies to the newest message cost {cost}.")
        notes.append(AheadNote("reply-costs", words.format(cost=format_cost(cost))))
    elif costs:
        unknown = gettext(
            "The cost of the replies to the newest message is unknown: a model has no price, or"
            " its provider reported no usage."
        )
        notes.append(AheadNote("unknown-costs", unknown))
    if cost is not None or found.cost is not None:
        currency = gettext("Costs are in the currency of the model’s price.")
        notes.append(AheadNote("price-currency", currency))
    return AheadWords(format_preview_line(found), tuple(notes))


def format_preview_line(found: Ahead) -> str:
    """Return a line with the next speakers, the maximum number of replies and the prompt size.

    The size is that of the first prompt.
    """
    if found.routing == "person":
        words = gettext("{name} or the agents that you mention write at most {replies}")
    elif found.routing == "round_robin" and found.agents > 1:
        words = gettext("{n} agents reply in turn and write at most {replies}")
    else:
        words = ngettext(
            "{n} agent replies and writes at most {replies}",
            "{n} agents reply and write at most {replies}",
            found.agents,
        )
    who = words.format(
        n=found.agents, name=found.first, replies=format_reply_count(found.most_replies)
    )
    if found.tokens is None:
        return gettext("{who}.").format(who=who)
    tokens = format_number(round_estimate(found.tokens))
    if found.cost is None:
        line = gettext("{who}; about {tokens} tokens in the first prompt.")
        return line.format(who=who, tokens=tokens)
    line = gettext("{who}; about {tokens} tokens in the first prompt, at a cost of about {cost}.")
    return line.format(who=who, tokens=tokens, cost=format_cost(found.cost))


def round_estimate(tokens: int) -> int:
    """Round an estimate to two significant digits, its actual precision."""
    return round(tokens, -max(len(str(tokens)) - 2, 0))


def format_cost(cost: Decimal) -> str:
    if cost >= SMALLEST or not cost:
        return f"{cost:,.4f}"
    return gettext("less than {amount}").format(amount=SMALLEST)

"""Template values for one side of a policy preview."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext, gettext_lazy, ngettext

from chats.admin.words import DUE, LEFT_OUT
from chats.counts import balances
from chats.simulation.estimates import FARTHEST, TURNS, Estimate
from chats.simulation.preview import Side
from contextpolicy.engine.policy.costs import Money

# Width of the full bar in SVG units. It represents the prompt limit.
WIDE = 1_000
SUMMARY_LENGTH = gettext_lazy("Length of the next summary")


@dataclass(frozen=True, slots=True)
class BarPiece:
    """A segment of the bar: a part of the prompt with its position and width."""

    name: str
    tokens: int
    x: float
    width: float


def build_bar_pieces(parts: Mapping[str, int], *, limit: int) -> list[BarPiece]:
    """Return the parts of a prompt as adjacent segments, scaled to the prompt limit."""
    whole = max(limit, sum(parts.values()), 1)
    pieces, before = [], 0
    for name, tokens in parts.items():
        if tokens:
            x, width = (round(n * WIDE / whole, 1) for n in (before, tokens))
            pieces.append(BarPiece(name, tokens, x, width))
            before += tokens
    return pieces


def build_side_context(side: Side, likely: Estimate | None = None) -> dict[str, Any]:
    """Return the template values of one side, with reasons as text."""
    return {
        "side": side,
        "likely": format_estimate_rows(likely) if likely else [],
        "left_out": [
            (LEFT_OUT.get(reason, reason), count) for reason, count in side.left_out.items()
        ],
        "parts": [(name, tokens) for name, tokens in side.parts.items() if tokens],
        "bar": build_bar_pieces(side.parts, limit=side.limit),
        "due": DUE.get(side.due, side.due[1]),
    }


NEXT_COST = gettext_lazy("Cost of the next turns")
COST_UNKNOWN = gettext_lazy("unknown before the first reply")
COST_WITHOUT_PRICE = gettext_lazy("unknown, because no price is set; ≈ {share} from the cache")


def format_estimate_rows(likely: Estimate) -> list[tuple[str, str]]:
    """Return (label, text) pairs for the estimates, including the basis of each."""
    rows = []
    if likely.summary is not None:
        rows.append((str(SUMMARY_LENGTH), format_summary_length(likely)))
    if likely.turns is not None:
        slow, usual, fast = (
            f"≈ {n:,}" if n else gettext("over {n:,}").format(n=FARTHEST) for n in likely.turns
        )
        form = ngettext(
            "{usual} ({fast} to {slow}), based on the last turn",
            "{usual} ({fast} to {slow}), based on the last {n} turns",
            likely.by_turns,
        )
        turns = form.format(usual=usual, fast=fast, slow=slow, n=likely.by_turns)
        rows.append((gettext("Turns until the next compaction"), turns))
    if likely.cost is None:
        rows.append((str(NEXT_COST), str(COST_UNKNOWN)))
    else:
        label = ngettext("Cost of {n} turn", "Cost of {n} turns", TURNS)
        rows.append((label.format(n=TURNS), format_turns_cost(likely.cost, cached=likely.cached)))
    return rows


def format_summary_length(likely: Estimate) -> str:
    if likely.summaries:
        form = ngettext(
            "≈ {tokens:,} tokens, based on the last {n} summary by this model",
            "≈ {tokens:,} tokens, based on the last {n} summaries by this model",
            likely.summaries,
        )
    else:
        form = gettext("≈ {tokens:,} tokens, based only on the limit")
    return form.format(tokens=likely.summary, n=likely.summaries)


def format_turns_cost(cost: Money, *, cached: float) -> str:
    """Return the estimated cost of the next turns, with the share read from the cache."""
    if cost.unknown:
        form = str(COST_WITHOUT_PRICE)
    else:
        form = gettext("≈ {cost}, with ≈ {share} from the cache")
    return form.format(cost=balances.format_money(cost), share=f"{cached:.0%}")

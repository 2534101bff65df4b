"""One side of a preview of a policy as the pages show it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from chats.admin.words import DUE, LEFT_OUT
from chats.counts import balances
from chats.simulation.estimates import FARTHEST, TURNS, Estimate
from chats.simulation.preview import Side

# The width of the bar, in units of its drawing; the prompt limit is all of it.
WIDE = 1_000


@dataclass(frozen=True, slots=True)
class BarPiece:
    """A part of a prompt in the bar: where it begins, and how wide it is."""

    name: str
    tokens: int
    x: float
    width: float


def bar_of(parts: Mapping[str, int], *, limit: int) -> list[BarPiece]:
    """Return the parts of a prompt side by side, as shares of the prompt limit."""
    whole = max(limit, sum(parts.values()), 1)
    pieces, before = [], 0
    for name, tokens in parts.items():
        if tokens:
            x, width = (round(n * WIDE / whole, 1) for n in (before, tokens))
            pieces.append(BarPiece(name, tokens, x, width))
            before += tokens
    return pieces


def side_told(side: Side, likely: Estimate | None = None) -> dict[str, Any]:
    """Return one side with its reasons in words."""
    return {
        "side": side,
        "likely": estimate_words(likely) if likely else [],
        "left_out": [
            (LEFT_OUT.get(reason, reason), count) for reason, count in side.left_out.items()
        ],
        "parts": [(name, tokens) for name, tokens in side.parts.items() if tokens],
        "bar": bar_of(side.parts, limit=side.limit),
        "due": DUE.get(side.due, side.due[1]),
    }


def estimate_words(likely: Estimate) -> list[tuple[str, str]]:
    """Say what is likely to come, each with what it goes by."""
    told = []
    if likely.summary is not None:
        by = f"the last {likely.summaries} of its writer" if likely.summaries else "the limit alone"
        told.append(("Length of the next summary", f"≈ {likely.summary:,} tokens, by {by}"))
    if likely.turns is not None:
        slow, usual, fast = (f"≈ {n:,}" if n else f"over {FARTHEST}" for n in likely.turns)
        told.append(
            (
                "Turns to the next compaction",
                f"{usual} ({fast} to {slow}), by the last {likely.by_turns} turns",
            )
        )
    if likely.cost is None:
        told.append(("Cost of the next turns", "unknown before the first reply"))
    else:
        cost = balances.words(likely.cost)
        sum_told = "unknown: a price is not set" if likely.cost.unknown else f"≈ {cost}"
        told.append(
            (f"Cost of {TURNS} turns", f"{sum_told}, with ≈ {likely.cached:.0%} from the cache")
        )
    return told

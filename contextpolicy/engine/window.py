"""Moves the anchored window in batches.

The start of history does not change until history reaches a high mark. Then it moves in one batch,
down to a low mark. A window that slides by one message each turn invalidates the provider's prompt
cache each turn; moving it in batches reduces this cost to between a third and a fifth. The anchor
is a stored `window` row; this module decides its next position. Indexes refer to the messages of a
`HistoryView`, ascending by seq.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from contextpolicy.engine.history.entries import Entries
from contextpolicy.engine.messages.messages import Message, ToolSpec
from contextpolicy.engine.messages.turn_groups import find_turn_starts
from contextpolicy.engine.policy.policy import PolicyValues

# `cap`: moved by a team's message limit, not by a prompt. `widened`: moved back by a policy with
# more room.
MoveReason = Literal["tokens", "messages", "turns", "unloaded", "cap", "widened"]
NO_CEILING = 1 << 62


@dataclass(frozen=True, slots=True)
class Room:
    """The tokens left for history next to the fixed parts: at the prompt limit and at both marks.

    May be negative. `ceiling` is the policy's limit of history (`window_tokens`).
    """

    limit: int
    high: int
    low: int
    ceiling: int = NO_CEILING


@dataclass(frozen=True)
class HistoryView:
    """The input of a strategy: the policy, the room, and the messages that could be sent.

    `entries` are the messages after the active window that are neither covered nor excluded,
    ascending by seq. A pinned message that is omitted from history is sent as a pin; `pin_tokens`
    is its cost as a pin. `is_complete` is False if messages before the first entry were not loaded.
    A strategy may read the system text, the tools and the retrieved context, but not change them.
    """

    values: PolicyValues
    room: Room
    entries: Entries
    pin_tokens: Callable[[Message], int]
    is_complete: bool = True
    system_prompt: str = ""
    tools: tuple[ToolSpec, ...] = ()
    retrieved: str = ""

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        return find_turn_starts(self.messages)

    def low(self, high: int) -> int:
        """Return the number of tokens to which a window move reduces history.

        `high`: the number of tokens that the history may use before the move.
        """
        values = self.values
        low = min(self.room.low, int(values.compact_to * self.room.ceiling))
        if values.compact_every_turns is None:
            return low
        tokens = [self.entries.known_tokens(place) for place in range(len(self.entries))]
        return compute_adaptive_low(
            high, tokens, turns=len(self.cuts), every=values.compact_every_turns
        )

    @property
    def messages(self) -> Sequence[Message]:
        return self.entries.messages

    @cached_property
    def pinned(self) -> tuple[tuple[int, int], ...]:
        """Index and tokens (as a pin) of each pinned message, ascending."""
        return tuple(
            (place, self.pin_tokens(message))
            for place, message in enumerate(self.messages)
            if message.pinned
        )

    def first_fitting(self, room: int) -> int:
        """Return the smallest index such that all messages from there to the newest fit `room`.

        Stops at the first message that does not fit, so there are no gaps. Returns the length of
        the history if not even the newest fits. Pinned messages before the index count as pins.
        """
        pins = dict(self.pinned)
        used = sum(pins.values())
        for place in range(len(self.entries) - 1, -1, -1):
            used += self.entries[place].cost - pins.get(place, 0)
            if used > room:
                return place + 1
        return 0

    def tokens_from(self, start: int) -> int:
        """Count the tokens of the messages from index `start` on and of the pins before it."""
        return sum(
            self.entries.known_tokens(place) for place in range(start, len(self.entries))
        ) + sum(tokens for place, tokens in self.pinned if place < start)


@dataclass(frozen=True, slots=True)
class WindowChoice:
    """A strategy's decision: the indexes to send, and (index, reason) of all others."""

    kept: tuple[int, ...]
    left: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class WindowMove:
    """The requested start index of history, and its token counts before and after the move."""

    start: int
    tokens_before: int
    tokens_after: int
    reason: MoveReason


def keep_all(view: HistoryView) -> WindowChoice:
    """Return the choice that sends every message of the view."""
    return WindowChoice(tuple(range(len(view.entries))))


def is_valid_choice(choice: WindowChoice | WindowMove, view: HistoryView) -> bool:
    """Return True if a decision fits the room and names each message of the view exactly once.

    A move must omit at least one message, unless earlier messages were not loaded.
    """
    count = len(view.entries)
    if isinstance(choice, WindowMove):
        return 0 <= choice.start <= count and (choice.start > 0 or not view.is_complete)
    left = [place for place, _ in choice.left]
    if list(choice.kept) != sorted(set(choice.kept)):
        return False
    if sorted((*choice.kept, *left)) != list(range(count)):
        return False
    gone = set(left)
    tokens = sum(view.entries[place].cost for place in choice.kept)
    tokens += sum(pin for place, pin in view.pinned if place in gone)
    return not choice.kept or tokens <= view.room.limit


def plan_window_move(view: HistoryView, *, high: int, keep_last: int = 0) -> WindowMove | None:
    """Return the move that is due, or None while everything fits.

    A move is due if history uses more than `high` tokens, has more messages than `window_size` or
    more turns than the policy's ceiling, or was not loaded completely. The move reduces history to
    the low mark and starts it at a turn. It keeps one complete turn if that fits the prompt limit;
    otherwise it splits the turn at a step. The last `keep_last` messages are kept if that leaves
    the window room to grow. Also returns None if a move gains nothing: the only complete turn is
    over the high mark but within the limit.
    """
    high = min(high, view.room.limit, view.room.ceiling)
    reason = _reason(view, high)
    if reason is None:
        return None
    start = _start(view, reason, high, keep_last)
    if start == 0 and view.is_complete:
        return None
    return WindowMove(start, view.tokens_from(0), view.tokens_from(start), reason)


def compute_adaptive_low(high: int, tokens: Sequence[int], *, turns: int, every: int) -> int:
    """Return the low mark from which about `every` turns of average size fit below `high`.

    `tokens` are those of the messages of `turns` turns. The result is between a tenth and nine
    tenths of `high`.
    """
    usual = sum(tokens) // max(1, turns)
    return max(high // 10, min(high * 9 // 10, high - every * usual))


def _reason(view: HistoryView, high: int) -> MoveReason | None:
    if not view.is_complete:
        return "unloaded"
    size, turns = view.values.window_size, view.values.window_turns
    if size is not None and len(view.entries) > size:
        return "messages"
    if turns is not None and len(view.cuts) > turns:
        return "turns"
    return "tokens" if view.first_fitting(high) > 0 else None


def _start(view: HistoryView, reason: MoveReason, high: int, keep_last: int) -> int:
    low = view.low(high)
    smallest = max(view.first_fitting(low), _by_size(view), _by_turns(view))
    start = _first_at_or_after(view.cuts, smallest)
    kept = _last_at_or_before(view.cuts, len(view.entries) - keep_last)
    midway = (low + min(view.room.high, high)) // 2
    is_by_tokens = reason in ("tokens", "unloaded")
    if keep_last and is_by_tokens and kept < start and view.first_fitting(midway) <= kept:
        start = kept
    if start < len(view.entries):
        return start
    return _smallest_tail(view, view.cuts)


def _by_size(view: HistoryView) -> int:
    size = view.values.window_size
    if size is None or len(view.entries) <= size:
        return 0
    return len(view.entries) - max(1, int(view.values.compact_to * size))


def _by_turns(view: HistoryView) -> int:
    turns = view.values.window_turns
    if turns is None or len(view.cuts) <= turns:
        return 0
    return view.cuts[-max(1, int(view.values.compact_to * turns))]


def _smallest_tail(view: HistoryView, cuts: Sequence[int]) -> int:
    """Return the start of the last complete turn if it fits the limit.

    Otherwise returns the start of the longest run of newest messages that fits. Returns 0
    if there is no place to cut.
    """
    fitting = view.first_fitting(view.room.limit)
    return max(fitting, cuts[-1]) if cuts else 0


def _first_at_or_after(cuts: Sequence[int], place: int) -> int:
    return next((at for at in cuts if at >= place), _NO_CUT)


def _last_at_or_before(cuts: Sequence[int], place: int) -> int:
    return next((at for at in reversed(cuts) if at <= place), 0)


# Past every index: no turn starts late enough.
_NO_CUT = 1 << 62

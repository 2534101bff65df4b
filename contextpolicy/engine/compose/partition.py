"""Ensures that every prompt is a partition: each message is sent, or omitted for a reason.

The omitted messages are stored as ranges. Seqs have no gaps, so the check is arithmetic, and its
cost does not depend on the length of the history.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal, get_args

from contextpolicy.engine.messages.messages import Message, Summary
from contextpolicy.engine.messages.turn_groups import has_content

Range = tuple[int, int]
# The reasons of the engine and the built-in strategies; packages may add others.
Reason = Literal[
    "covered",
    "window",
    "excluded",
    "incomplete",
    "empty",
    "budget",
    "turn_split",
    "tool_parts",
    "state",
    "strategy",
    "duplicate_of_current",
    "not_seen",
    "history_provider",
]
REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A range of messages, both ends included, that is not in the prompt, and the reason.

    Reasons: `covered` (by the active summary), `window`, `excluded`, `incomplete`, `empty`
    (nothing to send), `budget`, `turn_split` (older steps of a turn that alone exceeds the
    limit), `tool_parts` (no text for a text layout), `state` (the state replaces it),
    `strategy` (of a composing strategy). In a team: `duplicate_of_current` (the newest
    message repeats it) and `not_seen` (written after this agent was called).
    `history_provider` (a package's provider did not return it), and the reasons that a
    package's strategy adds.
    """

    from_seq: int
    to_seq: int
    reason: str


class PartitionError(Exception):
    """A message of the branch would be sent twice, or is neither sent nor accounted for.

    This is a bug in the caller or in a strategy, never a problem of the chat. Nothing is sent.
    """

    code = "partition_broken"


@dataclass(frozen=True, slots=True)
class SortedOut:
    """The loaded messages, classified before any limit applies.

    `live` can be sent as history, `pins` are separate, `continued` is the truncated reply that is
    continued. `left` contains (seq, reason) for flagged and empty messages.
    """

    live: tuple[Message, ...]
    continued: Message | None
    pins: tuple[Message, ...]
    left: tuple[tuple[int, str], ...]


def classify_loaded_messages(
    *,
    history: Sequence[Message],
    pins: Sequence[Message],
    summary: Summary | None,
    window_to: int,
    goes_on: bool,
) -> SortedOut:
    """Classify loaded messages; skip those that the summary covers or the window omits.

    A pinned message among the skipped ones becomes a pin. With `goes_on`, a reply at the end of the
    history is returned as `continued`.
    """
    left = {
        message.seq: reason for message in pins if (reason := explain_unsendable_message(message))
    }
    apart = {message.seq: message for message in pins if message.seq not in left}
    live: list[Message] = []
    for message in history:
        hidden = message.seq <= window_to or is_covered_by_summary(summary, message.seq)
        if message.seq in apart or (hidden and not message.pinned):
            continue
        if reason := explain_unsendable_message(message):
            left[message.seq] = reason
        elif hidden:
            apart[message.seq] = message
        else:
            live.append(message)
    last_is_reply = bool(live) and live[-1].role == "assistant"
    continued = live.pop() if goes_on and last_is_reply else None
    in_order = tuple(apart[seq] for seq in sorted(apart))
    return SortedOut(tuple(live), continued, in_order, tuple(sorted(left.items())))


def exclude_hidden_messages(found: SortedOut, *, shows: Callable[[Message], bool]) -> SortedOut:
    """Leave out messages that the layout cannot represent, with the reason `tool_parts`."""
    hidden = [message for message in (*found.live, *found.pins) if not shows(message)]
    if not hidden:
        return found
    return SortedOut(
        tuple(filter(shows, found.live)),
        found.continued,
        tuple(filter(shows, found.pins)),
        (*found.left, *((message.seq, "tool_parts") for message in hidden)),
    )


def exclude_oversized_messages(
    found: SortedOut, *, is_oversized: Callable[[Message], bool]
) -> SortedOut:
    """Leave out history messages that do not fit into any prompt, with the reason `budget`.

    History has no gaps, so such a message would otherwise displace all messages before it.
    """
    gone = {message.seq for message in found.live if is_oversized(message)}
    if not gone:
        return found
    return SortedOut(
        tuple(message for message in found.live if message.seq not in gone),
        found.continued,
        found.pins,
        (*found.left, *((seq, "budget") for seq in sorted(gone))),
    )


def is_covered_by_summary(summary: Summary | None, seq: int) -> bool:
    """Return True if the summary covers the message."""
    return (
        summary is not None
        and summary.from_seq <= seq <= summary.to_seq
        and seq not in summary.exceptions
    )


def explain_unsendable_message(message: Message) -> str:
    """Return the reason why a message cannot be sent; empty if it can."""
    if message.left:
        return message.left
    if message.excluded:
        return "excluded"
    if message.incomplete:
        return "incomplete"
    return "" if has_content(message) else "empty"


@dataclass(frozen=True, slots=True)
class Account:
    """The ranges left out of a prompt, ascending, and the number of messages omitted by a limit."""

    left_out: tuple[LeftOut, ...]
    limited: int


# Messages that are left out for these reasons do not count as omitted by a limit.
_NO_LIMIT = frozenset(
    {"covered", "excluded", "incomplete", "empty", "turn_split", "duplicate_of_current", "not_seen"}
)


def account_for_messages(
    *,
    sent: Sequence[int],
    left: Iterable[tuple[int, str]],
    summary: Summary | None,
    summary_is_sent: bool,
    window_to: int,
    unloaded: Range | None,
    skipped: Sequence[Range] = (),
) -> Account:
    """Merge the decisions on single messages with the ranges of summary, window and loader.

    `sent` is ascending, `left` contains (seq, reason) pairs. A decision on a single message takes
    precedence over a range. `skipped`: ranges that a history provider omitted. If the summary is
    not sent, the messages that it covers are left out with the reason `budget`.
    """
    single = dict(left)
    known = sorted((*sent, *single))
    found: list[LeftOut] = []
    frontier = 0
    if summary is not None:
        span, holes = (summary.from_seq, summary.to_seq), sorted({*known, *summary.exceptions})
        reason = "covered" if summary_is_sent else "budget"
        found += [LeftOut(*part, reason) for part in split_range_around(span, holes)]
        frontier = summary.to_seq
    behind = [*_exceptions_behind(summary, window_to, known)]
    behind += split_range_around((frontier + 1, window_to), known)
    if unloaded is not None:
        start = max(unloaded[0], window_to + 1, frontier + 1)
        behind += split_range_around((start, unloaded[1]), known)
    found += [LeftOut(*part, "window") for part in behind]
    border = max(window_to, frontier)
    beyond = ((max(start, border + 1), end) for start, end in skipped)
    passed = [part for span in beyond for part in split_range_around(span, known)]
    found += [LeftOut(*part, "history_provider") for part in passed]
    for reason, seqs in groupby(sorted(single), key=single.__getitem__):
        found += [LeftOut(*part, reason) for part in group_seq_ranges(seqs)]
    limited = sum(last - first + 1 for first, last in (*behind, *passed))
    limited += sum(
        1
        for seq, reason in single.items()
        if reason not in _NO_LIMIT and not is_covered_by_summary(summary, seq)
    )
    return Account(tuple(sorted(found, key=lambda item: item.from_seq)), limited)


def _exceptions_behind(
    summary: Summary | None, window_to: int, known: Iterable[int]
) -> Iterator[Range]:
    """Yield the summary's exceptions that the window omits and that were not loaded."""
    exceptions = set(summary.exceptions if summary else ()) - set(known)
    return group_seq_ranges(seq for seq in sorted(exceptions) if seq <= window_to)


def group_seq_ranges(seqs: Iterable[int]) -> Iterator[Range]:
    """Group ascending seqs into ranges of consecutive ones."""
    first = last = None
    for seq in seqs:
        if first is None or last is None:
            first = last = seq
        elif seq == last + 1:
            last = seq
        else:
            yield first, last
            first = last = seq
    if first is not None and last is not None:
        yield first, last


def split_range_around(span: Range, holes: Iterable[int]) -> Iterator[Range]:
    """Yield the parts of a range between the `holes` (ascending; those outside it are ignored)."""
    start, end = span
    for hole in holes:
        if start <= hole <= end:
            if start < hole:
                yield start, hole - 1
            start = hole + 1
    if start <= end:
        yield start, end


def check_order(seqs: Iterable[int]) -> None:
    """Raise PartitionError unless the seqs of history messages ascend."""
    for seq, following in pairwise(seqs):
        if following <= seq:
            raise PartitionError(f"Message {following} stands behind {seq}. Load them in order.")


def check_partition(*, last_seq: int, sent: Iterable[int], left_out: Iterable[LeftOut]) -> None:
    """Check that sent and omitted messages together cover 1..`last_seq` without overlap.

    `sent` is ascending. Raises PartitionError, which names the first message that is missing or
    duplicated.
    """
    spans = sorted([*group_seq_ranges(sent), *((item.from_seq, item.to_seq) for item in left_out)])
    following = 1
    for start, end in spans:
        if start > following:
            raise PartitionError(
                f"Message {following} is neither sent nor left out for a reason. Load it or name "
                "its reason."
            )
        if start < following or end < start:
            raise PartitionError(f"Message {start} is accounted for more than once.")
        following = end + 1
    if following != last_seq + 1:
        raise PartitionError(
            f"The branch ends at message {last_seq}, the prompt accounts for {following - 1}."
        )

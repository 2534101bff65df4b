"""Places a prompt's cache breakpoints at the ends of prefixes that later prompts share.

Some servers cache a prompt only up to breakpoints that the request sets. They look for cached
prefixes at the breakpoints and a little before them. There are at most four breakpoints:

    tools, system ┃ summary, pins, history … earlier question ┃ … newest reply ┃
    tail, question ┃

The first stays valid after every summary. The second is where the previous prompt ended, if it had
no tail; the server finds it even if a turn added many messages since. The third is where the next
prompt's shared prefix ends, if there is a tail. The fourth is where that prefix ends without a
tail, and always within a turn with tools.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.segments import Origin, Segment

# Origins that differ in each prompt, and those that follow them. A block with any of them, because
# roles were joined or the layout is one text, differs too.
NEW: frozenset[Origin] = frozenset({"tail", "question", "continue", "step", "prefill"})

Piece = tuple[Sequence[Segment], int]


def place_cache_breakpoints(
    pieces: Sequence[Piece], messages: Sequence[WireMessage]
) -> tuple[int, ...]:
    """Return the message counts after which a breakpoint is placed, ascending and distinct.

    `pieces`: the segments of a prompt, each with its number of messages, in prompt order.
    """
    prefix = list(takewhile(lambda piece: all(s.origin not in NEW for s in piece[0]), pieces))
    fixed = takewhile(lambda piece: all(s.origin in {"system", "tools"} for s in piece[0]), prefix)
    origins = {segment.origin for segments, _ in pieces for segment in segments}
    places = [_messages(fixed), _earlier_question(prefix, messages), _messages(prefix)]
    if "tail" not in origins or "tools" in origins:
        places.append(_messages(pieces))
    return tuple(sorted({place for place in places if place}))


def _messages(pieces: Iterable[Piece]) -> int:
    return sum(count for _, count in pieces)


def _earlier_question(prefix: Sequence[Piece], messages: Sequence[WireMessage]) -> int:
    """Count the messages up to and including the newest user message in the history.

    0 if there is none.
    """
    end = _messages(prefix)
    for segments, count in reversed(prefix):
        is_history = any(segment.origin == "history" for segment in segments)
        if is_history and count and messages[end - 1].role == "user":
            return end
        end -= count
    return 0

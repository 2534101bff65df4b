"""Finds where a prompt has parts that later prompts begin with too.

Some servers keep what they have read only up to places that the request marks, and look for what
they kept before at such places, and a little before them. Four places serve:

    tools, system ┃ summary, pins, history … earlier question ┃ … newest reply ┃ tail, question ┃

The first outlives every summary. At the second the prompt before this one ended, if it had no tail;
it is found there although a turn may have brought many messages since. The third is where the next
prompt still begins alike, the last where it does without a tail; within a turn with tools it does
in any case.
"""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from contextpolicy.engine.messages import WireMessage
from contextpolicy.engine.segments import Origin, Segment

# What is another one in each prompt, and what follows it. A block that has some of it, because
# roles were joined or because the layout is one text, is another one too.
NEW: frozenset[Origin] = frozenset({"tail", "question", "continue", "step"})

Piece = tuple[Sequence[Segment], int]


def cache_marks(pieces: Sequence[Piece], messages: Sequence[WireMessage]) -> tuple[int, ...]:
    """Return after how many messages such a part ends, each place once, ascending.

    `pieces`: the segments of a prompt with the number of messages that they make, in prompt order.
    """
    lead = list(takewhile(lambda piece: all(s.origin not in NEW for s in piece[0]), pieces))
    fixed = takewhile(lambda piece: all(s.origin in {"system", "tools"} for s in piece[0]), lead)
    origins = {segment.origin for segments, _ in pieces for segment in segments}
    places = [_messages(fixed), _earlier_question(lead, messages), _messages(lead)]
    if "tail" not in origins or "tools" in origins:
        places.append(_messages(pieces))
    return tuple(sorted({place for place in places if place}))


def _messages(pieces: Iterable[Piece]) -> int:
    return sum(count for _, count in pieces)


def _earlier_question(lead: Sequence[Piece], messages: Sequence[WireMessage]) -> int:
    """Count the messages up to the newest one of a person in the history; 0 if there is none."""
    end = _messages(lead)
    for segments, count in reversed(lead):
        is_history = any(segment.origin == "history" for segment in segments)
        if is_history and count and messages[end - 1].role == "user":
            return end
        end -= count
    return 0

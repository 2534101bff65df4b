"""Adds the days of messages to a prompt, so that the model can resolve "yesterday".

A line with the day precedes the first message in the history and each message that begins a turn on
another day. Message texts and earlier lines never change, so the provider's cache applies. A
message without a `day` gets no line.
"""

from collections.abc import Iterable

from contextpolicy.engine.messages.messages import Message


def find_day_starts(messages: Iterable[Message]) -> frozenset[int]:
    """Return the seqs of the messages that get a day line, from an ascending list.

    The messages of one turn share the day of its first message.
    """
    found = set()
    day = turn = ""
    for message in messages:
        is_same_turn = bool(message.turn) and message.turn == turn
        if message.day and message.day != day and not (day and is_same_turn):
            found.add(message.seq)
            day = message.day
        turn = message.turn
    return frozenset(found)

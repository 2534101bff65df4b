"""Finds the times of imported messages.

Many exports contain times for only some messages, or for none.

A message without a time has the time of the previous message. Before the first known time, and in
a chat without any time, messages are undated: no prompt and no summary states a day for them.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from chats.exchange.drafts import Node

# Earlier times are treated as missing.
EARLIEST = datetime(1990, 1, 1, tzinfo=UTC)


class MessageTime(NamedTuple):
    """The time of a message. `is_known` is False if `at` only orders the message."""

    at: datetime
    is_known: bool


def parse_message_time(ts: object, *, now: datetime) -> datetime | None:
    """Return a time in milliseconds since 1970; None if it is missing, invalid or after `now`."""
    if isinstance(ts, bool) or not isinstance(ts, int | float):
        return None
    try:
        moment = datetime.fromtimestamp(ts / 1000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return moment if EARLIEST <= moment <= now else None


def resolve_message_times(nodes: Iterable[Node], *, now: datetime) -> dict[str, MessageTime]:
    """Return the times of a chat's messages by id. `nodes`: all of them, parents first.

    An undated message has the earliest time of the chat, or `now` if the chat has no times.
    """
    found: dict[str, datetime | None] = {}
    for node in nodes:
        own = parse_message_time(node.metadata.get("ts"), now=now)
        found[node.id] = own or (found.get(node.parent) if node.parent is not None else None)
    first = min((at for at in found.values() if at is not None), default=now)
    return {own_id: MessageTime(at or first, at is not None) for own_id, at in found.items()}

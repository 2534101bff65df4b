"""Loads messages as engine values, newest first and only as many as a prompt can hold.

The only place that converts stored messages to engine values. Pages grow, so the number of queries
depends on the window, not on the length of the chat.
"""

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from chats.models import Branch, Message
from chats.record import statements
from chats.record.zones import format_local_day
from contextpolicy.engine.history.entries import estimate_sendable_tokens
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter, count_uncut_tokens
from contextpolicy.engine.policy.policy import PolicyValues

FIRST_PAGE = 200
PAGE_GROWTH = 4
# The number of very large messages after which loading stops.
MOST_LARGE = 20


@dataclass(frozen=True, slots=True)
class PathSegment:
    """The part of a path on one branch: messages with `after` < seq ≤ `to`."""

    branch_id: uuid.UUID
    after: int
    to: int

    def contains(self, branch_id: uuid.UUID, seq: int) -> bool:
        """Return True if the message with this seq on this branch is in this part."""
        return branch_id == self.branch_id and self.after < seq <= self.to


@dataclass(frozen=True, slots=True)
class Loaded:
    """The newest part of a history, ascending, and the earlier range that was not loaded."""

    messages: tuple[engine.Message, ...]
    unloaded: tuple[int, int] | None


def list_path_segments(branch: Branch) -> list[PathSegment]:
    """Return the branch's path from its end to the root: one segment per branch."""
    path = []
    to = branch.last_seq
    node: Branch | None = branch
    while node is not None:
        path.append(PathSegment(branch_id=node.pk, after=min(node.fork_seq, to), to=to))
        to = min(node.fork_seq, to)
        node = node.parent
    return path


def select_path_messages(branch: Branch, *, after: int, before: int) -> QuerySet[Message]:
    """Return the messages on the branch's path with `after` < seq < `before`."""
    parts = list_path_pieces(branch, after=after, before=before)
    return statements.filter_by_pieces(parts) if parts else Message.objects.none()


def select_step_messages(turn_id: uuid.UUID) -> QuerySet[Message]:
    """Return the stored steps of a turn in order: one assistant message each."""
    rows = Message.objects.filter(turn=turn_id, role=Message.Role.ASSISTANT, seq__isnull=False)
    return rows.order_by("seq")


def list_path_pieces(branch: Branch, *, after: int, before: int) -> list[tuple[Any, Any, Any]]:
    """Return the path between two seqs as pieces (branch id, seq before the first, last seq)."""
    pieces = [
        (part.branch_id, max(part.after, after), min(part.to, before - 1))
        for part in list_path_segments(branch)
    ]
    return [piece for piece in pieces if piece[1] < piece[2]]


def load_newest_messages(
    branch: Branch,
    *,
    after: int,
    before: int,
    values: PolicyValues,
    counter: TokenCounter,
    tokens: int,
    most: int | None,
    zone: str = "",
) -> Loaded:
    """Load the newest messages with `after` < seq < `before`, up to `tokens` or `most` messages.

    Stops at the message with which `measure_loading_cost` adds up to `tokens`.
    """
    taken: list[engine.Message] = []
    room = tokens
    for row in iter_newest_first(branch, after=after, before=before):
        if room <= 0 or (most is not None and len(taken) >= most):
            break
        message = build_engine_message(row, counter=counter, zone=zone)
        taken.append(message)
        room -= measure_loading_cost(message, values=values, tokens=tokens)
    taken.reverse()
    first = taken[0].seq if taken else before
    return Loaded(
        messages=tuple(taken), unloaded=(after + 1, first - 1) if first > after + 1 else None
    )


def measure_loading_cost(message: engine.Message, *, values: PolicyValues, tokens: int) -> int:
    """Return the number of a prompt's `tokens` that a loaded message uses.

    This is the token count of the message as the policy would send it. A message larger than half
    the prompt counts less: the prompt may leave it out, and then has room for older messages.
    """
    size = estimate_sendable_tokens(message, values=values)
    return size if size <= tokens // 2 else max(tokens // MOST_LARGE, 1)


def iter_newest_first(branch: Branch, *, after: int, before: int) -> Iterator[Message]:
    """Yield the messages between two seqs, newest first, in growing pages."""
    size = FIRST_PAGE
    while parts := list_path_pieces(branch, after=after, before=before):
        found = statements.build_history_query(len(parts), size).rows(
            **statements.name_values(parts)
        )
        yield from found
        if len(found) < size:
            return
        before = found[-1].seq or 0
        size *= PAGE_GROWTH


def load_pinned(branch: Branch, *, before: int) -> list[Message]:
    """Return the pinned messages below a seq, oldest first."""
    parts = list_path_pieces(branch, after=0, before=before)
    return (
        statements.build_pinned_query(len(parts)).rows(**statements.name_values(parts))
        if parts
        else []
    )


def build_engine_message(row: Message, *, counter: TokenCounter, zone: str = "") -> engine.Message:
    """Return the row as an engine value.

    Uses the stored token count, or counts the tokens if none is stored. `zone` is the time
    zone for the message's date, such as "Europe/Berlin". Empty: no date. An undated message
    has no time and no date.
    """
    parts = engine.parse_parts(row.parts)
    tokens = row.token_count
    if tokens is None:
        tokens = count_uncut_tokens(parts, get_engine_role(row), counter)
    return engine.Message(
        id=str(row.pk),
        seq=row.seq or 0,
        role=get_engine_role(row),
        parts=parts,
        tokens=tokens,
        speaker=(row.speaker or {}).get("roleName", ""),
        role_id=(row.speaker or {}).get("roleId", ""),
        addressees=tuple(row.addressees),
        turn=str(row.turn_id or ""),
        pinned=row.pinned_at is not None,
        excluded=row.excluded,
        incomplete=row.is_incomplete,
        created_at="" if row.undated else row.created_at.isoformat(timespec="seconds"),
        day=format_local_day(zone, row.created_at) if zone and not row.undated else "",
    )


def get_engine_role(row: Message) -> engine.Role:
    return "user" if row.role == Message.Role.USER else "assistant"


def load_all(
    rows: Iterable[Message], *, counter: TokenCounter, zone: str = ""
) -> tuple[engine.Message, ...]:
    """Return all rows as values, in order, with their dates in a time zone."""
    return tuple(build_engine_message(row, counter=counter, zone=zone) for row in rows)

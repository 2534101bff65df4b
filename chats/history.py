"""Rows to engine values, newest first and only as many as a prompt can hold.

The one place where a stored message becomes a value. Pages grow, so that the number of queries
follows the window and never the length of the chat.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db.models import Q, QuerySet

from chats.models import Branch, Message
from contextpolicy import prepared
from contextpolicy.engine import messages as engine
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter, message_tokens
from contextpolicy.engine.toolrules import result_limit

FIRST_PAGE = 200
PAGE_GROWTH = 4


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a path that one branch holds: seqs `after` < seq ≤ `to`."""

    branch_id: uuid.UUID
    after: int
    to: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The newest part of a history, ascending, and the range before it that was not read."""

    messages: tuple[engine.Message, ...]
    unloaded: tuple[int, int] | None


def segments(branch: Branch) -> list[Segment]:
    """The branch's path from its end to the root: one segment per branch on it."""
    path = []
    to = branch.last_seq
    node: Branch | None = branch
    while node is not None:
        path.append(Segment(branch_id=node.pk, after=min(node.fork_seq, to), to=to))
        to = min(node.fork_seq, to)
        node = node.parent
    return path


def on_path(branch: Branch, *, after: int, before: int) -> QuerySet[Message]:
    """The messages of the branch's path with `after` < seq < `before`."""
    parts = within(branch, after=after, before=before)
    return in_parts(parts) if parts else Message.objects.none()


def within(branch: Branch, *, after: int, before: int) -> list[tuple[Any, Any, Any]]:
    """The pieces of the path between the two seqs: branch id, seq above, last seq."""
    pieces = [
        (part.branch_id, max(part.after, after), min(part.to, before - 1))
        for part in segments(branch)
    ]
    return [piece for piece in pieces if piece[1] < piece[2]]


def in_parts(parts: Sequence[tuple[Any, Any, Any]]) -> QuerySet[Message]:
    """The messages of the pieces of a path, at least one."""
    inside = Q()
    for branch_id, above, last in parts:
        inside |= Q(branch_id=branch_id, seq__gt=above, seq__lte=last)
    return Message.objects.filter(inside)


def load(
    branch: Branch,
    *,
    after: int,
    before: int,
    values: PolicyValues,
    counter: TokenCounter,
    tokens: int,
    most: int | None,
) -> Loaded:
    """The newest messages with `after` < seq < `before`: until `tokens` are reached or `most` read.

    A message counts for what the policy would let it send, so that one huge message does not
    hide the small ones before it.
    """
    taken: list[engine.Message] = []
    room = tokens
    for row in newest_first(branch, after=after, before=before):
        if room <= 0 or (most is not None and len(taken) >= most):
            break
        message = to_engine(row, counter=counter)
        taken.append(message)
        room -= sendable_tokens(message, values=values)
    taken.reverse()
    first = taken[0].seq if taken else before
    return Loaded(
        messages=tuple(taken), unloaded=(after + 1, first - 1) if first > after + 1 else None
    )


def newest_first(branch: Branch, *, after: int, before: int) -> Iterator[Message]:
    """The messages between the two seqs by falling seq, in growing pages."""
    size = FIRST_PAGE
    while parts := within(branch, after=after, before=before):
        named = zip(_names(len(parts)), parts, strict=True)
        values = {n: v for names, part in named for n, v in zip(names, part, strict=True)}
        found = _page(len(parts), size).rows(**values)
        yield from found
        if len(found) < size:
            return
        before = found[-1].seq or 0
        size *= PAGE_GROWTH


def _names(parts: int) -> list[tuple[str, str, str]]:
    return [(f"branch{n}", f"above{n}", f"last{n}") for n in range(parts)]


# What a value is made of: of twenty columns those that a prompt of hundreds of messages needs.
_COLUMNS = (
    "seq",
    "role",
    "parts",
    "token_count",
    "speaker",
    "turn",
    "pinned_at",
    "excluded",
    "finish",
    "kept",
    "created_at",
)


@cache
def _page(parts: int, size: int) -> prepared.Select[Message]:
    """The newest `size` messages of so many pieces of a path."""

    def build(at: prepared.At) -> QuerySet[Message]:
        places = [(at(branch), at(above), at(last)) for branch, above, last in _names(parts)]
        return in_parts(places).only(*_COLUMNS).order_by("-seq")[:size]

    return prepared.Select(build)


def sendable_tokens(message: engine.Message, *, values: PolicyValues) -> int:
    """At most how many tokens the message costs after the policy's cuts; never more than stored."""
    shows_tools = values.layout == "multi_turn"
    characters = 0
    for part in message.parts:
        if isinstance(part, engine.TextPart):
            characters += min(len(part.text), values.max_chars_per_message or len(part.text))
        elif not shows_tools:
            continue
        elif isinstance(part, engine.ToolResultPart):
            characters += min(len(part.content), result_limit(values, part.name))
        elif isinstance(part, engine.ToolCallPart):
            characters += len(part.name) + len(part.arguments)
    # No token is shorter than a third of a character, and each part has its own overhead.
    return min(message.tokens, 3 * characters + 16 * len(message.parts))


def to_engine(row: Message, *, counter: TokenCounter) -> engine.Message:
    """The row as a value; the count is stored with it unless the row came without one."""
    parts = engine.parts_from_json(row.parts)
    tokens = row.token_count
    if tokens is None:
        tokens = message_tokens(parts, engine_role(row), counter)
    return engine.Message(
        id=str(row.pk),
        seq=row.seq or 0,
        role=engine_role(row),
        parts=parts,
        tokens=tokens,
        speaker=(row.speaker or {}).get("roleName", ""),
        turn=str(row.turn_id or ""),
        pinned=row.pinned_at is not None,
        excluded=row.excluded,
        incomplete=row.is_incomplete,
        created_at=row.created_at.isoformat(timespec="seconds"),
    )


def engine_role(row: Message) -> engine.Role:
    """The row's role as the engine spells it."""
    return "user" if row.role == Message.Role.USER else "assistant"


def load_all(rows: Iterable[Message], *, counter: TokenCounter) -> tuple[engine.Message, ...]:
    """Every given row as a value, in the given order."""
    return tuple(to_engine(row, counter=counter) for row in rows)

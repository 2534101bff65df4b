"""Prepared statements for reading stored messages and for row locks, used by each reply."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.db.models import Q, QuerySet

from chats.models import Branch, Chat, IdempotencyRecord, Message, Receipt, Turn, TurnReference
from chats.record.sendable import build_sendable_filter
from speed import placeholders, prepared


def filter_by_pieces(parts: Sequence[tuple[Any, Any, Any]]) -> QuerySet[Message]:
    """Return the messages on a path, given as pieces. At least one piece is required."""
    inside = Q()
    for branch_id, above, last in parts:
        inside |= Q(branch_id=branch_id, seq__gt=above, seq__lte=last)
    return Message.objects.filter(inside)


def list_piece_parameters(parts: int) -> list[tuple[str, str, str]]:
    """Return three parameter names for each piece: branch, seq before the first, last seq."""
    return [(f"branch{n}", f"above{n}", f"last{n}") for n in range(parts)]


CHAT_LOCK = prepared.Lock(
    lambda at: Chat.objects.select_for_update(no_key=True).filter(pk=at("chat")).values_list("pk")
)


CHAT_TO_WRITE = prepared.Select(
    lambda at: Chat.objects.select_related("active_branch", "model").filter(
        pk=at("chat"), deleted_at=None
    )
)


LOCKED_CHAT = prepared.Select(
    lambda at: Chat.objects.select_for_update(no_key=True).filter(
        pk__in=Branch.objects.filter(turns=at("turn")).values("chat")
    )
)


BRANCH_LOCK = prepared.Lock(
    lambda at: (
        Branch.objects.select_for_update(no_key=True)
        .filter(pk__in=Turn.objects.filter(pk=at("turn")).values("branch"))
        .values_list("pk")
    )
)


WAITING_MESSAGES = prepared.Select(
    lambda at: Message.objects.filter(branch=at("branch"), seq=None, erased_at=None).order_by(
        "accepted"
    )
)


FIRST_WAITING = prepared.Select(
    lambda at: Message.objects.filter(branch=at("branch"), seq=None, erased_at=None).values_list(
        "pk"
    )[:1]
)


# The columns that an engine value needs: thirteen of 21, for prompts with hundreds of messages.
HISTORY_COLUMNS = (
    "seq",
    "role",
    "parts",
    "token_count",
    "speaker",
    "addressees",
    "turn",
    "pinned_at",
    "excluded",
    "finish",
    "kept",
    "created_at",
    "undated",
)


# A path has as many pieces as the branches that it crosses, so their number has no limit.
@lru_cache(maxsize=64)
def build_history_query(parts: int, size: int) -> prepared.Select[Message]:
    """Return the query for the newest `size` messages on a path of `parts` pieces."""

    def build(at: placeholders.At) -> QuerySet[Message]:
        places = [
            (at(branch), at(above), at(last))
            for branch, above, last in list_piece_parameters(parts)
        ]
        return filter_by_pieces(places).only(*HISTORY_COLUMNS).order_by("-seq")[:size]

    return prepared.Select(build)


@lru_cache(maxsize=64)
def build_pinned_query(parts: int) -> prepared.Select[Message]:
    """Return the query for the pinned messages on a path of `parts` pieces, oldest first."""

    def build(at: placeholders.At) -> QuerySet[Message]:
        places = [
            (at(branch), at(above), at(last))
            for branch, above, last in list_piece_parameters(parts)
        ]
        return filter_by_pieces(places).filter(pinned_at__isnull=False).order_by("seq")

    return prepared.Select(build)


def name_values(parts: Sequence[tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Map the parameter names of a path's pieces to their values."""
    names = zip(list_piece_parameters(len(parts)), parts, strict=True)
    return {name: value for each, part in names for name, value in zip(each, part, strict=True)}


OWN_CHAT = prepared.Select(
    lambda at: Chat.objects.select_related("model").filter(
        pk=at("chat"), owner_id=at("owner"), deleted_at=None
    )
)


VISIBLE_TURN = prepared.Select(
    lambda at: Turn.objects.filter(
        pk=at("turn"),
        branch__chat_id=at("chat"),
        branch__chat__owner_id=at("owner"),
        branch__chat__deleted_at=None,
    ).values_list("pk")
)


OWN_TURN = prepared.Select(
    lambda at: Turn.objects.filter(
        pk=at("turn"), branch__chat__owner_id=at("owner"), branch__chat__deleted_at=None
    ).values_list("pk")
)


CALLS = prepared.Select(
    lambda at: (
        Receipt.objects.filter(turn=at("turn"), attempt=at("attempt"))
        .order_by("step", "call")
        .values_list("pk", "commitment", "body_sha256", "salt")
    )
)


# The excerpts of a turn that may still be sent, in order, with the columns that a prompt shows.
REFERENCED_TEXTS = prepared.Select(
    lambda at: (
        TurnReference.objects.filter(
            build_sendable_filter("message__"),
            turn=at("turn"),
            message__branch__chat__owner=at("owner"),
            message__branch__chat__deleted_at=None,
        )
        .order_by("place")
        .values_list(
            "start",
            "end",
            "message__role",
            "message__speaker",
            "message__created_at",
            "message__undated",
            "message__parts",
        )
    )
)


# The three columns are unique together.
STORED_RESPONSE = prepared.Select(
    lambda at: IdempotencyRecord.objects.filter(owner=at("owner"), route=at("route"), key=at("key"))
)

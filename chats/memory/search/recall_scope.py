"""The user's chats that a search covers, as filters of the index."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from django.db import connection
from django.db.models import Q, QuerySet

from chats.memory.search import fulltext
from chats.memory.search.words import split_words
from chats.models import Chat, SearchPlace
from chats.models.search import SEQ_BITS

ScopeKind = Literal["chat", "folder", "person"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The chats to search, and filters for their messages.

    `kind`: `chat` or `folder`, each with an `id`, or `person` for all chats of the owner. `unfiled`
    limits `person` to chats without a folder. `role`: `user` or `assistant`. `speaker`: the id or
    name of a role. `chat`: search only this chat. `after` and `before`: times; only `after` is
    included. `for_others`: only chats whose memory setting, or that of their folder, lets other
    chats use them.
    """

    kind: ScopeKind = "person"
    id: uuid.UUID | None = None
    unfiled: bool = False
    role: str = ""
    speaker: str = ""
    chat: uuid.UUID | None = None
    before: datetime | None = None
    after: datetime | None = None
    for_others: bool = False


def build_scope_filter(owner_id: int, scope: Scope) -> Q:
    """Return the filter for the owner's chats in a scope, neither deleted nor temporary."""
    found = Q(owner=owner_id, deleted_at=None, temporary=False)
    if scope.kind == "chat":
        found &= Q(pk=scope.id)
    elif scope.kind == "folder":
        found &= Q(folder=scope.id)
    elif scope.unfiled:
        found &= Q(folder=None)
    if scope.for_others:
        found &= Q(without_memory=False)
        found &= Q(folder=None) | Q(folder__without_memory=False)
    return found & Q(pk=scope.chat) if scope.chat else found


def select_private_chats(owner_id: int) -> QuerySet[Chat]:
    """Return the owner's chats that their memory setting, or that of their folder, closes."""
    closed = Q(without_memory=True) | Q(folder__without_memory=True)
    return Chat.objects.filter(closed, owner=owner_id)


def build_scope_condition(scope: Scope) -> fulltext.Statement:
    """Return the SQL condition for times and speaker, beginning with `AND`."""
    parts: list[str] = []
    values: list[Any] = []
    adapted = connection.ops.adapt_datetimefield_value
    for moment, sign in ((scope.after, ">="), (scope.before, "<")):
        if moment is not None:
            parts.append(f" AND chats_searchtext.written_at {sign} %s")
            values.append(adapted(moment))
    if scope.speaker:
        parts.append(" AND chats_searchtext.speaker = %s")
        values.append(" ".join(split_words(scope.speaker)[1])[:200])
    return "".join(parts), values


def build_chats_condition(chats: QuerySet[Chat], *, is_without: bool = False) -> fulltext.Statement:
    """Return the SQL condition for texts of these chats, or of others, beginning with `AND`."""
    places = SearchPlace.objects.filter(branch__chat__in=chats).order_by().values("pk")
    inside, values = places.query.get_compiler(connection=connection).as_sql()
    which = "NOT IN" if is_without else "IN"
    return f" AND chats_searchtext.id >> {SEQ_BITS} {which} ({inside})", list(values)

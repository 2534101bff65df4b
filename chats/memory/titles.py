"""Finds chats by their titles, also by the middle of a word."""

import uuid

from django.db.models import CharField
from django.db.models.functions import Cast

from chats.memory.recall import Scope, in_scope
from chats.memory.words import spans, stops
from chats.models import Chat

# The chats whose titles are looked at, those used last; the same on both databases, which fold
# letters in ways of their own.
MOST_LOOKED_AT = 2_000


def titled(owner_id: int, question: str, *, scope: Scope, most: int) -> list[Chat]:
    """Return a person's chats whose titles have every telling word of a question, newest first.

    None where the scope asks for what only a message has: a role, a speaker, a time.
    """
    found = spans(question)
    wanted = {word.full or word.stem for word in found if word.stem not in stops()}
    wanted = wanted or {word.full or word.stem for word in found}
    if not wanted or scope.role or scope.speaker or scope.before or scope.after:
        return []
    rows = Chat.objects.filter(in_scope(owner_id, scope)).exclude(title="")
    # As texts: of thousands of ids, a few are made into such.
    titles = rows.annotate(key=Cast("pk", CharField())).values_list("key", "title")
    newest = titles.order_by("-updated_at", "-pk")[:MOST_LOOKED_AT]
    ids = [uuid.UUID(key) for key, title in newest if has_all(title, wanted)][:most]
    chats = {chat.pk: chat for chat in Chat.objects.filter(pk__in=ids).select_related("folder")}
    return [chats[pk] for pk in ids if pk in chats]


def has_all(title: str, wanted: set[str]) -> bool:
    """Tell whether a title has each of some folded words, in whole or inside another."""
    plain = title.casefold()
    if all(word in plain for word in wanted):
        return True
    # Its words are what stands there: no mark to be folded, no sign within a word.
    if plain.isascii() and plain.replace(" ", "").isalnum():
        return False
    folded = " ".join(word.full or word.stem for word in spans(title))
    return all(word in folded for word in wanted)

"""Finds chats by title, including matches inside a word."""

import uuid
from functools import reduce
from operator import or_

from django.db.models import CharField, Q
from django.db.models.functions import Cast

from chats.memory.search.recall_scope import Scope, build_scope_filter
from chats.memory.search.words import Word, find_words, load_stop_words
from chats.models import Chat

# Maximum titles compared in Python, most recently used first, because the databases fold case
# differently. They compare the titles of chats that were used earlier.
MOST_LOOKED_AT = 2_000


def find_chats_by_title(owner_id: int, question: str, *, scope: Scope, most: int) -> list[Chat]:
    """Return a user's chats whose titles contain every significant word, newest first.

    Empty for filters that only apply to messages: role, speaker, time.
    """
    found = find_words(question)
    telling = [word for word in found if word.stem not in load_stop_words()] or found
    wanted = {word.full or word.stem for word in telling}
    if not wanted or scope.role or scope.speaker or scope.before or scope.after:
        return []
    rows = Chat.objects.filter(build_scope_filter(owner_id, scope)).exclude(title="")
    # The ids are strings, because only a few of thousands become UUID objects.
    titles = rows.annotate(key=Cast("pk", CharField())).values_list("key", "title")
    newest = titles.order_by("-updated_at", "-pk")[:MOST_LOOKED_AT]
    known = list(newest)
    ids = [uuid.UUID(key) for key, title in known if has_all_words(title, wanted)][:most]
    if len(known) == MOST_LOOKED_AT and len(ids) < most:
        alike = titles.filter(*(build_spelling_filter(word, question) for word in telling))
        seen = {key for key, _ in known}
        # Of the newest titles, those in `ids` match too.
        older = alike.order_by("-updated_at", "-pk")[: len(known) + most]
        more = (key for key, title in older if key not in seen and has_all_words(title, wanted))
        ids = [*ids, *map(uuid.UUID, more)][:most]
    chats = {chat.pk: chat for chat in Chat.objects.filter(pk__in=ids).select_related("folder")}
    return [chats[pk] for pk in ids if pk in chats]


def build_spelling_filter(word: Word, question: str) -> Q:
    """Return a condition for titles that contain a word in its typed form or without accents.

    SQLite ignores the case of ASCII letters only, so the usual spellings are compared too.
    """
    typed = question[word.start : word.end]
    spellings = {word.full or word.stem, typed, typed.lower(), typed.capitalize(), typed.upper()}
    return reduce(or_, (Q(title__icontains=one) for one in sorted(spellings)))


def has_all_words(title: str, wanted: set[str]) -> bool:
    """Return True if a title contains all given case-folded words, even inside longer words."""
    plain = title.casefold()
    if all(word in plain for word in wanted):
        return True
    # Pure ASCII words need no folding.
    if plain.isascii() and plain.replace(" ", "").isalnum():
        return False
    folded = " ".join(word.full or word.stem for word in find_words(title))
    return all(word in folded for word in wanted)

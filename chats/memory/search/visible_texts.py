"""Reads the texts that a search found, and leaves out those that may not be shown."""

import uuid
from collections.abc import Collection, Iterator, Sequence

from django.db.models import F, Q, QuerySet

from chats.memory.search import fulltext, searchable_text
from chats.memory.search.finding import FoundText
from chats.memory.search.recall_scope import Scope, build_scope_filter
from chats.memory.search.words import split_words
from chats.models import Branch, Chat, Message, SearchText
from chats.models.search import SUMMARY_SEQ

# Maximum results checked for visibility, page by page.
MOST_LOOKED_AT = 1_000
PAGE = 25
# The columns of an excerpt: a row of all columns takes three times as long to read.
OF_A_TEXT = (
    "written_at",
    "message",
    "summary",
    "message__branch",
    "message__seq",
    "message__role",
    "message__parts",
    "message__speaker",
    "message__undated",
)


def iterate_visible_texts(
    owner_id: int,
    found: Sequence[FoundText],
    *,
    scope: Scope,
    page: int = PAGE,
    leave_out: Collection[uuid.UUID] = (),
    is_typed: bool = False,
) -> Iterator[tuple[SearchText, FoundText]]:
    """Yield the visible ones of the texts found, in order.

    They are read page by page, as the caller uses them.
    """
    for start in range(0, min(len(found), MOST_LOOKED_AT), page):
        some = found[start : start + page]
        rows = load_visible_texts(owner_id, [text.id for text in some], scope=scope)
        for text in some:
            row = rows.get(text.id)
            if row is None or row.message_id in leave_out or (is_typed and not text.shared):
                continue
            yield row, text


def load_visible_texts(owner_id: int, ids: Sequence[int], *, scope: Scope) -> dict[int, SearchText]:
    """Return the visible texts with messages and chats, by id.

    Filters by owner again, and leaves out withdrawn and outdated texts.
    """
    chats = Chat.objects.filter(build_scope_filter(owner_id, scope))
    texts = apply_scope_filters(SearchText.objects.filter(pk__in=list(ids)), scope)
    of_message = Q(message__branch__chat__in=chats, message__excluded=False)
    of_message &= Q(message__erased_at=None)
    active = Q(summary=F("summary__branch__active_compaction"))
    active |= Q(summary=F("summary__branch__active_compaction__base"))
    of_summary = Q(summary__branch__chat__in=chats, summary__erased_at=None) & active
    rows = texts.filter(of_message).select_related("message").only(*OF_A_TEXT)
    found = {row.pk: row for row in rows}
    attach_branches([row.message for row in found.values() if row.message])
    rest = [key for key in ids if key not in found and key & SUMMARY_SEQ == SUMMARY_SEQ]
    if rest:
        summaries = texts.filter(of_summary, pk__in=rest)
        found |= {row.pk: row for row in summaries.select_related("summary__branch__chat")}
    return found


def attach_branches(messages: Sequence[Message]) -> None:
    """Set the branches of messages, with their chats. Messages of one branch share one object."""
    ids = {message.branch_id for message in messages}
    branches = Branch.objects.select_related("chat").in_bulk(ids)
    for message in messages:
        message.branch = branches[message.branch_id]


def apply_scope_filters(texts: QuerySet[SearchText], scope: Scope) -> QuerySet[SearchText]:
    """Apply a scope's filters to texts, including neighbours that were read without them."""
    if scope.role:
        texts = texts.filter(
            keys__endswith=fulltext.KEY + searchable_text.build_role_key(scope.role)
        )
    if scope.speaker:
        texts = texts.filter(speaker=" ".join(split_words(scope.speaker)[1])[:200])
    if scope.before is not None:
        texts = texts.filter(written_at__lt=scope.before)
    if scope.after is not None:
        texts = texts.filter(written_at__gte=scope.after)
    return texts

"""Writes the search index: each message of a branch, and its active summary.

Adding and removing lock the same row, the branch's `SearchPlace`, so that neither misses the
other's changes. Temporary chats and chats whose policy closes the archive have no index.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError
from django.db.models import Q, QuerySet

from chats.memory.search import fulltext, searchable_text, vectors
from chats.memory.search.index_progress import (
    get_branch_summary,
    is_summary_indexed,
    list_unindexed_segments,
)
from chats.memory.search.searchable_text import (
    MOST_CHARACTERS,
    build_search_keys,
    build_word_fields,
)
from chats.memory.search.words import VERSION
from chats.models import Branch, Message, SearchCount, SearchPlace, SearchText
from chats.models.search import SUMMARY_SEQ
from speed.commits import unflushed_transaction

logger = logging.getLogger(__name__)
# Messages per transaction, which blocks SQLite's only writer for about 10 ms.
BATCH = 10
# A pause of this length starts a new session.
SILENCE = timedelta(hours=1)
# Errors of indexing a branch that was erased in between: its row is missing, now or at the commit.
BRANCH_GONE = (IntegrityError, Branch.DoesNotExist, SearchPlace.DoesNotExist)


def index_branch(branch: Branch) -> int:
    """Index the messages of a branch's path. Return the number of added texts.

    Running it again adds only new ones. Each branch on the path has a separate index.
    """
    return sum(index_branch_batches(branch))


def index_branch_batches(branch: Branch) -> Iterator[int]:
    """Index the rest of a path in batches; yield the number of texts in each."""
    if branch.chat.temporary:
        return
    for part in list_unindexed_segments(branch):
        while True:
            added = index_batch(part.branch_id, to=part.to)
            if added is None:
                break
            yield added
    if not is_summary_indexed(branch):
        yield index_summary(branch)


def index_batch(branch_id: uuid.UUID, *, to: int) -> int | None:
    """Index some messages of a branch up to a seq. Return None once all are indexed.

    Words are extracted before the transaction, which then checks for erased messages and concurrent
    tasks. Words of an older version are replaced.
    """
    place = SearchPlace.objects.filter(branch=branch_id).first()
    if place is not None and place.closed:
        return None
    after = place.to_seq if place and place.version == VERSION else 0
    rows = Message.objects.filter(branch=branch_id, seq__gt=after, seq__lte=to)
    found = list(rows.select_related("branch__chat").order_by("seq")[:BATCH])
    if not found:
        if place is not None and place.version != VERSION:
            mark_index_current(branch_id)
        return None
    texts = [searchable_text.build_indexed_text(row) for row in found]
    try:
        with unflushed_transaction():
            place = lock_search_place(branch_id)
            now_after = place.to_seq if place.version == VERSION else 0
            if now_after != after or place.closed:
                return 0
            return add_search_texts(place, found, texts)
    except BRANCH_GONE:
        logger.info("branch %s was deleted during indexing", branch_id)
        return None


def mark_index_current(branch_id: uuid.UUID) -> None:
    """Restart the index of a branch at its first message, in the current version."""
    SearchPlace.objects.filter(branch=branch_id).update(version=VERSION, to_seq=0)


def lock_search_place(branch_id: uuid.UUID) -> SearchPlace:
    """Return a branch's `SearchPlace`, created if missing and locked until the transaction ends."""
    rows = SearchPlace.objects
    made, is_new = rows.get_or_create(branch_id=branch_id)
    return made if is_new else rows.select_for_update(no_key=True).get(pk=made.pk)


def add_search_texts(
    place: SearchPlace, rows: Sequence[Message], texts: Sequence[SearchText]
) -> int:
    """Index the texts of messages, except those withdrawn since, and count their words.

    Replaces texts of an older version.
    """
    living = Message.objects.filter(pk__in=[row.pk for row in rows], erased_at=None, excluded=False)
    wanted = set(living.values_list("pk", flat=True))
    new = place_texts(place, rows, texts, talk=find_previous_session(place, rows[0]), wanted=wanted)
    replace_search_texts(place, [place.id_at(row.seq or 0) for row in rows], new)
    place.to_seq, place.version = rows[-1].seq or 0, VERSION
    place.save(update_fields=["to_seq", "version"])
    return len(new)


def place_texts(
    place: SearchPlace,
    rows: Sequence[Message],
    texts: Sequence[SearchText],
    *,
    talk: tuple[int, Any],
    wanted: Collection[uuid.UUID],
) -> list[SearchText]:
    """Set the ids and sessions of texts, and return the texts of the wanted messages.

    `talk`: the session before these texts, and the time of the previous message.
    """
    session, last = talk
    for row, text in zip(rows, texts, strict=True):
        if last is None or row.created_at - last > SILENCE:
            session = row.seq or 0
        last = row.created_at
        text.pk, text.session = place.id_at(row.seq or 0), session
    return [text for row, text in zip(rows, texts, strict=True) if row.pk in wanted]


def find_previous_session(place: SearchPlace, row: Message) -> tuple[int, Any]:
    """Return the session of the text before a message, and the previous message's time."""
    seq = row.seq or 0
    before = Message.objects.filter(branch=row.branch_id, seq=seq - 1)
    last = before.values_list("created_at", flat=True).first()
    found = SearchText.objects.filter(pk__gte=place.id_at(0), pk__lt=place.id_at(seq))
    session = found.order_by("-pk").values_list("session", flat=True).first()
    return session or seq, last


def replace_search_texts(place: SearchPlace, old: Sequence[int], new: Sequence[SearchText]) -> None:
    """Replace texts, and update their word counts."""
    owner_id = Branch.objects.values_list("chat__owner", flat=True).get(pk=place.branch_id)
    counts = count_texts_by_word(new)
    rows = SearchText.objects.filter(pk__in=old)
    gone = count_texts_by_word(rows)
    rows.delete()
    # A text that is only indexed again keeps its vectors.
    vectors.delete_vectors_by_id({*old} - {text.pk for text in new})
    SearchText.objects.bulk_create(new)
    counts.subtract(gone)
    update_word_counts(owner_id, counts)


def update_word_counts(owner_id: int, counts: Counter[str]) -> None:
    """Add to a user's word counts, and delete counts that reach zero."""
    fulltext.add_word_counts(owner_id, {word: number for word, number in counts.items() if number})
    fewer = sorted(word for word, number in counts.items() if number < 0)
    for start in range(0, len(fewer), fulltext.MOST_VALUES):
        some = fewer[start : start + fulltext.MOST_VALUES]
        SearchCount.objects.filter(owner=owner_id, word__in=some, texts__lte=0).delete()


def count_texts_by_word(texts: Iterable[SearchText]) -> Counter[str]:
    """Count the texts that contain each word. The empty word counts all texts."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update({"", *text.words.split()})
    return found


def index_summary(branch: Branch) -> int:
    """Index the active summary of a branch in place of the previous one.

    Return the number of added texts, 0 if the branch was erased in the meantime.
    """
    try:
        return replace_summary_text(branch)
    except BRANCH_GONE:
        logger.info("branch %s was deleted during indexing", branch.pk)
        return 0


def replace_summary_text(branch: Branch) -> int:
    """Replace the text of a branch's summary. Raises the errors of `BRANCH_GONE`."""
    with unflushed_transaction():
        place = lock_search_place(branch.pk)
        held = Branch.objects.select_related("active_compaction__base", "chat").get(pk=branch.pk)
        summary = None if place.closed else get_branch_summary(held)
        key = place.id_at(SUMMARY_SEQ)
        new = []
        if summary is not None:
            fields = build_word_fields(summary.text[:MOST_CHARACTERS])
            new.append(
                SearchText(
                    pk=key,
                    summary=summary,
                    keys=build_search_keys(held, role="summary"),
                    session=SUMMARY_SEQ,
                    written_at=summary.created_at,
                    **fields,
                )
            )
        replace_search_texts(place, [key], new)
        return len(new)


def remove_indexed_messages(
    message_ids: Collection[uuid.UUID], *, summaries: Collection[uuid.UUID] = ()
) -> int:
    """Remove messages and summaries from the index, in the caller's transaction.

    No other task can index the messages again before that transaction ends.
    """
    texts = SearchText.objects.filter(Q(message__in=message_ids) | Q(summary__in=summaries))
    branches = Branch.objects.filter(messages__in=message_ids).order_by("pk").distinct()
    for branch_id in branches.values_list("pk", flat=True):
        lock_search_place(branch_id)
    return delete_search_texts(texts)


def delete_search_texts(texts: QuerySet[SearchText]) -> int:
    """Delete texts of one user and adjust their word counts. Return the number of texts."""
    first = texts.values_list("message__branch__chat__owner", "summary__branch__chat__owner")
    owners = first.first()
    if owners is None:
        return 0
    gone = count_texts_by_word(texts.iterator(chunk_size=500))
    vectors.delete_text_vectors(texts)
    removed = texts.delete()[0]
    update_word_counts(
        owners[0] or owners[1], Counter({word: -number for word, number in gone.items()})
    )
    return removed


def restore_search_text(message: Message) -> None:
    """Index a withdrawn message again, in the caller's transaction.

    A message after the end of the index is indexed later with the others.
    """
    row = Message.objects.select_related("branch__chat").get(pk=message.pk)
    if row.branch.chat.temporary or row.seq is None:
        return
    place = lock_search_place(row.branch_id)
    if place.closed or place.version != VERSION or place.to_seq < row.seq:
        return
    text = searchable_text.build_indexed_text(row)
    text.pk = place.id_at(row.seq)
    text.session = find_previous_session(place, row)[0]
    replace_search_texts(place, [text.pk], [text])


def remove_indexed_chat(chat_id: uuid.UUID) -> None:
    """Remove a chat from the index, in the transaction that deletes the chat."""
    for branch_id in (
        Branch.objects.filter(chat=chat_id).order_by("pk").values_list("pk", flat=True)
    ):
        lock_search_place(branch_id)
    of_chat = Q(message__branch__chat=chat_id) | Q(summary__branch__chat=chat_id)
    delete_search_texts(SearchText.objects.filter(of_chat))

"""The search index: each message of a branch, and its active summary.

Background jobs index words in batches short enough not to delay other work. A branch is due while
it has messages after the end of its index, or words of an older version. Adding and removing lock
the same row, the branch's `SearchPlace`, so that neither misses the other's changes. Temporary
chats and chats whose policy closes the archive have no index.
"""

import logging
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from chats.ground import leases, queue
from chats.ground.background_lock import OneAtATime, alone
from chats.memory.search import fulltext, vectors
from chats.memory.search.words import VERSION, split_words
from chats.models import Branch, Compaction, Message, SearchCount, SearchPlace, SearchText
from chats.models.search import SUMMARY_SEQ
from chats.record import history
from contextpolicy.engine.messages.messages import FilePart, parse_result_image
from speed.commits import unflushed_transaction

logger = logging.getLogger(__name__)
# Messages per transaction, which blocks SQLite's only writer for about 10 ms.
BATCH = 10
# Seconds of work per task, and the delay of the next one. In between, the processor and SQLite's
# only writer are free for interactive requests.
TASK_SECONDS = 0.1
PAUSE_SECONDS = 0.1
# Held while a task works, so that only one at a time competes with summaries.
ONE_AT_A_TIME = OneAtATime()
# Maximum characters indexed per message, because a tool's output can have megabytes.
MOST_CHARACTERS = 20_000
# A pause of this length starts a new session.
SILENCE = timedelta(hours=1)
# Maximum branches per run, and the seconds until the next search once none is behind.
MOST_BEHIND = 1_500
LOOK_AGAIN = 600.0


def get_archived_seq(branch: Branch) -> int | None:
    """Return the last seq that the active compaction covers; None without a compaction."""
    active = branch.active_compaction
    return active.to_seq if active is not None else None


def get_branch_summary(branch: Branch) -> Compaction | None:
    """Return the active summary of a branch. None if it has none.

    If a window is active, its base summary is returned.
    """
    active = branch.active_compaction
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        active = active.base
    return active if active is not None and active.text else None


def list_unindexed_segments(branch: Branch) -> list[history.PathSegment]:
    """Return the segments of a path that are not fully indexed; none if its archive is closed."""
    parts = [part for part in history.list_path_segments(branch) if part.after < part.to]
    places = SearchPlace.objects.filter(branch__in=[part.branch_id for part in parts])
    known = {place.branch_id: place for place in places}
    return [part for part in parts if is_index_behind(known.get(part.branch_id), to=part.to)]


def count_missing(branch: Branch) -> int:
    """Return the number of unindexed messages of a branch's path; 0 if its archive is closed."""
    missing = 0
    for part in list_unindexed_segments(branch):
        place = SearchPlace.objects.filter(branch=part.branch_id, version=VERSION).first()
        missing += part.to - max(part.after, place.to_seq if place else 0)
    return missing


def is_index_behind(place: SearchPlace | None, *, to: int) -> bool:
    """Return True if the index of a branch does not reach `to`, or is of an older version."""
    if place is None:
        return True
    return not place.closed and (place.to_seq < to or place.version != VERSION)


def is_indexing_due(branch: Branch) -> bool:
    """Return True if messages or the active summary of a branch's path are not indexed."""
    return bool(list_unindexed_segments(branch)) or not is_summary_indexed(branch)


def is_summary_indexed(branch: Branch) -> bool:
    """Return True if the active summary is indexed, or if there is none."""
    place = SearchPlace.objects.filter(branch=branch.pk).first()
    if place is None or place.closed:
        return True
    found = SearchText.objects.filter(pk=place.id_at(SUMMARY_SEQ)).values_list("summary", flat=True)
    summary = get_branch_summary(branch)
    return list(found) == ([summary.pk] if summary else [])


def request_indexing(branch: Branch) -> None:
    """Request indexing of a branch's path, unless it is complete or a task is working on it."""
    with transaction.atomic():
        if mark_due(branch):
            queue.enqueue(queue.INDEX_CHAT, chat_id=branch.chat_id)


def mark_due(branch: Branch) -> bool:
    """Mark a branch's path as due for indexing. Returns False if it was marked already."""
    if branch.chat.temporary or not is_indexing_due(branch):
        return False
    rows = SearchPlace.objects
    with transaction.atomic():
        rows.get_or_create(branch_id=branch.pk)
        return bool(rows.filter(branch=branch.pk, due_at=None).update(due_at=Now()))


def index_due_branches(*, chat_id: uuid.UUID, is_closed: bool = False) -> None:
    """Index the due messages of a chat for up to `TASK_SECONDS`; the next task continues.

    `is_closed`: the chat's policy excludes it from search, so its words are removed.
    """
    with ONE_AT_A_TIME:
        if is_closed:
            close_chat_index(chat_id)
            return
        reopen_chat_index(chat_id)
        give_up = time.monotonic() + TASK_SECONDS
        due = SearchPlace.objects.filter(branch__chat=chat_id, due_at__isnull=False)
        related = ("branch__active_compaction__base", "branch__parent", "branch__chat")
        for place in due.select_related(*related):
            work = index_branch_batches(place.branch)
            while process_next_batch(work):
                if time.monotonic() > give_up:
                    reschedule_indexing(place, chat_id=chat_id)
                    return
            clear_due_mark(place)


def close_chat_index(chat_id: uuid.UUID) -> None:
    """Remove a chat from the index until its policy allows it again."""
    with transaction.atomic():
        remove_indexed_chat(chat_id)
        places = SearchPlace.objects.filter(branch__chat=chat_id)
        places.update(closed=True, to_seq=0, due_at=None)


def reopen_chat_index(chat_id: uuid.UUID) -> None:
    """Allow a closed chat to be indexed again."""
    closed = SearchPlace.objects.filter(branch__chat=chat_id, closed=True)
    closed.update(closed=False, due_at=Now())


def process_next_batch(work: Iterator[int]) -> bool:
    """Process the next batch; return False if there was none."""
    with alone:
        return next(work, None) is not None


def reschedule_indexing(place: SearchPlace, *, chat_id: uuid.UUID) -> None:
    """Enqueue the rest of the work as a new task, at the end of the queue."""
    with unflushed_transaction():
        # Shows the due job for lost tasks that this task is running.
        SearchPlace.objects.filter(pk=place.pk).update(due_at=Now())
        queue.enqueue(queue.INDEX_CHAT, chat_id=chat_id, countdown=PAUSE_SECONDS)


def clear_due_mark(place: SearchPlace) -> None:
    """Clear the due mark, unless new messages arrived since then."""
    with transaction.atomic():
        held = SearchPlace.objects.select_for_update(of=("self",), no_key=True)
        related = ("branch__active_compaction__base", "branch__parent")
        row = held.select_related(*related).filter(pk=place.pk).first()
        if row is not None and not is_indexing_due(row.branch):
            row.due_at = None
            row.save(update_fields=["due_at"])


def requeue_stalled_indexing() -> int:
    """Enqueue stalled tasks again. Returns the count.

    Occasionally also searches for branches that were never marked as due, such as after an
    upgrade or a lost task.
    """
    since = leases.subtract_from_now(timedelta(seconds=settings.REQUEUE_AFTER))
    lost = SearchPlace.objects.filter(due_at__isnull=False, due_at__lt=since)
    chats = set(lost.values_list("branch__chat", flat=True)[:1000])
    lost.filter(branch__chat__in=chats).update(due_at=Now())
    chats |= Looking.here.find()
    for chat_id in chats:
        queue.enqueue(queue.INDEX_CHAT, chat_id=chat_id)
    return len(chats)


class Looking:
    """A rate-limited scan for branches with unindexed messages."""

    here: "Looking"

    def __init__(self) -> None:
        self.next_at = 0.0

    def find(self) -> set[uuid.UUID]:
        """Mark some branches with unindexed messages as due, and return their chats.

        Empty if the last search was too recent.
        """
        if time.monotonic() < self.next_at:
            return set()
        if SearchPlace.objects.filter(due_at__isnull=False).count() >= MOST_BEHIND:
            return set()
        found = list(find_unmarked_branches()[:MOST_BEHIND])
        if len(found) < MOST_BEHIND:
            self.next_at = time.monotonic() + LOOK_AGAIN
        with transaction.atomic():
            SearchPlace.objects.bulk_create(
                [SearchPlace(branch_id=branch_id) for branch_id, _ in found], ignore_conflicts=True
            )
            due = SearchPlace.objects.filter(branch__in=[branch_id for branch_id, _ in found])
            due.filter(due_at=None).update(due_at=Now())
        return {chat_id for _, chat_id in found}


Looking.here = Looking()


def find_unmarked_branches() -> QuerySet[Branch, tuple[Any, ...]]:
    rows = Branch.objects.filter(chat__temporary=False, last_seq__gt=F("fork_seq"))
    none = Q(search_place__isnull=True)
    short = Q(search_place__to_seq__lt=F("last_seq")) | ~Q(search_place__version=VERSION)
    rows = rows.filter(none | (Q(search_place__closed=False, search_place__due_at=None) & short))
    return rows.order_by().values_list("pk", "chat")


def count_searchable_messages(owner_id: int) -> tuple[int, int]:
    """Count a person's searchable messages.

    Returns the total, and how many of them are not indexed yet.
    """
    rows = Branch.objects.filter(chat__owner=owner_id, chat__temporary=False, chat__deleted_at=None)
    rows = rows.exclude(search_place__closed=True)
    every = behind_by = 0
    for last, fork, to, version in rows.order_by().values_list(
        "last_seq", "fork_seq", "search_place__to_seq", "search_place__version"
    ):
        every += last - fork
        end = max(to or 0, fork) if version == VERSION else fork
        behind_by += max(last - end, 0)
    return every, behind_by


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
    texts = [build_indexed_text(row) for row in found]
    try:
        with unflushed_transaction():
            place = lock_search_place(branch_id)
            now_after = place.to_seq if place.version == VERSION else 0
            if now_after != after or place.closed:
                return 0
            return add_search_texts(place, found, texts)
    except IntegrityError:
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
    """Add to a person's word counts, and delete counts that reach zero."""
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


def build_indexed_text(row: Message) -> SearchText:
    """Return the searchable text of a message: keys, speaker's name, words and day."""
    text = " ".join(collect_searchable_texts(row.parts))[:MOST_CHARACTERS]
    speaker = str((row.speaker or {}).get("roleName", ""))
    day = "" if row.undated else row.created_at.strftime("%-d %B %Y %A")
    return SearchText(
        message=row,
        keys=build_search_keys(row.branch, role=row.role),
        speaker=" ".join(split_words(speaker)[1])[:200],
        written_at=row.created_at,
        **build_word_fields(f"{speaker}: {text} {day}"),
    )


def build_word_fields(text: str) -> dict[str, str]:
    """Return the columns of a text for the full-text index: its stems and its full words."""
    stems, full = split_words(text)
    return {"words": " ".join(stems), "full": " ".join(fulltext.FULL + word for word in full)}


def build_search_keys(branch: Branch, *, role: str) -> str:
    """Return the search keys of a text: owner, chat and role."""
    named = (
        build_owner_key(branch.chat.owner_id),
        build_chat_key(branch.chat_id),
        build_role_key(role),
    )
    return " ".join(fulltext.KEY + key for key in named)


def index_summary(branch: Branch) -> int:
    """Index the active summary of a branch in place of the previous one."""
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
    """Delete texts of one person and adjust their word counts. Return the number of texts."""
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
    text = build_indexed_text(row)
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


def collect_searchable_texts(parts: Iterable[dict[str, object]]) -> Iterable[str]:
    """Yield the texts of a message's parts and tool results, without reasoning and arguments.

    The names and texts of files follow, so that a long file does not displace words of the message.
    """
    parts = list(parts)
    for part in parts:
        if part["type"] == "text":
            yield str(part["text"])
        elif part["type"] == "tool_result":
            yield str(part["content"])
    for part in parts:
        if part["type"] == "file" and part.get("text"):
            yield f"{part['name']}\n{part['text']}"
    # Last, so that the offsets of stored excerpts stay valid.
    yield from list_names_of_images(parts)


def list_names_of_images(parts: Iterable[dict[str, object]]) -> list[str]:
    """Return the names of files without a text, such as images. Tool results have none."""
    files = [
        FilePart(str(part["media_type"]), str(part["name"]), str(part["reference"]))
        for part in parts
        if part["type"] == "file" and not part.get("text")
    ]
    return [file.name for file in files if file.name and not parse_result_image(file)[0]]


def build_owner_key(owner_id: int) -> str:
    """Return the key that all texts of a person share."""
    return f"o{owner_id}"


def build_chat_key(chat_id: uuid.UUID) -> str:
    return f"c{chat_id.hex}"


def build_role_key(role: str) -> str:
    """Return the key that all texts of this role share: user, assistant or summary."""
    return f"r{role}"

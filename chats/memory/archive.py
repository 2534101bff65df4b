"""The archive of a branch: the originals that its summary or window covers, and their index.

Words are indexed in the background, in batches short enough that nobody waits for one; a branch is
due as long as its archive reaches further than its index. Adding to the index and removing from it
lock the same row, the branch's place, so that neither misses the other.
"""

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import timedelta

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from chats.ground import leases, queue
from chats.ground.computing import alone
from chats.memory import fulltext
from chats.memory.words import words
from chats.models import Branch, Message, SearchCount, SearchPlace, SearchText
from chats.record import history
from speed.commits import unflushed

logger = logging.getLogger(__name__)
# The messages of one transaction, which holds SQLite's one writer for some 10 ms.
BATCH = 10
# The seconds that one task works, and after which the next one begins. Meanwhile the processor and
# SQLite's one writer are free for what people wait for.
TASK_SECONDS = 0.1
PAUSE_SECONDS = 0.1
# Held while a task works: of many, one alone stands in the way of summaries.
ONE_AT_A_TIME = threading.Lock()
# One message adds at most so many: nobody searches for a tool's output of megabytes.
MOST_CHARACTERS = 20_000


def archived(branch: Branch) -> int | None:
    """Return the seq up to which the compaction in force covers the path; None without one."""
    active = branch.active_compaction
    return active.to_seq if active is not None else None


def behind(branch: Branch) -> list[tuple[history.PathSegment, int]]:
    """Return the parts of a path whose archive reaches further than their index.

    Each with the seq up to which it reaches.
    """
    to = archived(branch) or 0
    parts = [(part, min(part.to, to)) for part in history.segments(branch) if part.after < to]
    places = SearchPlace.objects.filter(branch__in=[part.branch_id for part, _ in parts])
    known = dict(places.values_list("branch", "to_seq"))
    return [(part, end) for part, end in parts if known.get(part.branch_id, 0) < end]


def catch_up(branch: Branch) -> None:
    """Have the archive of a branch's path made searchable, unless it is or a task works on it."""
    if not behind(branch):
        return
    rows = SearchPlace.objects
    with transaction.atomic():
        rows.get_or_create(branch_id=branch.pk)
        is_news = rows.filter(branch=branch.pk, due_at=None).update(due_at=Now())
        if is_news:
            queue.enqueue(queue.INDEX_CHAT, chat_id=branch.chat_id)


def index_chat(*, chat_id: uuid.UUID) -> None:
    """Make searchable what is due in a chat; work for longer than one task goes to the next."""
    with ONE_AT_A_TIME:
        give_up = time.monotonic() + TASK_SECONDS
        due = SearchPlace.objects.filter(branch__chat=chat_id, due_at__isnull=False)
        for place in due.select_related("branch__active_compaction", "branch__parent"):
            work = batches(place.branch)
            while is_more(work):
                if time.monotonic() > give_up:
                    go_on_later(place, chat_id=chat_id)
                    return
            close(place)


def is_more(work: Iterator[int]) -> bool:
    """Do the next batch; False when there was none."""
    with alone:
        return next(work, None) is not None


def go_on_later(place: SearchPlace, *, chat_id: uuid.UUID) -> None:
    """Leave the rest to the next task, behind what waits by then."""
    with unflushed():
        # The sweep for lost tasks sees that this one is at work.
        SearchPlace.objects.filter(pk=place.pk).update(due_at=Now())
        queue.enqueue(queue.INDEX_CHAT, chat_id=chat_id, countdown=PAUSE_SECONDS)


def close(place: SearchPlace) -> None:
    """Note that nothing is due any more, unless the archive has grown meanwhile."""
    with transaction.atomic():
        held = SearchPlace.objects.select_for_update(of=("self",), no_key=True)
        row = held.select_related("branch__active_compaction").filter(pk=place.pk).first()
        if row is not None and not behind(row.branch):
            row.due_at = None
            row.save(update_fields=["due_at"])


def sweep() -> int:
    """Send the tasks again whose places nobody has moved on for too long; return how many."""
    since = leases.ago(timedelta(seconds=settings.REQUEUE_AFTER))
    lost = SearchPlace.objects.filter(due_at__isnull=False, due_at__lt=since)
    chats = set(lost.values_list("branch__chat", flat=True)[:1000])
    lost.filter(branch__chat__in=chats).update(due_at=Now())
    for chat_id in chats:
        queue.enqueue(queue.INDEX_CHAT, chat_id=chat_id)
    return len(chats)


def index(branch: Branch) -> int:
    """Make the archived messages of a branch's path searchable; return how many were added.

    Run again, it adds only new ones. Each branch on the path counts for itself.
    """
    return sum(batches(branch))


def batches(branch: Branch) -> Iterator[int]:
    """Index what is behind on a path, batch by batch; yield how many texts each added."""
    for part, to in behind(branch):
        while True:
            added = index_batch(part.branch_id, to=to)
            if added is None:
                break
            yield added


def index_batch(branch_id: uuid.UUID, *, to: int) -> int | None:
    """Make some of a branch's own messages up to a seq searchable; None when all of them are.

    The words are made before the transaction, which then checks whether a message was erased or
    another task was quicker.
    """
    place = SearchPlace.objects.filter(branch=branch_id).first()
    after = place.to_seq if place else 0
    rows = Message.objects.filter(branch=branch_id, seq__gt=after, seq__lte=to)
    found = list(rows.select_related("branch").order_by("seq")[:BATCH])
    if not found:
        return None
    texts = {row.pk: words_of(row, chat_id=row.branch.chat_id) for row in found}
    try:
        with unflushed():
            place = hold(branch_id)
            if place.to_seq != after:
                return 0
            return add(place, found, texts)
    except IntegrityError:
        logger.info("branch %s was deleted while it was indexed", branch_id)
        return None


def hold(branch_id: uuid.UUID) -> SearchPlace:
    """Return a branch's place, locked until the transaction ends; made where there is none yet."""
    rows = SearchPlace.objects
    made, is_new = rows.get_or_create(branch_id=branch_id)
    return made if is_new else rows.select_for_update(no_key=True).get(pk=made.pk)


def add(place: SearchPlace, rows: Sequence[Message], texts: dict[uuid.UUID, list[str]]) -> int:
    """Put the words of messages that were not erased into the index, and count them."""
    living = Message.objects.filter(pk__in=list(texts), erased_at=None)
    wanted = set(living.values_list("pk", flat=True))
    new = [row for row in rows if row.pk in wanted]
    SearchText.objects.bulk_create(
        SearchText(id=place.id_at(row.seq or 0), message=row, words=" ".join(texts[row.pk]))
        for row in new
    )
    fulltext.count(place.pk, counted(texts[row.pk] for row in new))
    place.to_seq = rows[-1].seq or 0
    place.save(update_fields=["to_seq"])
    return len(new)


def counted(texts: Iterable[Sequence[str]]) -> Counter[str]:
    """Count in how many texts each word stands; the first word of each, its chat's, left out."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update(set(text[1:]))
    return found


def words_of(row: Message, *, chat_id: uuid.UUID) -> list[str]:
    """Return a message's words: the chat's own first, then its speaker, its text, and its day."""
    said = " ".join(texts_of(row.parts))[:MOST_CHARACTERS]
    speaker = str((row.speaker or {}).get("roleName", ""))
    day = row.created_at.strftime("%-d %B %Y %A")
    return [chat_word(chat_id), *words(f"{speaker}: {said} {day}")]


def forget(message_ids: Collection[uuid.UUID]) -> int:
    """Take the words of erased messages out of the index, in the caller's transaction.

    None of them can be indexed any more before that transaction ends.
    """
    removed = 0
    branches = Branch.objects.filter(messages__in=message_ids).order_by("pk").distinct()
    for branch_id in branches.values_list("pk", flat=True):
        place = hold(branch_id)
        rows = SearchText.objects.filter(message__in=message_ids, message__branch=branch_id)
        gone = counted(text.split() for text in rows.values_list("words", flat=True))
        fulltext.count(place.pk, {word: -number for word, number in gone.items()})
        kept = SearchCount.objects.filter(place=place, word__in=list(gone))
        kept.filter(messages__lte=0).delete()
        removed += rows.delete()[0]
    return removed


def forget_chat(chat_id: uuid.UUID) -> None:
    """Take a chat out of the index before it is deleted, in the caller's transaction."""
    for branch_id in (
        Branch.objects.filter(chat=chat_id).order_by("pk").values_list("pk", flat=True)
    ):
        place = hold(branch_id)
        SearchText.objects.filter(message__branch=branch_id).delete()
        SearchCount.objects.filter(place=place).delete()


def texts_of(parts: Iterable[dict[str, object]]) -> Iterable[str]:
    """Yield the texts of a message's parts, tools' output too; no reasoning, no arguments."""
    for part in parts:
        if part["type"] == "text":
            yield str(part["text"])
        elif part["type"] == "tool_result":
            yield str(part["content"])


def chat_word(chat_id: uuid.UUID) -> str:
    """Return the word that every text of a chat holds, and no text of another."""
    return f"chat{chat_id.hex}"

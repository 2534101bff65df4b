"""Schedules the indexing of chats: marks branches as due and indexes them in short tasks.

A branch is due while it has messages after the end of its index, or words of an older version.
Batches are short enough not to delay other work.
"""

import logging
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from chats.ground import leases, queue
from chats.ground.background_lock import OneAtATime, alone
from chats.memory.search.archive import BRANCH_GONE, index_branch_batches, remove_indexed_chat
from chats.memory.search.index_progress import create_places, is_indexing_due
from chats.memory.search.words import VERSION
from chats.models import Branch, Chat, SearchPlace
from speed.commits import unflushed_transaction

logger = logging.getLogger(__name__)
# Seconds of work per task, and the delay of the next one. In between, the processor and SQLite's
# only writer are free for interactive requests.
TASK_SECONDS = 0.1
PAUSE_SECONDS = 0.1
# Held while a task works, so that only one at a time competes with summaries.
ONE_AT_A_TIME = OneAtATime()
# Maximum branches per run, and the seconds until the next search once none is behind.
MOST_BEHIND = 1_500
LOOK_AGAIN = 600.0


def request_indexing(branch: Branch) -> None:
    """Request indexing of a branch's path, unless it is complete or a task is working on it.

    Nothing happens if the branch is erased at the same time. Within a transaction, the caller holds
    a lock that prevents this.
    """
    is_within = connection.in_atomic_block
    try:
        with transaction.atomic():
            if mark_due(branch):
                queue.enqueue(queue.INDEX_CHAT, chat_id=branch.chat_id)
    except (*BRANCH_GONE, Chat.DoesNotExist):
        if is_within:
            raise
        logger.info("branch %s was erased before it was indexed", branch.pk)


def mark_due(branch: Branch) -> bool:
    """Mark a branch's path as due for indexing. Returns False if it was marked already.

    Raises `IntegrityError` at the commit if the branch was erased in the meantime.
    """
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
        branch_ids = [branch_id for branch_id, _ in found]
        create_places(branch_ids)
        due = SearchPlace.objects.filter(branch__in=branch_ids, due_at=None)
        due.update(due_at=Now())
        return {chat_id for _, chat_id in found}


Looking.here = Looking()


def find_unmarked_branches() -> QuerySet[Branch, tuple[Any, ...]]:
    rows = Branch.objects.filter(chat__temporary=False, last_seq__gt=F("fork_seq"))
    none = Q(search_place__isnull=True)
    short = Q(search_place__to_seq__lt=F("last_seq")) | ~Q(search_place__version=VERSION)
    rows = rows.filter(none | (Q(search_place__closed=False, search_place__due_at=None) & short))
    return rows.order_by().values_list("pk", "chat")

"""Updates the statistics from the ledger in batches.

The counts and the reading position change in one transaction, so a killed worker leaves
them consistent. If two workers count the same events, the slower one drops its batch.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime

from django.db import IntegrityError, transaction

from chats.counts.telling import TYPES, sum_events
from chats.ground import databases, queue
from chats.ground.failpoints import failpoint
from chats.models import DailyCount, SkippedRow
from contextpolicy import following
from contextpolicy.following import Read
from contextpolicy.models import AuditEvent, LedgerReader

logger = logging.getLogger(__name__)
READER = "counts"
# Events per transaction, and seconds per task.
AT_ONCE = 200
SECONDS = 10.0
# Ledger position at which storing failed once and the events were read again.
_read_again: dict[str, int] = {}


def enqueue_due() -> int:
    """Enqueue the task if the ledger has uncounted events. Returns the number of tasks, 0 or 1."""
    if not following.has_unread_events(READER, types=TYPES):
        return 0
    queue.enqueue(queue.COUNT)
    return 1


def count_ledger_events(*, clock: Callable[[], datetime], is_closing: Callable[[], bool]) -> None:
    """Count ledger events for up to 10 seconds, then enqueue a task for the rest."""
    until = time.monotonic() + SECONDS
    while not is_closing() and time.monotonic() < until:
        if not count_next_events(now=clock()):
            return
    queue.enqueue(queue.COUNT)


def count_next_events(*, now: datetime) -> bool:
    """Count the next events. Returns True if there may be more.

    Events are read before the transaction, which only updates counts and the reading position. If
    a batch fails, its events are counted one by one, and failing events are skipped and recorded.
    """
    place = following.get_ledger_reader(READER)
    found = following.read_ledger_events(place, now=now, most=AT_ONCE)
    if not found.events and found.missed == place.missed:
        return False
    try:
        count_event_batch(place, found, now=now)
    except AlreadyCounted:
        return False
    except IntegrityError:
        # A compaction may have been erased since it was read. A second read omits it.
        if found.events and _read_again.get(READER) != place.moves:
            _read_again[READER] = place.moves
            return True
        return count_events_singly(place, found, now=now)
    except Exception as error:
        if databases.is_retryable_error(error):
            raise
        logger.warning("counted one by one: %s", type(error).__name__)
        return count_events_singly(place, found, now=now)
    return bool(found.events)


class AlreadyCounted(Exception):
    """Another worker counted the same events first, so this batch is dropped."""


def count_event_batch(place: LedgerReader, found: Read, *, now: datetime) -> None:
    """Count events in one transaction. Raises `AlreadyCounted`."""
    sums = sum_events(found.events)
    with transaction.atomic():
        if not following.advance_reader(place, found, now=now):
            raise AlreadyCounted
        sums.store()
        failpoint("before_commit_counts")


def count_events_singly(place: LedgerReader, found: Read, *, now: datetime) -> bool:
    """Count events one by one, skipping failing ones; return False if another worker was faster."""
    skipped: list[tuple[AuditEvent, Exception]] = []
    with transaction.atomic():
        if not following.advance_reader(place, found, now=now):
            return False
        for event in found.events:
            try:
                with transaction.atomic():
                    sum_events([event]).store()
            except Exception as error:
                if databases.is_retryable_error(error):
                    raise
                skipped.append((event, error))
        failpoint("before_commit_counts")
    for event, problem in skipped:
        SkippedRow.note(job="counts", row=f"ledger event {event.pk}", error=problem, now=now)
    return True


def get_statistics_time() -> datetime | None:
    """Return the time of the last update, or None before the first."""
    return LedgerReader.objects.filter(pk=READER).values_list("moved_at", flat=True).first()


def has_statistics() -> bool:
    return DailyCount.objects.exists()

"""Keeps the counts up with the ledger, some events at a time.

What events add and how far the ledger was read change in one transaction: a worker that is killed
leaves both or neither, and of two that count at once one finds that the other was quicker.
"""

import logging
import time
from collections.abc import Callable
from datetime import datetime

from django.db import IntegrityError, transaction

from chats.counts.telling import TYPES, sums_of
from chats.ground import databases, queue
from chats.ground.failpoints import failpoint
from chats.models import DailyCount, SkippedRow
from contextpolicy import following
from contextpolicy.following import Read
from contextpolicy.models import AuditEvent, LedgerReader

logger = logging.getLogger(__name__)
READER = "counts"
# Events in one transaction, and seconds that one task takes.
AT_ONCE = 200
SECONDS = 10.0
# The place at which events could not be stored and were read once more.
_read_again: dict[str, int] = {}


def enqueue_due() -> int:
    """Send the task if the ledger tells of something to count; return how many were sent."""
    if not following.is_behind(READER, types=TYPES):
        return 0
    queue.enqueue(queue.COUNT)
    return 1


def keep(*, clock: Callable[[], datetime], is_closing: Callable[[], bool]) -> None:
    """Count what the ledger tells for some seconds; the next task goes on with the rest."""
    until = time.monotonic() + SECONDS
    while not is_closing() and time.monotonic() < until:
        if not count_some(now=clock()):
            return
    queue.enqueue(queue.COUNT)


def count_some(*, now: datetime) -> bool:
    """Count the next events; return True if there are more to count here.

    Rows are read before the transaction, which only adds. If the events cannot be counted together,
    they are counted one by one, and those that cannot be counted at all are skipped and noted.
    """
    place = following.reader(READER)
    found = following.read(place, now=now, most=AT_ONCE)
    if not found.events and found.missed == place.missed:
        return False
    try:
        count_together(place, found, now=now)
    except AlreadyCounted:
        return False
    except IntegrityError:
        # Perhaps a compaction was erased since it was read; read again, it is gone.
        if found.events and _read_again.get(READER) != place.moves:
            _read_again[READER] = place.moves
            return True
        return count_each(place, found, now=now)
    except Exception as error:
        if databases.may_pass(error):
            raise
        logger.warning("counted one by one: %s", type(error).__name__)
        return count_each(place, found, now=now)
    return bool(found.events)


class AlreadyCounted(Exception):
    """Another worker counted the same events and was quicker."""


def count_together(place: LedgerReader, found: Read, *, now: datetime) -> None:
    """Count events in one transaction. Raises `AlreadyCounted`."""
    sums = sums_of(found.events)
    with transaction.atomic():
        if not following.move(place, found, now=now):
            raise AlreadyCounted
        sums.store()
        failpoint("before_commit_counts")


def count_each(place: LedgerReader, found: Read, *, now: datetime) -> bool:
    """Count events one by one and skip those that cannot be counted; return whether it was done."""
    skipped: list[tuple[AuditEvent, Exception]] = []
    with transaction.atomic():
        if not following.move(place, found, now=now):
            return False
        for event in found.events:
            try:
                with transaction.atomic():
                    sums_of([event]).store()
            except Exception as error:
                if databases.may_pass(error):
                    raise
                skipped.append((event, error))
        failpoint("before_commit_counts")
    for event, problem in skipped:
        SkippedRow.note(job="counts", row=f"ledger event {event.pk}", error=problem, now=now)
    return True


def counted_to() -> datetime | None:
    """Return when the counts were last brought up to the ledger; None: never."""
    return LedgerReader.objects.filter(pk=READER).values_list("moved_at", flat=True).first()


def any_counted() -> bool:
    """Tell whether anything was counted at all."""
    return DailyCount.objects.exists()

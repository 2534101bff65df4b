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
from chats.ground import queue
from chats.ground.failpoints import failpoint
from chats.models import DailyCount
from contextpolicy import following
from contextpolicy.models import LedgerReader

logger = logging.getLogger(__name__)
READER = "counts"
# Events in one transaction, and seconds that one task takes.
AT_ONCE = 200
SECONDS = 10.0


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

    Rows are read before the transaction, which only adds.
    """
    place = following.reader(READER)
    found = following.read(place, now=now, most=AT_ONCE)
    if not found.events and found.missed == place.missed:
        return False
    sums = sums_of(found.events)
    try:
        with transaction.atomic():
            if not following.move(place, found, now=now):
                return False
            sums.store()
            failpoint("before_commit_counts")
    except IntegrityError:
        # A compaction was erased since it was read; read again, it is gone.
        logger.info("what was counted is gone by now; it is read again")
        return True
    return bool(found.events)


def counted_to() -> datetime | None:
    """Return when the counts were last brought up to the ledger; None: never."""
    return LedgerReader.objects.filter(pk=READER).values_list("moved_at", flat=True).first()


def any_counted() -> bool:
    """Tell whether anything was counted at all."""
    return DailyCount.objects.exists()

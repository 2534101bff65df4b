"""Follows the ledger: gives each event once, in the order in which they were committed.

Ids are given before the commit, so an event with a lower id can appear after one with a higher id.
An id that is missing is therefore waited for, as long as a transaction could last.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from contextpolicy.models import AuditEvent, LedgerReader

# No transaction of the product lasts so long. Ids that are missing for longer were taken back.
LONGEST = timedelta(minutes=10)
# So many ids in a row are missed at most: more are a jump of the database's counter.
MOST_MISSED = 1_000


@dataclass(frozen=True, slots=True)
class Read:
    """Events that a reader has not had, and where it stands once it has dealt with them."""

    events: list[AuditEvent]
    last: int
    missed: list[list[object]]


def reader(name: str) -> LedgerReader:
    """Return how far a reader is; a new one begins before the first event."""
    return LedgerReader.objects.get_or_create(name=name)[0]


def is_behind(name: str, *, types: Collection[str]) -> bool:
    """Tell whether there are events of these types that the reader has not had, or may have."""
    place = LedgerReader.objects.filter(pk=name).first() or LedgerReader()
    newer = AuditEvent.objects.filter(type__in=types, pk__gt=place.last)
    return bool(place.missed) or newer.exists()


def read(place: LedgerReader, *, now: datetime, most: int) -> Read:
    """Return the next events behind a place, those first that came late; at most so many new."""
    awaited = {int(str(pk)): str(since) for pk, since in place.missed}
    late = list(AuditEvent.objects.filter(pk__in=awaited).order_by("pk"))
    fresh = list(AuditEvent.objects.filter(pk__gt=place.last).order_by("pk")[:most])
    for event in late:
        awaited.pop(event.pk)
    for pk, since in gaps(place.last, fresh):
        awaited[pk] = since.isoformat()
    missed: list[list[object]] = [
        [pk, since]
        for pk, since in awaited.items()
        if now - datetime.fromisoformat(since) <= LONGEST
    ]
    return Read([*late, *fresh], fresh[-1].pk if fresh else place.last, missed)


def gaps(last: int, events: list[AuditEvent]) -> Iterator[tuple[int, datetime]]:
    """Yield the ids that are missing between events, and the time of the event behind them."""
    for event in events:
        for pk in range(max(last + 1, event.pk - MOST_MISSED), event.pk):
            yield pk, event.at
        last = event.pk


def move(place: LedgerReader, found: Read, *, now: datetime) -> bool:
    """Store that the events were dealt with, in the transaction that did; False: another one did.

    Whoever gets False writes nothing.
    """
    rows = LedgerReader.objects.filter(pk=place.pk, moves=place.moves)
    return bool(
        rows.update(last=found.last, missed=found.missed, moves=F("moves") + 1, moved_at=now)
    )

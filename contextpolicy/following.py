"""Follows the ledger: delivers each event once, even if it commits late.

Ids are assigned before the commit, so an event with a lower id can appear after one with a higher
id. The reader therefore remembers each missing id, up to the maximum duration of a transaction, and
delivers its event when it appears.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import F

from contextpolicy.models import AuditEvent, LedgerReader

# No transaction of the product takes longer. Ids missing for longer were rolled back.
LONGEST = timedelta(minutes=10)
# Maximum number of consecutive missing ids; a larger gap is a jump of the database's sequence.
MOST_MISSED = 1_000


@dataclass(frozen=True, slots=True)
class Read:
    """Unprocessed events, and the reader's position once they are processed."""

    events: list[AuditEvent]
    last: int
    missed: list[list[object]]


def get_ledger_reader(name: str) -> LedgerReader:
    """Return the reader with this name, or create it before the first event."""
    return LedgerReader.objects.get_or_create(name=name)[0]


def has_unread_events(name: str, *, types: Collection[str]) -> bool:
    """Return True if the reader may have unprocessed events of these types."""
    place = LedgerReader.objects.filter(pk=name).first() or LedgerReader()
    newer = AuditEvent.objects.filter(type__in=types, pk__gt=place.last)
    return bool(place.missed) or newer.exists()


def read_ledger_events(place: LedgerReader, *, now: datetime, most: int) -> Read:
    """Return the next events after a position, at most `most` new ones.

    Events that committed late come first.
    """
    awaited = {int(str(pk)): str(since) for pk, since in place.missed}
    late = list(AuditEvent.objects.filter(pk__in=awaited).order_by("pk"))
    fresh = list(AuditEvent.objects.filter(pk__gt=place.last).order_by("pk")[:most])
    for event in late:
        awaited.pop(event.pk)
    for pk, since in find_id_gaps(place.last, fresh):
        awaited[pk] = since.isoformat()
    missed: list[list[object]] = [
        [pk, since]
        for pk, since in awaited.items()
        if now - datetime.fromisoformat(since) <= LONGEST
    ]
    return Read([*late, *fresh], fresh[-1].pk if fresh else place.last, missed)


def find_id_gaps(last: int, events: list[AuditEvent]) -> Iterator[tuple[int, datetime]]:
    """Yield the missing ids between events, with the time of the event after each gap."""
    for event in events:
        for pk in range(max(last + 1, event.pk - MOST_MISSED), event.pk):
            yield pk, event.at
        last = event.pk


def advance_reader(place: LedgerReader, found: Read, *, now: datetime) -> bool:
    """Store the new position, in the transaction that processed the events.

    Returns False if another reader changed the position first. The caller must then not
    write anything.
    """
    rows = LedgerReader.objects.filter(pk=place.pk, moves=place.moves)
    return bool(
        rows.update(last=found.last, missed=found.missed, moves=F("moves") + 1, moved_at=now)
    )

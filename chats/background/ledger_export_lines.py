"""Ships the ledger as JSON lines to the standard output of the background worker.

Lines are written in commit order, at least once: the position is stored after they were written.
One worker ships at a time, so lines repeat only after that worker was killed. Readers detect
repeats by their ids. The ledger is the buffer: shipping starts with the first event ever recorded.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TextIO

from django.conf import settings
from django.db.models import Q

from chats.ground import queue
from chats.ground.jobs import Job, JobLease
from chats.ground.leases import LeaseLost
from chats.models import SkippedRow
from contextpolicy import following
from contextpolicy.audit.ocsf import format_native_line, format_ocsf_line
from contextpolicy.models import AuditEvent, LedgerReader

READER = "lines"
SHIPPING = Job(LedgerReader, task=queue.SHIP_LEDGER, is_open=Q(pk=READER))
FORMS: Mapping[str, Callable[[AuditEvent], str]] = {
    "own": format_native_line,
    "ocsf": format_ocsf_line,
}
# Events written at once, and seconds that one task takes.
AT_ONCE = 500
SECONDS = 10.0


def enqueue_due() -> int:
    """Enqueue the task if there are events to ship. Returns the number of tasks, 0 or 1."""
    if not settings.LEDGER_LINES or not count_unshipped_events():
        return 0
    queue.enqueue(queue.SHIP_LEDGER)
    return 1


def count_unshipped_events() -> int:
    """Return the number of events to ship. Includes ids of transactions that were rolled back."""
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    place = LedgerReader.objects.filter(pk=READER).first()
    return newest - (place.last if place else 0) + (len(place.missed) if place else 0)


def ship_events(
    *,
    clock: Callable[[], datetime],
    is_closing: Callable[[], bool],
    out: TextIO | None = None,
) -> int:
    """Write new events to `out` for up to 10 seconds. Return the number of events.

    Without `out`, writes to the standard output that the process had before Celery redirected it.
    Does nothing if `LEDGER_LINES` is off or another process is writing.
    """
    form = FORMS.get(settings.LEDGER_LINES)
    target = out or sys.__stdout__
    if form is None or target is None or (lease := claim_shipping()) is None:
        return 0
    until, written = time.monotonic() + SECONDS, 0
    try:
        while not is_closing() and time.monotonic() < until:
            lease.renew()
            place, now = following.get_ledger_reader(READER), clock()
            found = following.read_ledger_events(place, now=now, most=AT_ONCE)
            if not found.events and found.missed == place.missed:
                break
            target.write(
                "".join(f"{line}\n" for line in format_event_lines(found.events, form, now=now))
            )
            target.flush()
            written += len(found.events)
            if not following.advance_reader(place, found, now=now):
                break
    except LeaseLost:
        pass
    finally:
        lease.release()
    return written


def format_event_lines(
    events: Sequence[AuditEvent], form: Callable[[AuditEvent], str], *, now: datetime
) -> Iterator[str]:
    """Yield one line for each event. An event that cannot be formatted is recorded and skipped."""
    for event in events:
        try:
            line = form(event)
        except Exception as error:  # noqa: BLE001  # one event holds up no other
            SkippedRow.note(
                job="ledger lines", row=f"ledger event {event.pk}", error=error, now=now
            )
        else:
            yield line


def claim_shipping() -> JobLease[LedgerReader] | None:
    """Claim the job that ships events. None while another process holds it."""
    following.get_ledger_reader(READER)
    return SHIPPING.claim(READER)

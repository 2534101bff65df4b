"""Records accesses to the audit log as events: the reader, and the search, event or file."""

from datetime import datetime, timedelta

from django.db import transaction

from contextpolicy import ledger
from contextpolicy.models import AuditEvent

# The same search or event, read by the same user within this time, is not recorded again.
AGAIN = timedelta(minutes=30)


def record_ledger_read(*, actor: str, search: str, now: datetime) -> None:
    """Record that a user reads the audit log, with the normalised search line.

    Writes nothing if the same user made the same search less than `AGAIN` ago.
    """
    _record_once("search", search, actor=actor, now=now)


def record_event_read(event: AuditEvent, *, actor: str, now: datetime) -> None:
    """Record that a user opens an event, with its chain and its number there.

    Writes nothing if the same user opened the same event less than `AGAIN` ago.
    """
    _record_once("event", f"{event.scope}#{event.seq}", actor=actor, now=now)


def _record_once(name: str, value: str, *, actor: str, now: datetime) -> None:
    recent = AuditEvent.objects.filter(type="ledger.read", actor=actor, at__gt=now - AGAIN)
    if recent.filter(**{f"data__{name}": value}).exists():
        return
    with transaction.atomic():
        ledger.record_event("ledger.read", actor=actor, now=now, data={name: value})


def record_file_download(name: str, *, actor: str, now: datetime) -> None:
    with transaction.atomic():
        ledger.record_event("ledger.read", actor=actor, now=now, data={"file": name})

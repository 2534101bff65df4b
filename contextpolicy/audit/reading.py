"""Records accesses to the audit log as events: the reader, and the search or the file."""

from datetime import datetime, timedelta

from django.db import transaction

from contextpolicy import ledger
from contextpolicy.models import AuditEvent

# The same search by the same person within this time is not recorded again.
AGAIN = timedelta(minutes=30)


def record_ledger_read(*, actor: str, search: str, now: datetime) -> None:
    """Record that a person reads the audit log, with the normalised search line.

    Writes nothing if the same person made the same search less than `AGAIN` ago.
    """
    recent = AuditEvent.objects.filter(
        type="ledger.read", actor=actor, at__gt=now - AGAIN, data__search=search
    )
    if recent.exists():
        return
    with transaction.atomic():
        ledger.record_event("ledger.read", actor=actor, now=now, data={"search": search})


def record_file_download(name: str, *, actor: str, now: datetime) -> None:
    with transaction.atomic():
        ledger.record_event("ledger.read", actor=actor, now=now, data={"file": name})

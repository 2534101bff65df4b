"""Reading the ledger leaves a row in it: who looked, and for what."""

from datetime import datetime, timedelta

from django.db import transaction

from contextpolicy import ledger
from contextpolicy.models import AuditEvent

# The same person who looks for the same again within this time leaves no second row.
AGAIN = timedelta(minutes=30)


def note(*, actor: str, search: str, now: datetime) -> None:
    """Record that somebody reads the ledger, by the search line in its one spelling."""
    recent = AuditEvent.objects.filter(
        type="ledger.read", actor=actor, at__gt=now - AGAIN, data__search=search
    )
    if recent.exists():
        return
    with transaction.atomic():
        ledger.record("ledger.read", actor=actor, now=now, data={"search": search})


def note_file(name: str, *, actor: str, now: datetime) -> None:
    """Record that somebody took a file with which the ledger is verified."""
    with transaction.atomic():
        ledger.record("ledger.read", actor=actor, now=now, data={"file": name})

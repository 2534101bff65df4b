"""Events of the ledger."""

from contextpolicy.models import AuditEvent


def list_events(kind: str) -> list[AuditEvent]:
    """Return the ledger events of one type."""
    return list(AuditEvent.objects.filter(type=kind).order_by("seq"))

"""The certificate of a retention run as a file, and its comparison with the ledger."""

import uuid
from typing import Any

from django.utils.translation import gettext

from chats.actions.retention import (
    CERTIFICATES,
    build_run_totals,
    hash_entry_lines,
    serialize_retention_entry,
)
from chats.ground.refusals import NotFound
from chats.models import RetentionEntry, RetentionRun
from contextpolicy.ledger import compute_event_hash
from contextpolicy.models import AuditEvent


def find_finished_run(run_id: uuid.UUID) -> RetentionRun:
    """Return a run that has ended. Raises `NotFound`."""
    run = RetentionRun.objects.filter(pk=run_id, is_open=False).first()
    if run is None:
        raise NotFound
    return run


def find_certifying_event(run: RetentionRun) -> AuditEvent | None:
    """Return the ledger entry that certifies a run. None if it does not exist."""
    rows = AuditEvent.objects.filter(type="retention.ended", data__run=str(run.pk))
    return rows.order_by("pk").first()


def build_retention_certificate(run: RetentionRun) -> dict[str, Any]:
    """Return the certificate of a run that has ended, as JSON data: ids, numbers and hashes.

    Hashing the lines of `entries` in order gives `digest`, which the ledger entry contains.
    """
    event = find_certifying_event(run)
    return {
        **build_run_totals(run),
        "started_at": run.started_at.isoformat(),
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "ledger": {"scope": event.scope, "seq": event.seq, "hash": event.hash} if event else None,
        "entries": [serialize_retention_entry(entry) for entry in run.entries.order_by("number")],
    }


def list_certificate_faults(run: RetentionRun) -> list[str]:
    """Return the differences between a certificate and the ledger, in the reader's language.

    Empty if they match.
    """
    event = find_certifying_event(run)
    if event is None:
        return [gettext("The audit log has no entry that certifies this retention run.")]
    found = []
    if event.hash != compute_event_hash(event):
        found.append(gettext("Audit log entry {number} was changed.").format(number=event.seq))
    entries = list(run.entries.order_by("number"))
    if (
        event.data != build_run_totals(run)
        or hash_entry_lines([serialize_retention_entry(e) for e in entries]) != run.digest
    ):
        found.append(gettext("The entries differ from those that the audit log certifies."))
    found += [fault for entry in entries if (fault := describe_entry_fault(entry))]
    return found


def describe_entry_fault(entry: RetentionEntry) -> str:
    """Return the difference between a retention entry and the ledger, as a sentence.

    Empty if they match.
    """
    rows = AuditEvent.objects.filter(
        scope=f"chat:{entry.chat_id}", seq__range=(entry.first_seq, entry.last_seq)
    )
    events = list(rows.order_by("seq"))
    erased = [
        event
        for event in events
        if event.type in CERTIFICATES and event.data.get("run") == str(entry.run_id)
    ]
    counted = sum(1 if event.type == "message.erased" else event.data["erased"] for event in erased)
    is_whole = bool(events) and events[-1].hash == entry.last_hash == compute_event_hash(events[-1])
    if not is_whole or counted != entry.messages:
        return gettext("The audit log does not certify entry {number} of chat {chat}.").format(
            number=entry.number, chat=entry.chat_id
        )
    return ""

"""Ends file imports, and enqueues the tasks of waiting imports.

The import itself is in `chats.exchange`. A due job and erasures call this module.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils.functional import Promise
from django.utils.translation import gettext_noop

from chats.ground import queue
from chats.ground.jobs import Job
from chats.ground.sentences import build_sentence_columns
from chats.models import Chat, FileImport, FilePiece, ImportedChat
from chats.record import idempotency
from contextpolicy import ledger

OPEN = (FileImport.State.QUEUED, FileImport.State.RUNNING)
IMPORTS = Job(FileImport, task=queue.IMPORT_FILE, argument="import_id", is_open=Q(state__in=OPEN))
# The maximum number of old reports that one run deletes.
DELETED_AT_ONCE = 20
LONGEST_REASON = 1_000
ERASED = gettext_noop(
    "Imported data was erased during the import, so the rest of the file was skipped. The chats "
    "below were imported. Upload the file again to import the others."
)


def end_import(
    row: FileImport,
    *,
    state: str,
    actor: str,
    now: datetime,
    code: str = "",
    reason: str | Promise = "",
    record: Callable[..., object] = ledger.record_event,
) -> None:
    """End a locked import. Deletes its file and keeps its report.

    `code` and `reason`: why it ended early. `record` writes the ledger entry.
    """
    FilePiece.objects.filter(file=row).delete()
    row.state, row.code, row.finished_at = state, code, now
    fields = build_reason_columns(reason)
    row.reason, row.reason_values = fields["reason"], fields["reason_values"]
    row.lease_until, row.lease_token = None, None
    changed = [
        "state",
        "code",
        "reason",
        "reason_values",
        "finished_at",
        "lease_until",
        "lease_token",
    ]
    row.save(update_fields=changed)
    data = {
        "import": str(row.pk),
        "state": str(state),
        "code": code,
        "form": row.form,
        "chats": row.added,
        "were_here": row.were_here,
        "not_taken": row.not_taken,
        "messages": row.messages,
    }
    record("import.ended", actor=actor, now=now, data=data)


def build_reason_columns(reason: str | Promise) -> dict[str, Any]:
    """Return the columns that store why a file or a chat was not imported."""
    text, values = build_sentence_columns(reason, longest=LONGEST_REASON)
    return {"reason": text, "reason_values": values}


def release_import_files(
    chat: Chat, *, now: datetime, record: Callable[..., object] = ledger.record_event
) -> int:
    """Release import files that may contain the text of an erased, imported chat.

    Stops the owner's running imports, and deletes the hashes of files they uploaded before.
    `record` writes the ledger entries, which belong to the instance's chain. Returns the number of
    changes.
    """
    brought = ImportedChat.objects.filter(chat=chat).first()
    if brought is None:
        return 0
    if brought.details.pop("beginning", ""):
        brought.save(update_fields=["details"])
    # A file sent at this moment counts as sent afterwards: the caller has locked branches, and the
    # owner's row is locked before those.
    rows = list(FileImport.objects.select_for_update().filter(owner=chat.owner_id, state__in=OPEN))
    for row in rows:
        end_import(
            row,
            state=FileImport.State.STOPPED,
            actor="system",
            now=now,
            code="import_erased",
            reason=ERASED,
            record=record,
        )
    return len(rows) + idempotency.forget_of_files(owner_id=chat.owner_id)


def enqueue_due(*, now: datetime) -> int:
    """Enqueue the task of each import that no worker holds. Returns the count.

    Also deletes some reports that are older than `IMPORT_REPORT_DAYS`.
    """
    enqueued = IMPORTS.enqueue_free_rows()
    old = FileImport.objects.filter(
        finished_at__lt=now - timedelta(days=settings.IMPORT_REPORT_DAYS)
    )
    if gone := list(old.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
        FileImport.objects.filter(pk__in=gone).delete()
    return enqueued

"""Ends imports of files, says which wait for a worker, and sends their tasks.

The work itself is in `chats.exchange`; the sweep and erasures ask here.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Q

from chats.ground import leases, queue
from chats.models import Chat, FileImport, FilePiece, ImportedChat
from chats.record import idempotency
from contextpolicy import ledger

OPEN = (FileImport.State.QUEUED, FileImport.State.RUNNING)
# A sweep deletes so many old reports at most.
DELETED_AT_ONCE = 20
ERASED = (
    "Something that an import had brought was erased, so the rest of this file was let go. What"
    " stands below is here; send the file again for what is missing."
)


def end(
    row: FileImport, *, state: str, actor: str, now: datetime, code: str = "", reason: str = ""
) -> None:
    """End a locked import: its file goes, its report stays. `code` and `reason`: why so early."""
    FilePiece.objects.filter(file=row).delete()
    row.state, row.code, row.reason, row.finished_at = state, code, reason, now
    row.lease_until, row.lease_token = None, None
    changed = ["state", "code", "reason", "finished_at", "lease_until", "lease_token"]
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
    ledger.record("import.ended", actor=actor, now=now, data=data)


def let_go(chat: Chat, *, now: datetime) -> int:
    """Let go of the files that may have the words of an imported chat once more; return how many.

    What its owner still imports ends, and nothing is kept that could be compared with files that
    they sent before.
    """
    brought = ImportedChat.objects.filter(chat=chat).first()
    if brought is None:
        return 0
    if brought.details.pop("beginning", ""):
        brought.save(update_fields=["details"])
    # A file that is sent in this moment counts as sent afterwards: the caller has locked branches,
    # and the owner's row comes before those.
    rows = list(FileImport.objects.select_for_update().filter(owner=chat.owner_id, state__in=OPEN))
    for row in rows:
        end(
            row,
            state=FileImport.State.STOPPED,
            actor="system",
            now=now,
            code="import_erased",
            reason=ERASED,
        )
    return len(rows) + idempotency.forget_of_files(owner_id=chat.owner_id)


def enqueue_due(*, now: datetime) -> int:
    """Send the task of each import that nobody works on; return how many.

    Reports that are too old are deleted, some at a time.
    """
    found = list(FileImport.objects.filter(free(), state__in=OPEN).values_list("pk", flat=True))
    for import_id in found:
        queue.enqueue(queue.IMPORT_FILE, import_id=import_id)
    old = FileImport.objects.filter(
        finished_at__lt=now - timedelta(days=settings.IMPORT_REPORT_DAYS)
    )
    if gone := list(old.values_list("pk", flat=True)[:DELETED_AT_ONCE]):
        FileImport.objects.filter(pk__in=gone).delete()
    return len(found)


def free() -> Q:
    """Return the condition of imports that nobody works on."""
    return Q(lease_until=None) | leases.ended()

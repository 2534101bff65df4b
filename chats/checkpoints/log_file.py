"""The operator's list: a JSON Lines file to which each checkpoint is appended.

The file is append-only, so it can be on write-once storage. A line that could not be written is
added with the next checkpoint. After a crash a line can appear twice.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from contextpolicy.models import LedgerCheckpoint

logger = logging.getLogger(__name__)
# Bytes read from the end of the file. No line is longer.
TAIL = 64 * 1024
BEHIND = gettext_noop(
    "The list of checkpoints is incomplete. Allow the server to append to the file in "
    "LEDGER_CHECKPOINT_LIST. The next checkpoint adds the missing lines."
)


def add_missing() -> None:
    """Append every checkpoint that the list does not contain, in order. Failures are logged."""
    if not settings.LEDGER_CHECKPOINT_LIST:
        return
    path = Path(settings.LEDGER_CHECKPOINT_LIST)
    try:
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL))
            tail = file.read()
            # A line truncated by a crash is left in place; a new line starts after it.
            torn = b"\n" if tail and not tail.endswith(b"\n") else b""
            lines = [
                format_checkpoint_line(row) for row in list_later_checkpoints(parse_last_line(tail))
            ]
            file.write(torn + b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        logger.error("list of checkpoints: %s", type(error).__name__)  # noqa: TRY400  # said in full


def is_log_file_behind(newest: LedgerCheckpoint | None) -> bool:
    """Return True if the list does not end with the newest checkpoint, or cannot be read.

    False if there is no checkpoint, or if no list is configured.
    """
    if not settings.LEDGER_CHECKPOINT_LIST or newest is None:
        return False
    try:
        with Path(settings.LEDGER_CHECKPOINT_LIST).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            last = parse_last_line(file.read())
    except OSError:
        return True
    return last is None or last["note"] != newest.note


def parse_last_line(tail: bytes) -> Mapping[str, str] | None:
    """Return the last complete line of a list, or None."""
    for line in reversed(tail.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and {"note", "signed_at"} <= found.keys():
            return found
    return None


def list_later_checkpoints(last: Mapping[str, str] | None) -> QuerySet[LedgerCheckpoint]:
    rows = LedgerCheckpoint.objects.order_by("origin", "size")
    if last is None:
        return rows
    known = LedgerCheckpoint.objects.filter(note=last["note"]).first()
    if known is None:
        # A backup was restored: checkpoints up to its time are in the list.
        return rows.filter(signed_at__gt=last["signed_at"])
    later = Q(origin=known.origin_id, size__gt=known.size) | Q(origin__gt=known.origin_id)
    return rows.filter(later)


def format_checkpoint_line(row: LedgerCheckpoint) -> bytes:
    said = {"signed_at": row.signed_at.isoformat(), "note": row.note}
    return json.dumps(said).encode() + b"\n"

"""The operator's list: a file to which each checkpoint is appended, one a line of JSON.

It is only ever appended to, so it may lie where nothing can be taken away. A line that could not be
written comes with the next checkpoint; after a crash one may stand there twice.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from django.conf import settings
from django.db.models import Q, QuerySet

from contextpolicy.models import LedgerCheckpoint

logger = logging.getLogger(__name__)
# No line is longer than a part of this.
TAIL = 64 * 1024
BEHIND = (
    "The list of checkpoints is behind. Give the product the right to append to the file that "
    "LEDGER_CHECKPOINT_LIST names; the next checkpoint adds what is missing."
)


def add_missing() -> None:
    """Append every checkpoint that the list has not, in their order; a failure is logged."""
    if not settings.LEDGER_CHECKPOINT_LIST:
        return
    path = Path(settings.LEDGER_CHECKPOINT_LIST)
    try:
        with path.open("a+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL))
            tail = file.read()
            # A line that was cut off by a crash stays as it is; a new one begins behind it.
            torn = b"\n" if tail and not tail.endswith(b"\n") else b""
            lines = [line_of(row) for row in after(last_in(tail))]
            file.write(torn + b"".join(lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        logger.error("list of checkpoints: %s", type(error).__name__)  # noqa: TRY400  # said in full


def is_behind(newest: LedgerCheckpoint | None) -> bool:
    """Tell whether the list has not got the newest checkpoint."""
    if not settings.LEDGER_CHECKPOINT_LIST or newest is None:
        return False
    try:
        with Path(settings.LEDGER_CHECKPOINT_LIST).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            last = last_in(file.read())
    except OSError:
        return True
    return last is None or last["note"] != newest.note


def last_in(tail: bytes) -> Mapping[str, str] | None:
    """Return the last whole line of a list; None for none."""
    for line in reversed(tail.splitlines()):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and {"note", "signed_at"} <= found.keys():
            return found
    return None


def after(last: Mapping[str, str] | None) -> QuerySet[LedgerCheckpoint]:
    """Return the checkpoints behind the last one of the list, in their order."""
    rows = LedgerCheckpoint.objects.order_by("origin", "size")
    if last is None:
        return rows
    known = LedgerCheckpoint.objects.filter(note=last["note"]).first()
    if known is None:
        # A backup was restored: what was signed before it is on the list.
        return rows.filter(signed_at__gt=last["signed_at"])
    later = Q(origin=known.origin_id, size__gt=known.size) | Q(origin__gt=known.origin_id)
    return rows.filter(later)


def line_of(row: LedgerCheckpoint) -> bytes:
    """Write a checkpoint as a line."""
    said = {"signed_at": row.signed_at.isoformat(), "note": row.note}
    return json.dumps(said).encode() + b"\n"

"""Clears erased words out of what SQLite keeps beside its tables.

The full-text table keeps them until it merges its parts, the write-ahead log until it is begun
again. PostgreSQL does both by itself, by VACUUM and by recycling its log.
"""

import logging
from datetime import datetime, timedelta

from django.db import OperationalError, connection

from contextpolicy.models import AuditEvent

logger = logging.getLogger(__name__)
ERASURES = ("chat.erased", "message.erased", "preference.deleted", "receipt.erased")
# For so long after an erasure the sweep empties the log, if the erasure itself could not.
TRIED_FOR = timedelta(hours=1)
# The pages that one step writes: it holds the one lock for some hundredths of a second.
PAGES = 64


def clear_index() -> None:
    """Merge the full-text table to one part, step by step, after rows of it were erased.

    A deleted row leaves its words in the part that had them, beside a note that they no longer
    count.
    """
    if connection.vendor != "sqlite":
        return
    # The first step asks for one part, the others continue; without work a step changes no row.
    pages = -PAGES
    while merged(pages):
        pages = PAGES


def merged(pages: int) -> bool:
    """Do one step; return whether anything was left to do."""
    with connection.cursor() as cursor:
        before = connection.connection.total_changes
        cursor.execute(
            "INSERT INTO chats_searchtext_words(chats_searchtext_words, rank) VALUES ('merge', %s)",
            [pages],
        )
        # The command counts as one change by itself.
        return bool(connection.connection.total_changes - before >= 2)


def truncate_log() -> bool:
    """Empty SQLite's write-ahead log, which has the pages as they were before an erasure.

    Never waits: returns False while somebody reads or writes, and the sweep tries again. Outside a
    transaction only.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return False
    with connection.cursor() as cursor:
        (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            (is_busy, *_pages) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except OperationalError as error:
            logger.info("the write-ahead log is emptied later: %s", error)
            return False
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(patience)}")
    return not is_busy


def sweep(*, now: datetime) -> int:
    """Empty the log if something was erased lately; return 0, for nothing was recovered."""
    if connection.vendor == "sqlite":
        since = now - TRIED_FOR
        if AuditEvent.objects.filter(type__in=ERASURES, at__gte=since).exists():
            truncate_log()
    return 0

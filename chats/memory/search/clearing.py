"""Removes erased words from SQLite's internal storage.

The full-text table keeps them until its segments are merged, and the write-ahead log until it is
restarted. PostgreSQL removes them through VACUUM and by recycling its write-ahead log.
"""

import logging
from datetime import datetime, timedelta

from django.db import OperationalError, connection

from contextpolicy.models import AuditEvent

logger = logging.getLogger(__name__)
ERASURES = (
    "chat.erased",
    "kept_text.erased",
    "message.erased",
    "preference.deleted",
    "receipt.erased",
)
# Time after an erasure during which a due job retries to empty the log.
TRIED_FOR = timedelta(hours=1)
# Pages written by one step, which holds the write lock for a few hundredths of a second.
PAGES = 64


def clear_index() -> None:
    """Merge the full-text table into one segment, in steps, after rows were erased.

    Until then, the old segments still contain the words of deleted rows.
    """
    if connection.vendor != "sqlite":
        return
    # The first step requests a single segment, later ones continue. A step without work changes no
    # row.
    pages = -PAGES
    while run_merge_step(pages):
        pages = PAGES


def run_merge_step(pages: int) -> bool:
    """Do one merge step. Returns True if more steps are necessary."""
    with connection.cursor() as cursor:
        before = connection.connection.total_changes
        cursor.execute(
            "INSERT INTO chats_searchtext_words(chats_searchtext_words, rank) VALUES ('merge', %s)",
            [pages],
        )
        # The command itself counts as one change.
        return bool(connection.connection.total_changes - before >= 2)


def truncate_log() -> bool:
    """Empty SQLite's write-ahead log, which contains pages from before an erasure.

    Never waits. Returns False while another connection reads or writes, and a due job retries. Does
    nothing and returns False inside a transaction, and on PostgreSQL.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return False
    with connection.cursor() as cursor:
        (patience,) = cursor.execute("PRAGMA busy_timeout").fetchone()
        cursor.execute("PRAGMA busy_timeout = 0")
        try:
            (is_busy, *_pages) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except OperationalError as error:
            logger.info("the write-ahead log could not be emptied; retrying later: %s", error)
            return False
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(patience)}")
    return not is_busy


def clear_erasure_log(*, now: datetime) -> int:
    """Empty the write-ahead log after recent erasures.

    Always returns 0, because due jobs return a number.
    """
    if connection.vendor == "sqlite":
        since = now - TRIED_FOR
        if AuditEvent.objects.filter(type__in=ERASURES, at__gte=since).exists():
            truncate_log()
    return 0

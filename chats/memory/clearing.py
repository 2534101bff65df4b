"""Clears erased rows out of SQLite's full-text table, which keeps their words until it merges."""

from django.db import connection

# The pages that one step writes: it holds the one lock for some hundredths of a second.
PAGES = 64


def clear_index() -> None:
    """Merge the full-text table to one part, step by step, after rows of it were erased.

    A deleted row leaves its words in the part that had them, beside a note that they no longer
    count. PostgreSQL clears its index by VACUUM, which it does by itself.
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

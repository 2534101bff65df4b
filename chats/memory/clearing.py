"""What SQLite's full-text table keeps of rows that are gone, until its parts are merged."""

from django.db import connection

# Pages that one step writes: it holds the database's one lock for some hundredths of a second.
PAGES = 64


def clear_index() -> None:
    """Merge the full-text table to one part, step by step, after rows of it were erased.

    A row that is taken out leaves its words in the part that had them, beside a note that they no
    longer count. PostgreSQL clears its index by VACUUM, which it does by itself.
    """
    if connection.vendor != "sqlite":
        return
    # The first step asks for one part, the others go on with it; nothing to do changes no row.
    pages = -PAGES
    while merged(pages):
        pages = PAGES


def merged(pages: int) -> bool:
    """Do one step; whether anything was left to do."""
    with connection.cursor() as cursor:
        before = connection.connection.total_changes
        cursor.execute(
            "INSERT INTO chats_searchtext_words(chats_searchtext_words, rank) VALUES ('merge', %s)",
            [pages],
        )
        # The command counts as one change by itself.
        return bool(connection.connection.total_changes - before >= 2)

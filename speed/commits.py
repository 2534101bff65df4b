"""Runs transactions whose commit does not wait for the disk.

In PostgreSQL this is an asynchronous commit. A process crash loses none of these
transactions. A power failure may lose them, but nothing that was committed earlier. Use
them only for work that is repeated in that case: claims, leases, partial text. Accepted
messages and model requests and replies are flushed before they are reported.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.db import transaction


@contextmanager
def unflushed_transaction() -> Iterator[None]:
    """Open `transaction.atomic` without waiting for the disk at the commit.

    Within another transaction, the outer transaction decides whether the commit waits.
    """
    connection = transaction.get_connection()
    if connection.in_atomic_block or not settings.SPEED:
        with transaction.atomic():
            yield
    elif connection.vendor == "sqlite":
        # SQLite accepts this only outside a transaction, and keeps it until it is set again.
        connection.ensure_connection()
        # This avoids Django's cursor, which costs more than the statement.
        connection.connection.execute("PRAGMA synchronous = NORMAL")
        try:
            with transaction.atomic():
                yield
        finally:
            connection.connection.execute("PRAGMA synchronous = FULL")
    else:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL synchronous_commit TO OFF")
            yield

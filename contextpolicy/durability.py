"""Transactions whose commit does not wait for the disk (PostgreSQL's asynchronous commit).

A crash of a process loses nothing of them; a power cut may, together with nothing that was
committed before. So only for what is done again then: claims, leases, the text so far. What was
accepted, and what a model was sent and answered, is flushed before anybody is told.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction


@contextmanager
def unflushed() -> Iterator[None]:
    """`transaction.atomic`, without the wait; within another transaction that one decides."""
    connection = transaction.get_connection()
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
    elif connection.vendor == "sqlite":
        # SQLite takes this outside a transaction only, and keeps it until it is told otherwise.
        connection.ensure_connection()
        # Without Django's cursor, which costs more than the statement.
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

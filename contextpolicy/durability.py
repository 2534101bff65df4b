"""Transactions whose commit does not wait for the disk (PostgreSQL's asynchronous commit).

A crash of a process loses nothing of them; a power cut may, together with nothing that was
committed before. So only for what is done again then: claims, leases, the text so far. What was
accepted, and what a model was sent and answered, is flushed before anybody is told.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper


@contextmanager
def unflushed() -> Iterator[None]:
    """`transaction.atomic`, without the wait; within another transaction that one decides."""
    connection = transaction.get_connection()
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
    elif connection.vendor == "sqlite":
        # SQLite takes this outside a transaction only, and keeps it until it is told otherwise.
        tell(connection, "PRAGMA synchronous = NORMAL")
        try:
            with transaction.atomic():
                yield
        finally:
            tell(connection, "PRAGMA synchronous = FULL")
    else:
        with transaction.atomic():
            tell(connection, "SET LOCAL synchronous_commit TO OFF")
            yield


def tell(connection: BaseDatabaseWrapper, setting: str) -> None:
    """One statement that changes a setting of this connection."""
    with connection.cursor() as cursor:
        cursor.execute(setting)

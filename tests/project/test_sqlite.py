"""The write queue of the embedded database: threads take turns, and none waits forever."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler

from project import database_url

pytestmark = pytest.mark.django_db


def handler(path: Path, *, timeout: float) -> ConnectionHandler:
    settings: dict[str, Any] = database_url.build_sqlite_settings(path)
    settings["OPTIONS"] = {**settings["OPTIONS"], "timeout": timeout}
    return ConnectionHandler({"default": settings})


def begin(connection: BaseDatabaseWrapper) -> None:
    connection.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)


def end(connection: BaseDatabaseWrapper) -> None:
    connection.commit()
    connection.set_autocommit(True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "some.sqlite3"
    with closing(sqlite3.connect(path)) as connection:
        # The product uses WAL from its first migration on. SQLite refuses to change the mode,
        # without waiting, while another connection writes.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE counted (n)")
        connection.execute("INSERT INTO counted VALUES (0)")
        connection.commit()
    return path


@pytest.fixture
def foreign(path: Path) -> Iterator[sqlite3.Connection]:
    """Another process's connection, as far as the queue can detect."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        yield connection


def test_many_threads_write_and_none_is_refused(path: Path) -> None:
    connections = handler(path, timeout=20)

    def count() -> None:
        connection = connections["default"]
        for _ in range(20):
            begin(connection)
            with connection.cursor() as cursor:
                (n,) = cursor.execute("SELECT n FROM counted").fetchone()
                cursor.execute("UPDATE counted SET n = %s", [n + 1])
            end(connection)
        connection.close()

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT n FROM counted").fetchone() == (160,)


def test_another_process_that_does_not_end_is_waited_for_and_no_longer(
    path: Path, foreign: sqlite3.Connection
) -> None:
    connection = handler(path, timeout=0.3)["default"]
    connection.ensure_connection()
    foreign.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(OperationalError, match="locked"):
        begin(connection)
    assert 0.3 <= time.monotonic() - began < 5
    foreign.execute("COMMIT")
    # The refused writer does not block other writers.
    begin(connection)
    end(connection)
    connection.close()


def test_a_thread_that_keeps_its_turn_is_waited_for_and_no_longer(path: Path) -> None:
    connections = handler(path, timeout=0.3)
    refused: list[str] = []

    def wait() -> None:
        try:
            begin(connections["default"])
        except OperationalError as error:
            refused.append(str(error))
        connections["default"].close()

    holder = connections["default"]
    begin(holder)
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    assert refused == ["database is locked"]
    # A connection that is closed in its transaction releases its turn.
    holder.close()
    begin(connections["default"])
    connections["default"].rollback()
    connections["default"].close()

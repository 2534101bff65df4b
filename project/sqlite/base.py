"""Queues SQLite transactions: one at a time per process, and the next one starts at once.

SQLite allows one writer. A thread that finds the database locked sleeps and retries with growing
pauses, at most ten times a second. With many threads the database is idle most of the time, and
some threads wait for seconds while others overtake them. Here threads of one process wait for each
other, and the next one polls every millisecond whether another process is done.
"""

import sqlite3
import threading
import time
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base

LOOK_AGAIN = 0.001
# Locks by database: only threads that write to the same database wait for each other.
_turns: dict[str, threading.Lock] = {}


class DatabaseWrapper(base.DatabaseWrapper):
    """The SQLite connection of one thread. It waits for its turn before it writes."""

    has_turn = False
    # Seconds to wait for other writers; None: the timeout of the settings
    # (`databases.write_if_possible`).
    hurry: float | None = None

    @property
    def turn(self) -> threading.Lock:
        """The lock of this process for an open transaction."""
        return _turns.setdefault(str(self.settings_dict["NAME"]), threading.Lock())

    def _start_transaction_under_autocommit(self) -> None:
        """Begin when it is this thread's turn. Raises OperationalError after the usual timeout."""
        usual = float(self.settings_dict["OPTIONS"].get("timeout", 5.0))
        patience = usual if self.hurry is None else self.hurry
        give_up = time.monotonic() + patience
        if not self.turn.acquire(timeout=patience):
            raise OperationalError("database is locked")
        self.has_turn = True
        try:
            with self.wrap_database_errors:
                self._begin(self.connection, give_up=give_up, patience=usual)
        except BaseException:
            self._pass_on()
            raise

    def _begin(self, connection: Any, *, give_up: float, patience: float) -> None:
        """Begin the transaction as soon as no other process writes."""
        begin = f"BEGIN {self.settings_dict['OPTIONS'].get('transaction_mode', '')}"
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while True:
                try:
                    connection.execute(begin)
                    return
                except sqlite3.OperationalError as error:
                    is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not is_busy or time.monotonic() > give_up:
                        raise
                time.sleep(LOOK_AGAIN)
        finally:
            # Statements outside a transaction wait with SQLite's own timeout.
            connection.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")

    def _pass_on(self) -> None:
        """Let the next thread begin."""
        if self.has_turn:
            self.has_turn = False
            self.turn.release()

    def _commit(self) -> None:
        try:
            super()._commit()  # type: ignore[misc]  # Django has it, its stubs do not
        finally:
            self._pass_on()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]  # as above
        finally:
            self._pass_on()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]  # as above
        finally:
            self._pass_on()

"""Makes SQLite's transactions queue: one at a time in a process, and the next begins at once.

SQLite takes one writer. A thread that finds it locked sleeps and looks again, less and less often,
up to ten times a second: a crowd of threads leaves the database idle most of the time, and some
wait for seconds while others pass them. So threads of this process wait for each other here, and
the one whose turn it is looks every millisecond whether another process is done.
"""

import sqlite3
import threading
import time
from typing import Any

from django.db import OperationalError
from django.db.backends.sqlite3 import base

LOOK_AGAIN = 0.001
# By database: only threads that write the same one wait for each other.
_turns: dict[str, threading.Lock] = {}


class DatabaseWrapper(base.DatabaseWrapper):
    """One thread's connection."""

    has_turn = False

    @property
    def turn(self) -> threading.Lock:
        """The lock of the thread of this process that has a transaction open."""
        return _turns.setdefault(str(self.settings_dict["NAME"]), threading.Lock())

    def _start_transaction_under_autocommit(self) -> None:
        """Begin when it is this thread's turn. Raises OperationalError after the usual timeout."""
        patience = float(self.settings_dict["OPTIONS"].get("timeout", 5.0))
        give_up = time.monotonic() + patience
        if not self.turn.acquire(timeout=patience):
            raise OperationalError("database is locked")
        self.has_turn = True
        try:
            with self.wrap_database_errors:
                self._begin(self.connection, give_up=give_up, patience=patience)
        except BaseException:
            self._pass_on()
            raise

    def _begin(self, connection: Any, *, give_up: float, patience: float) -> None:
        """Begin the transaction itself, as soon as no other process writes."""
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
            # Statements outside a transaction wait as SQLite does.
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

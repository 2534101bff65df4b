"""Releases database connections, and explains database errors."""

import errno
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.contrib.sessions.backends.base import UpdateError
from django.db import (
    DatabaseError,
    Error,
    InterfaceError,
    OperationalError,
    close_old_connections,
    connection,
    transaction,
)
from django.utils.translation import gettext_lazy, gettext_noop

from chats.ground.refusals import Refusal

logger = logging.getLogger(__name__)
Given = ParamSpec("Given")
Result = TypeVar("Result")


# Errors for a full disk: messages of the databases, and PostgreSQL's code.
_FULL = re.compile(r"database or disk is full|no space left|disk quota exceeded", re.IGNORECASE)
_FULL_STATES = frozenset({"53100"})
_FULL_NUMBERS = frozenset({errno.ENOSPC, errno.EDQUOT})
# SQLite errors for a file that cannot be extended or created. The disk may be full.
_OF_A_FILE = re.compile(r"disk i/o error|unable to open database file", re.IGNORECASE)
# Seconds that an optional write waits for a lock.
NOTE_SECONDS = 0.25
# Seconds for which a full disk is reported after the last failed write.
_FULL_FOR = 60.0
# Reasons why a server cannot be reached.
CAUSES: Mapping[str, str] = {
    "refused": gettext_noop("the connection was refused"),
    "host_unknown": gettext_noop("the host name is unknown"),
    "login_rejected": gettext_noop("the user name or password was rejected"),
    "address_not_allowed": gettext_noop("it does not accept connections from this address"),
    "database_missing": gettext_noop("the database does not exist"),
    "user_missing": gettext_noop("the user does not exist"),
    "parameter_rejected": gettext_noop(
        "it rejected a startup parameter (set DATABASE_PGBOUNCER=1)"
    ),
    "connections_used_up": gettext_noop("all its connections are in use"),
    "starting_or_stopping": gettext_noop("it is starting or shutting down"),
    "option_invalid": gettext_noop("its URL has an option with an invalid value"),
    "requirement_unmet": gettext_noop("it does not satisfy an option in its URL"),
    "not_permitted": gettext_noop("the user has no permission to connect"),
    "tls_failed": gettext_noop("the TLS connection failed"),
    "no_answer": gettext_noop("its host does not answer"),
    "lost": gettext_noop("the connection was lost"),
    "other": gettext_noop("the connection failed; see the log for the reason"),
}
# The same reasons, by the text of the client's message; the first match counts.
_CAUSES_BY_MESSAGE = (
    (r"connection refused|no such file or directory", "refused"),
    (r"definition of service|could not parse network address", "option_invalid"),
    (
        r"name or service not known|could not translate|failed to resolve|no address associated",
        "host_unknown",
    ),
    (r"authentication failed|no password supplied|no such user", "login_rejected"),
    (r"no pg_hba|pg_hba\.conf", "address_not_allowed"),
    (r"database .* does not exist|no such database", "database_missing"),
    (r"role .* does not exist", "user_missing"),
    (r"unsupported startup parameter", "parameter_rejected"),
    (
        r"too many clients|too many connections|remaining connection slots|no more connections",
        "connections_used_up",
    ),
    (r"starting up|shutting down|recovery mode", "starting_or_stopping"),
    (
        r"invalid (?:[\w\"]+ ){0,3}(?:value|key|number)|bad value|invalid command-line"
        r"|unrecognized configuration",
        "option_invalid",
    ),
    (
        r"hot standby mode|session is (?:not )?read-only|channel binding|method requirement"
        r"|requirepeer|gssapi encryption required|only supports protocol",
        "requirement_unmet",
    ),
    (r"permission denied", "not_permitted"),
    (r"ssl|certificate", "tls_failed"),
    (r"timeout expired|timed out|network is unreachable|no route to host", "no_answer"),
    (
        r"server closed the connection|terminating connection|connection .*(?:closed|lost|reset)",
        "lost",
    ),
    (r"connection failed:|connection is bad:|error connecting in", "other"),
)
# SQLite errors about a value, which are reported as OperationalError.
_OF_A_VALUE = re.compile(r"overflow|too big|too large|malformed json|bad json", re.IGNORECASE)


def is_retryable_error(error: BaseException) -> bool:
    """Return True if the database itself failed, so that a retry may succeed.

    False for errors about a value, such as a number that is too large. True for a full disk.
    """
    if is_full(error):
        return True
    of_database = isinstance(error, OperationalError | InterfaceError)
    return of_database and not _OF_A_VALUE.search(str(error))


class _LastFailures:
    """The last failed write to a full disk and the last failed connection in this process."""

    full_at = float("-inf")
    unreachable: tuple[float, str] = (float("-inf"), "")


def is_full(error: BaseException | None) -> bool:
    """Return True if a full disk, here or on the database server, caused the error.

    If so, also records the time for `is_disk_full`. May write a small file to find out.
    """
    while error is not None:
        number = error.errno if isinstance(error, OSError) else None
        state = getattr(error, "sqlstate", None)
        text = str(error) if isinstance(error, Error | OSError) else ""
        if number in _FULL_NUMBERS or state in _FULL_STATES or _FULL.search(text):
            _LastFailures.full_at = time.monotonic()
            return True
        if isinstance(error, OperationalError) and _OF_A_FILE.search(text) and not has_room():
            _LastFailures.full_at = time.monotonic()
            return True
        error = error.__cause__ or error.__context__
    return False


def has_room() -> bool:
    """Return True if a small file can be written to the data folder."""
    path = settings.DATA_DIR / f".room-{os.getpid()}-{threading.get_ident()}"
    try:
        path.write_bytes(b"\0" * 65_536)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return True


def is_disk_full() -> bool:
    """Return True if a write of this process recently failed because of a full disk."""
    return time.monotonic() - _LastFailures.full_at < _FULL_FOR


def describe_connection_error(error: BaseException) -> str:
    """Return the reason why a database cannot be reached, in English.

    For example "the connection was refused". Empty if the error contains no such reason, because
    the database is only busy. A pool only reports a timeout; its last failed connection in the
    last minute then provides the reason.
    """
    found = _cause_in(str(error))
    if not found and "couldn't get a connection" in str(error):
        at, cause = _LastFailures.unreachable
        found = cause if time.monotonic() - at < _FULL_FOR else ""
    return found


def _cause_in(text: str) -> str:
    found = (code for said, code in _CAUSES_BY_MESSAGE if re.search(said, text, re.IGNORECASE))
    return CAUSES.get(next(found, ""), "")


class StorageFull(Refusal):
    """A disk is full: writes fail, reads work. Nothing was written."""

    code = "storage_full"
    status = 507
    sentence = gettext_noop(
        "This server’s disk is full. Nothing was changed, and stored data can still be read. Ask "
        "an operator to free space, then try again."
    )
    retry_after = 60


class DatabaseBusy(Refusal):
    """The database did not answer in time. Nothing was written."""

    code = "database_busy"
    status = 503
    sentence = gettext_noop(
        "The database is busy. Nothing was changed; try again in a few seconds."
    )
    retry_after = 5


class DatabaseUnreachable(DatabaseBusy):
    """The database cannot be reached. Nothing was written."""

    sentence = gettext_noop(
        "The database cannot be used: {cause}. Nothing was changed; try again soon."
    )


def build_database_refusal(error: BaseException) -> Refusal:
    if is_full(error):
        return StorageFull()
    cause = describe_connection_error(error)
    return DatabaseUnreachable(cause=gettext_lazy(cause)) if cause else DatabaseBusy()


class PoolFailures(logging.Handler):
    """Records why the pool could not connect, because its users only see a timeout."""

    def emit(self, record: logging.LogRecord) -> None:
        """Record the cause given in a line of the pool's log."""
        if cause := _cause_in(record.getMessage()):
            _LastFailures.unreachable = (time.monotonic(), cause)


logging.getLogger("psycopg.pool").addHandler(PoolFailures())


def raise_if_passing(error: BaseException) -> None:
    """Raise a temporary database error again, so that a later task retries the work.

    Any other error is ignored.
    """
    if is_retryable_error(error):
        raise error


def give_back() -> None:
    """Close this thread's database connection before a long wait, unless in a transaction."""
    if not connection.in_atomic_block:
        connection.close()


def release_pooled_connection() -> None:
    """Release this thread's connection if it is from a pool, unless in a transaction.

    SQLite has one connection per thread, and a new one has to read the whole schema.
    """
    if connection.settings_dict["OPTIONS"].get("pool"):
        give_back()


def write_if_possible(what: str, write: Callable[[], object], *, is_repeated: bool = False) -> bool:
    """Run an optional write, such as the time of last use. It waits only briefly for locks.

    If it fails, the error is logged and not raised, so that a read request continues. Return True
    if it succeeded. `is_repeated`: the caller tries it again, so a failure causes no warning.
    """
    try:
        with _open_hurried_transaction(NOTE_SECONDS):
            write()
    except (DatabaseError, UpdateError) as error:
        # Records a full disk for the health check.
        is_full(error)
        level = logging.INFO if is_repeated else logging.WARNING
        logger.log(level, "%s was not noted: %s", what, type(error).__name__)
        return False
    return True


@contextmanager
def _open_hurried_transaction(seconds: float) -> Iterator[None]:
    """Open a transaction that waits at most `seconds` for locks."""
    outer = getattr(connection, "hurry", None)
    connection.hurry = seconds  # type: ignore[attr-defined]  # of project.sqlite; others ignore it
    try:
        with transaction.atomic():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute(f"SET LOCAL lock_timeout = {int(seconds * 1000)}")
            yield
    finally:
        connection.hurry = outer  # type: ignore[attr-defined]  # as above


def close_connections_after(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Wrap a function so that unusable database connections are closed afterwards."""

    def called(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return function(*given, **named)
        finally:
            close_old_connections()

    return called

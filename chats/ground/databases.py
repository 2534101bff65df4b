"""Gives database connections back to their pool, which has fewer than a process has threads."""

import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, close_old_connections, connection

Given = ParamSpec("Given")
Result = TypeVar("Result")


# What SQLite says of a value and reports as trouble of its own.
_OF_A_VALUE = re.compile(r"overflow|too big|too large|malformed json|bad json", re.IGNORECASE)


def may_pass(error: BaseException) -> bool:
    """Return True if an error is the database's own trouble, which a later try may not meet.

    An error about a value, such as a sum that is too large, stays.
    """
    of_database = isinstance(error, OperationalError | InterfaceError)
    return of_database and not _OF_A_VALUE.search(str(error))


def raise_if_passing(error: BaseException) -> None:
    """Raise an error again that is the database's own trouble: a later task begins here again."""
    if may_pass(error):
        raise error


def give_back() -> None:
    """Give this thread's connection back before a long wait; inside a transaction it stays."""
    if not connection.in_atomic_block:
        connection.close()


def spare() -> None:
    """Give this thread's connection back where others may need it: a pool has them.

    SQLite has one for each thread, and a new one reads the whole schema.
    """
    if connection.settings_dict["OPTIONS"].get("pool"):
        give_back()


def briefly(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make a function that leaves a usable connection, or none, to whoever has the thread next."""

    def called(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return function(*given, **named)
        finally:
            close_old_connections()

    return called

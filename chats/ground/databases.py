"""Gives database connections back to their pool, which has fewer than a process has threads."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import close_old_connections, connection

Given = ParamSpec("Given")
Result = TypeVar("Result")


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

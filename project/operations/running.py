"""Finds processes of the product that still use the database."""

import fcntl
import os
from contextlib import suppress

from django.conf import settings
from django.db import connection
from redis.exceptions import RedisError

from chats.ground import heartbeats
from project.operations.refused import OperationRefused

OTHERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name <> %s AND backend_type = 'client backend'"
)
# The pool of this process may have more than one connection; this name identifies them.
OWN = f"palimpsest-operator-{os.getpid()}"


def name_own_connections() -> None:
    """Name the connections of this process, so that PostgreSQL can distinguish them.

    Call this before the first connection is opened.
    """
    if connection.vendor == "postgresql":
        connection.settings_dict["OPTIONS"]["application_name"] = OWN


def refuse_while_running() -> None:
    """Raise OperationRefused if a process of the product, or another client, is connected."""
    found = list_running_processes()
    if found:
        raise OperationRefused(
            "still_running",
            f"Palimpsest is still running ({', '.join(found)}). Stop the web processes, the"
            " workers and the schedule. A killed worker counts for 45 seconds.",
        )


def list_running_processes() -> list[str]:
    """Return the processes that use the database, if they can be found."""
    found = []
    if is_launcher_running():
        found.append("the launcher")
    with suppress(RedisError, OSError):
        alive = heartbeats.select_workers(heartbeats.list_heartbeats())
        found += [f"worker {one.name}" for one in alive if one.age < heartbeats.LATE]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(OTHERS, [OWN])
            if clients := cursor.fetchone()[0]:
                found.append(f"{clients} connections to the database")
    return found


def is_launcher_running() -> bool:
    """Return True if `manage.py serve` runs with this data folder."""
    path = settings.DATA_DIR / "serve.lock"
    if not path.exists():
        return False
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False

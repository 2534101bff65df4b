"""A chat that takes longer to store than the lease is stored once; a killed worker is detected."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.programs import apart, python, run, until
from tests.faults.stores import Cluster, Postgres, count
from tests.support.repository import ROOT

pytestmark = pytest.mark.services
# They take about two seconds to store, twice the lease.
MESSAGES = 20_000
BEGIN = f"""
from benchmarks import imports
imports.set_up()
print(imports.begun(1, {MESSAGES}, megabytes=0).pk)
"""
# Transactions that have been open for half a lease.
STORING = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database()
AND xact_start < now() - interval '0.5 seconds' AND pid <> pg_backend_pid()
"""
Worker = subprocess.Popen[bytes]


@pytest.fixture
def database(cluster: Cluster) -> Iterator[Postgres]:
    """A database with all tables."""
    made = Postgres(cluster, "leases")
    yield made
    made.close()


@pytest.fixture
def work(database: Postgres, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """Start a worker that imports the one chat of a file."""
    env = {
        **apart(tmp_path),
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "DATABASE_URL": database.url,
        "REDIS_URL": f"unix://{tmp_path}/no-broker.sock",
        "LEASE_SECONDS": "1",
        "HEARTBEAT_EVERY": "0.2",
        "MAX_ATTEMPTS": "2",
        "MESSAGES_PER_CHAT": str(MESSAGES),
        "IMPORT_APART_BYTES": "1000000000",
    }
    database.put_tables(env)
    import_id = run(python("-c", BEGIN), env=env).split()[-1]
    started: list[Worker] = []

    def start() -> Worker:
        command = python("-m", "benchmarks.imports", "--work", import_id)
        started.append(subprocess.Popen(command, cwd=ROOT, env=env))  # our own program, no shell
        return started[-1]

    yield start
    for worker in started:
        worker.kill()
        worker.wait()


def assert_stored_once(database: Postgres) -> None:
    """Check that the import completed and its chat exists once."""
    row = database.rows("SELECT state, code, messages FROM chats_fileimport")[0]
    assert (row["state"], row["code"], row["messages"]) == ("done", "", MESSAGES)
    assert count(database, "chats_importedchat") == 1
    assert count(database, "chats_message") == MESSAGES


def test_a_second_worker_leaves_a_long_storing_alone(
    database: Postgres, work: Callable[[], Worker]
) -> None:
    first = work()
    until(lambda: database.rows(STORING), seconds=60, what="the storing")
    second = work()
    holders = set()
    while first.poll() is None or second.poll() is None:
        row = database.rows("SELECT lease_token FROM chats_fileimport WHERE place = 0")
        holders |= {one["lease_token"] for one in row} - {None}
        time.sleep(0.05)
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(holders) == 1
    assert_stored_once(database)


def test_a_worker_that_was_killed_while_storing_is_replaced(
    database: Postgres, work: Callable[[], Worker]
) -> None:
    first = work()
    until(lambda: database.rows(STORING), seconds=60, what="the storing")
    first.kill()
    first.wait()
    assert count(database, "chats_message") == 0
    second = work()
    until(lambda: second.poll() is not None, seconds=60, what="the end of the second worker")
    assert second.returncode == 0
    assert_stored_once(database)

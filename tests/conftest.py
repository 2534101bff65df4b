"""Shared fixtures: Alice owns the chat, Bob has access to shared chats, Charlie has no access."""

import gc
import importlib
import itertools
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.models import User
from django.core.management.commands import migrate
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite
from django.test.utils import setup_databases, teardown_databases
from hypothesis import HealthCheck, settings
from pytest_django import Settings
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from chats.actions import lifecycle
from chats.ground import queue, rates
from chats.memory.search import index_schedule
from chats.models import Chat, ProviderAccount
from chats.people import key_uses
from chats.record import outbox
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from project import tables

# So that their assertions show their values in failures, like those of a test. Before their import.
pytest.register_assert_rewrite("tests.faults.promises", "tests.support")

from tests.faults.harness import new_folder  # noqa: E402  # as above
from tests.faults.shares import EVERY_ROW, is_of_today, rows_of_other_days  # noqa: E402  # as above
from tests.faults.stores import Cluster  # noqa: E402  # as above
from tests.support.clocks import NOON  # noqa: E402  # as above

# Number of examples for each property; `make test-all` uses the second for the files of the day.
for name, examples in (("short", 40), ("whole", 300)):
    settings.register_profile(
        name,
        parent=settings(),
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("short")

# Django leaves connections to an in-memory database open, because closing the last one would delete
# the database. Connections of other threads are closed here: Python 3.13 warns about open ones.
_close = SQLite.close


def close_own_connection(connection: SQLite) -> None:
    """Close a connection. An in-memory database is closed only outside the main thread."""
    own = threading.get_ident()
    # Django has no public name for the thread of a connection.
    is_own = connection._thread_ident == own  # type: ignore[attr-defined]
    is_other = is_own and own != threading.main_thread().ident
    if is_other and not connection.in_atomic_block:
        BaseDatabaseWrapper.close(connection)
    else:
        _close(connection)


# Replaces the method for all tests, which Django's types do not allow.
SQLite.close = close_own_connection  # type: ignore[assignment,method-assign]

# Each client of Django creates its own middleware, which would list the static files again. The
# files do not change during a run.
_list_static_files = WhiteNoiseMiddleware.add_files_from_finders
_static_files: dict[tuple[str, int], dict[str, StaticFile]] = {}


def add_listed_static_files(middleware: WhiteNoiseMiddleware) -> None:
    """Add the static files to the middleware, listed once for each prefix and maximum age."""
    key = (middleware.static_prefix, middleware.max_age)
    if key not in _static_files:
        from_root, middleware.files = middleware.files, {}
        _list_static_files(middleware)
        _static_files[key], middleware.files = middleware.files, from_root
    middleware.files.update(_static_files[key])


WhiteNoiseMiddleware.add_files_from_finders = add_listed_static_files

# The algorithm of the product with the least memory and time: a hash takes 1 ms instead of 100 ms.
Argon2PasswordHasher.time_cost = 1
Argon2PasswordHasher.memory_cost = 64


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_db_modify_db_settings: None, django_db_blocker: Any
) -> Iterator[None]:
    """Create the test database as a new instance does, which is faster than each migration.

    `tests/project/test_tables.py` compares the results.
    """
    migrate_tables = migrate.Command.handle

    def create_and_migrate(self: migrate.Command, *arguments: Any, **options: Any) -> Any:
        tables.create_in_empty_database()
        return migrate_tables(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch, django_db_blocker.unblock():
        patch.setattr(migrate.Command, "handle", create_and_migrate)
        created = setup_databases(verbosity=0, interactive=False, serialized_aliases=())
    yield
    with django_db_blocker.unblock():
        teardown_databases(created, verbosity=0)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Select the number of examples before a module is imported, because properties read it there.

    An option of the command line applies to all files.
    """
    if isinstance(collector, pytest.Module):
        chosen: str | None = collector.config.getoption("--hypothesis-profile")
        of_today = "whole" if is_of_today(collector.nodeid) else "short"
        settings.load_profile(chosen or of_today)


# Tests that start processes are slow.
SLOW = re.compile(r"mark\.(slow|processes)\b")


@cache
def can_hold_slow_tests(file: Path) -> bool:
    """Return True if a test file, or a `conftest.py` of its folders, names a mark of slow tests."""
    folders = [folder for folder in file.parents if Path(__file__).parent in folder.parents]
    texts = [file, *(folder / "conftest.py" for folder in folders)]
    return any(SLOW.search(text.read_text(encoding="utf-8")) for text in texts if text.exists())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without slow tests, so that a run of slow tests does not import them."""
    is_for_slow_tests = config.option.markexpr == "slow" and collection_path.suffix == ".py"
    return (is_for_slow_tests and not can_hold_slow_tests(collection_path)) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that start processes as slow, except two that are part of the short run.

    Tests marked `whole` belong to the full form of a long program, which `make whole` runs. Those
    marked `in_turn` run on every fourth day. A test named by its id always runs.
    """
    are_named = all("::" in argument for argument in config.args)
    left_out = set() if are_named else rows_of_other_days(items)
    if not EVERY_ROW:
        left_out |= {item for item in items if item.get_closest_marker("whole")}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.get_closest_marker("processes") and not item.get_closest_marker("short"):
            item.add_marker(pytest.mark.slow)
    hidden = [item for item in items if item.get_closest_marker("slow")]
    hidden = [item for item in hidden if not can_hold_slow_tests(item.path)]
    if hidden:
        raise pytest.UsageError(f"`-m slow` leaves out {hidden}: name the mark in their file.")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse tests with equal ids, and keep the others out of each later search for garbage.

    Of tests with equal ids, xdist runs one and reports success.
    """
    ids = Counter(item.nodeid for item in session.items)
    if repeated := [own_id for own_id, number in ids.items() if number > 1]:
        raise pytest.UsageError(f"Several tests have the id {repeated[0]}.")
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for tests whose processes need one."""
    folder = new_folder()
    server = Cluster(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def empty_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without files, for settings that need one. Tests write nothing to it."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture(scope="session")
def checkpoint_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Unused files in one folder: `tmp_path` lists the folders of all earlier tests."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return (folder / f"ledger_checkpoint_{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def own_checkpoint_file(settings: Settings, checkpoint_files: Iterator[Path]) -> None:
    """A checkpoint file for each test, because it would survive the rollback of the database."""
    settings.LEDGER_CHECKPOINT_FILE = str(next(checkpoint_files))


@pytest.fixture(autouse=True)
def long_search_limits(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits of search and of its index: a busy machine exceeds the defaults."""
    settings.REFERENCES_SECONDS = 10
    monkeypatch.setattr(index_schedule, "TASK_SECONDS", 60.0)


@pytest.fixture
def now() -> datetime:
    """A fixed time for functions that take the clock as an argument."""
    return NOON


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """Record the tasks instead of sending them to the broker.

    Tests with a real broker override it.
    """
    tasks: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(
        queue, "publish_task", lambda task, arguments, **_: tasks.append((task, arguments))
    )
    return tasks


@pytest.fixture(autouse=True)
def full_buckets() -> None:
    """Reset the rate limit counters: the next test has people with the same ids."""
    rates.REQUESTS.clear()
    rates.MESSAGES.clear()
    rates.WARM_UPS.clear()
    rates.METER_UPDATES.clear()
    rates.GATEWAY.clear()


@pytest.fixture(autouse=True)
def no_later_key_uses() -> Iterator[None]:
    """Forget the uses of API keys that a thread would note during a later test.

    That test has no such key, and often no database. The logged traceback also disturbed a test
    that parsed Python: threads share the state of CPython's parser.
    """
    yield
    key_uses.UNNOTED.waiting.clear()


@pytest.fixture(autouse=True)
def no_webhooks() -> None:
    """Disable webhooks by default. A test that creates a webhook enables them."""
    outbox.SUBSCRIBERS.know((), seconds=3600)


@pytest.fixture
def counter() -> ApproximateCounter:
    """A token counter without the vocabulary, which takes a second to load."""
    return ApproximateCounter()


@pytest.fixture
def alice(db: None) -> User:
    """The owner of the test's chats."""
    return User.objects.create_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    """A person who can see chats shared with him."""
    return User.objects.create_user("bob")


@pytest.fixture
def charlie(db: None) -> User:
    """A person without access to anything of Alice's."""
    return User.objects.create_user("charlie")


@pytest.fixture
def demo_model(db: None) -> ModelSpec:
    """The demo model, which needs no server, as the default."""
    ProviderAccount.objects.get_or_create(slug="demo", defaults={"name": "Demo", "kind": "demo"})
    model, _ = ModelSpec.objects.get_or_create(
        slug="demo",
        defaults={
            "provider": "demo",
            "name": "demo",
            "context_window": 128_000,
            "is_default": True,
        },
    )
    return model


@pytest.fixture
def chat(alice: User, demo_model: ModelSpec, now: datetime) -> Chat:
    """Alice's empty chat."""
    return lifecycle.create_chat(owner=alice, now=now)


def on_ledger(statements: str) -> None:
    """Create or drop the ledger's triggers."""
    triggers: Any = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in getattr(triggers, statements)[connection.vendor]:
            cursor.execute(statement)


@pytest.fixture
def ledger_guarded_again(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Restore the triggers after the flush.

    Set up before the database, so it is torn down later.
    """
    yield
    with django_db_blocker.unblock():
        on_ledger("CREATE")
        connection.close()


@pytest.fixture
def transactional_ledger(ledger_guarded_again: None, transactional_db: None) -> Iterator[None]:
    """A database visible to other threads and processes.

    The flush after the test may empty the ledger.
    """
    yield
    on_ledger("DROP")

"""Fixed people and fixed parts: Alice owns, Bob may, Charlie may not."""

import importlib
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.sqlite3.base import DatabaseWrapper as SQLite
from hypothesis import HealthCheck, settings
from pytest_django import Settings

from chats.actions import lifecycle
from chats.ground import queue, rates
from chats.models import Chat, ProviderAccount
from chats.record import outbox
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests.faults.halves import EVERY_ROW
from tests.faults.harness import new_folder
from tests.faults.stores import Cluster

# So that its assertions say what they found, as those of a test do.
pytest.register_assert_rewrite("tests.faults.promises")

# How many examples of each property; `make test-all` asks for the second.
for name, examples in (("short", 40), ("whole", 300)):
    settings.register_profile(
        name,
        parent=settings(),
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("short")

# Django leaves connections to a database in memory open, because closing the last one would delete
# the database. Those of other threads are closed: Python 3.13 warns where one is not.
_close = SQLite.close


def close_own_connection(connection: SQLite) -> None:
    """Close a connection; one to a database in memory only outside the main thread."""
    own = threading.get_ident()
    # Django has no public name for the thread of a connection.
    is_own = connection._thread_ident == own  # type: ignore[attr-defined]
    is_other = is_own and own != threading.main_thread().ident
    if is_other and not connection.in_atomic_block:
        BaseDatabaseWrapper.close(connection)
    else:
        _close(connection)


# Replaces the method for all tests, which the types of Django do not foresee.
SQLite.close = close_own_connection  # type: ignore[assignment,method-assign]

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as slow what starts processes; two tests do so in the short form all the same.

    What is marked `whole` belongs to the full form of a long programme, which `make whole` runs.
    """
    if not EVERY_ROW:
        left_out = [item for item in items if item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
    for item in items:
        if item.get_closest_marker("processes") and not item.get_closest_marker("short"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server of the tests' own, for those whose processes need one."""
    folder = new_folder()
    server = Cluster(folder)
    yield server
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def own_checkpoint_file(settings: Settings, tmp_path: Path) -> None:
    """A file of its own for each test: the database forgets its checkpoints, a file would not."""
    settings.LEDGER_CHECKPOINT_FILE = str(tmp_path / "ledger_checkpoint")


@pytest.fixture
def now() -> datetime:
    """A fixed time for everything that takes the clock as an argument."""
    return NOON


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """The tasks that would have gone to the broker; tests that want a real one start it."""
    tasks: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(
        queue, "publish", lambda task, arguments, **_: tasks.append((task, arguments))
    )
    return tasks


@pytest.fixture(autouse=True)
def full_buckets() -> None:
    """Empty the counts of requests: the next test has people with the same ids."""
    rates.REQUESTS.clear()
    rates.MESSAGES.clear()
    rates.WARM_UPS.clear()
    rates.GATEWAY.clear()


@pytest.fixture(autouse=True)
def no_webhooks() -> None:
    """Nobody asks for them in each test; one that makes a webhook makes them known."""
    outbox.SUBSCRIBERS.know((), seconds=3600)


@pytest.fixture
def counter() -> ApproximateCounter:
    """Counts without the vocabulary, which takes a second to load."""
    return ApproximateCounter()


@pytest.fixture
def alice(db: None) -> User:
    """Owns what the test is about."""
    return User.objects.create_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    """May see what is shared with him."""
    return User.objects.create_user("bob")


@pytest.fixture
def charlie(db: None) -> User:
    """May not see anything of Alice's."""
    return User.objects.create_user("charlie")


@pytest.fixture
def demo_model(db: None) -> ModelSpec:
    """The model that needs nothing, as the default."""
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
    """Set up before the database, so it is over after its flush: then the triggers stand again."""
    yield
    with django_db_blocker.unblock():
        on_ledger("CREATE")
        connection.close()


@pytest.fixture
def transactional_ledger(ledger_guarded_again: None, transactional_db: None) -> Iterator[None]:
    """A database that other threads and processes see; the flush after it may empty the ledger."""
    yield
    on_ledger("DROP")

"""Fixed people and fixed parts: Alice owns, Bob may, Charlie may not."""

import importlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import HealthCheck, settings

from chats import library, queue
from chats.models import Chat, ProviderAccount
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec

# So that its assertions say what they found, as those of a test do.
pytest.register_assert_rewrite("tests.faults.promises")

# Of each property; a developer's run is shorter.
EXAMPLES = 300 if "CI" in os.environ else 60
settings.register_profile(
    "suite",
    parent=settings(),
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def now() -> datetime:
    """A fixed time for everything that takes the clock as an argument."""
    return NOON


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
    """The tasks that would have gone to the broker; tests that want a real one start it."""
    tasks: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(queue, "publish", lambda task, arguments: tasks.append((task, arguments)))
    return tasks


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
    return library.create_chat(owner=alice, now=now)


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

"""Fixtures: a worker inside the test's transaction, with a provider that plays scripts."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User
from pytest_django import Settings

from chats.ground import databases
from chats.models import Chat, ChatState, Turn
from chats.prompt import tokenizer
from chats.streams import connection
from contextpolicy.models import GroupOwner
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.marked_language import use_marked_catalogue
from tests.chats.rebuilding import not_rebuilt
from tests.chats.states import keep_a_state, lay
from tests.fakes.receiver import Receiver, receiving
from tests.support.live_events import ScriptedBus
from tests.support.scripted_worker import InlineWorker, Script, ScriptedProvider

# Load the production tokenizer once, so that pages use it from the first test on.
tokenizer.load_encoding()


@pytest.fixture
def work() -> Callable[..., InlineWorker]:
    """Process a turn to its end: `work(turn, [script of call 1], [script of call 2], …)`."""

    def working(turn: Turn, *scripts: Script) -> InlineWorker:
        worker = InlineWorker(ScriptedProvider(list(scripts)))
        async_to_sync(worker.turn)(turn.pk)
        turn.refresh_from_db()
        return worker

    return working


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """A webhook server on the private network, allowed in the settings."""
    with receiving() as running:
        settings.ALLOWED_PRIVATE_WEBHOOKS = [running.host]
        yield running


@pytest.fixture
def built_again(db: None) -> Iterator[None]:
    """Rebuild every provider call of the test from rows at teardown. Skips erased calls."""
    yield
    wrong = [fault for fault in not_rebuilt(some=False) if not fault.endswith("erased")]
    assert wrong == []


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Separate stream counters for this test."""
    monkeypatch.setattr(connection, "STREAMS", connection.Streams())
    monkeypatch.setattr(databases, "close_old_connections", list)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> ScriptedBus:
    """The bus of every stream in the test."""
    bus = ScriptedBus()
    streams = connection.Streams()
    monkeypatch.setattr(streams, "hub", lambda: bus)
    monkeypatch.setattr(connection, "STREAMS", streams)
    monkeypatch.setattr(connection, "PING_SECONDS", 0.01)
    return bus


@pytest.fixture
def sales(alice: User, bob: User) -> Group:
    """A group with the members Alice, who owns it, and Bob."""
    group = Group.objects.create(name="Sales")
    for user in (alice, bob):
        user.groups.add(group)
    GroupOwner.objects.create(group=group, user=alice)
    return group


@pytest.fixture
def policy(db: None, now: datetime) -> Callable[..., None]:
    """Assign a policy to the whole instance."""

    def setting(**values: Any) -> None:
        made = create_policy(slug="p", name="P", values=values, actor="system", now=now)
        assign_policy(policy=made, level="instance", actor="system", now=now)

    return setting


@pytest.fixture
def kept(chat: Chat, now: datetime) -> ChatState:
    """A state with one field."""
    keep_a_state(now=now)
    return lay(chat, {"destination": "Oslo"}, now=now)


@pytest.fixture
def marked_catalogue() -> Iterator[None]:
    """Translate each sentence to itself with marks around it."""
    with use_marked_catalogue():
        yield

"""A worker in the test's own transaction, with a provider that says what it is told."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone
from pytest_django import Settings

from chats.ground.live import Frame
from chats.models import Turn
from chats.providers.base import Finished, ProviderError, ProviderRequest, TextDelta
from chats.turns.opening import open_turn
from chats.turns.run import TurnAttempt, run
from contextpolicy.engine.tokens import ApproximateCounter
from tests.chats.rebuilding import not_rebuilt
from tests.fakes.receiver import Receiver, receiving

Script = list[Any]


class ScriptedProvider:
    """Each call plays the next script: events to yield, errors to raise, functions to run."""

    def __init__(self, scripts: list[Script]) -> None:
        self.scripts = scripts
        self.worker: InlineWorker | None = None
        self.requests: list[ProviderRequest] = []
        self.cancelled = 0

    async def stream(self, request: ProviderRequest) -> AsyncIterator[Any]:
        """Play the next script."""
        self.requests.append(request)
        script = self.scripts.pop(0) if self.scripts else [TextDelta("ok"), Finished("stop")]
        try:
            for item in script:
                if isinstance(item, ProviderError):
                    raise item
                if callable(item):
                    await item(self.worker)
                else:
                    yield item
                    await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def aclose(self) -> None:
        """Nothing to give back."""


class InlineWorker:
    """Runs database functions in the test's own connection."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.name = "test"
        self.counter = ApproximateCounter()
        self.clock: Callable[[], datetime] = timezone.now
        self.scripted = provider
        provider.worker = self
        self.frames: list[Frame] = []
        # The names of what was done in the database.
        self.ways: list[str] = []
        self.runs: dict[uuid.UUID, TurnAttempt] = {}

    async def aside(self, function: Callable[..., Any], **arguments: Any) -> Any:
        return await self.db(function, **arguments)

    async def db(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """In the thread of the test."""
        self.ways.append(function.__name__)
        return await sync_to_async(function, thread_sensitive=True)(**arguments)

    async def turn(self, turn_id: uuid.UUID) -> None:
        """Work on one turn to its end."""
        opened = self.db(
            open_turn, turn_id=turn_id, worker=self.name, counter=self.counter, now=self.clock()
        )
        await run(opened=opened, asked_at=time.monotonic(), worker=self, runs=self.runs)

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Keep the frame."""
        self.frames.append(frame)

    def provider(self, account: Any) -> ScriptedProvider:
        """The scripted one, whatever the account."""
        del account
        return self.scripted


@pytest.fixture
def work() -> Callable[..., InlineWorker]:
    """Work on a turn to its end: `work(turn, [script of call 1], [script of call 2], …)`."""

    def working(turn: Turn, *scripts: Script) -> InlineWorker:
        worker = InlineWorker(ScriptedProvider(list(scripts)))
        async_to_sync(worker.turn)(turn.pk)
        turn.refresh_from_db()
        return worker

    return working


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    """A server in the own network that an operator allowed."""
    with receiving() as running:
        settings.ALLOWED_PRIVATE_WEBHOOKS = [running.host]
        yield running


@pytest.fixture
def built_again(db: None) -> Iterator[None]:
    """Every call that a test made is built again from rows when it is over; erased ones cannot."""
    yield
    wrong = [fault for fault in not_rebuilt(some=False) if not fault.endswith("erased")]
    assert wrong == []

"""A worker inside the test's transaction, with a provider that plays scripts."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.utils import timezone

from chats.ground.live import Frame
from chats.prompt.tokenizer import O200kCounter
from chats.providers.base import Finished, ProviderError, ProviderRequest, TextDelta
from chats.turns.attempt import TurnAttempt, run_opened_turn
from chats.turns.opening import open_turn
from contextpolicy.engine.messages.tokens import TokenCounter

Script = list[Any]


class ScriptedProvider:
    """A provider whose calls each play the next script: events, errors to raise, or functions."""

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
        """Do nothing: the provider holds no resources."""


class InlineWorker:
    """A worker that runs database functions on the connection of the test."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.name = "test"
        self.counter: TokenCounter = O200kCounter()
        self.clock: Callable[[], datetime] = timezone.now
        self.scripted = provider
        provider.worker = self
        self.frames: list[Frame] = []
        # Names of the database functions that ran.
        self.ways: list[str] = []
        self.runs: dict[uuid.UUID, TurnAttempt] = {}

    async def aside(self, function: Callable[..., Any], **arguments: Any) -> Any:
        return await self.db(function, **arguments)

    async def db(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """Run a database function in the thread of the test."""
        self.ways.append(function.__name__)
        return await sync_to_async(function, thread_sensitive=True)(**arguments)

    async def turn(self, turn_id: uuid.UUID) -> None:
        """Process one turn to its end."""
        opened = self.db(
            open_turn, turn_id=turn_id, worker=self.name, counter=self.counter, now=self.clock()
        )
        await run_opened_turn(opened=opened, asked_at=time.monotonic(), worker=self, runs=self.runs)

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Store the frame."""
        self.frames.append(frame)

    def provider(self, account: Any) -> ScriptedProvider:
        """Return the scripted provider for every account."""
        del account
        return self.scripted

"""The event loop of a worker process, which runs all its turns.

The Celery task of a turn blocks its thread until the turn ends, so Celery's concurrency limits the
number of turns. Further turns stay in the broker, from which another worker may fetch them.
"""

import asyncio
import gc
import logging
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

import uvloop
from django.conf import settings
from django.db import (
    DatabaseError,
    InterfaceError,
    OperationalError,
    connection,
)
from django.utils import timezone
from redis.exceptions import RedisError

from chats.ground import databases, live, queue
from chats.ground.live import Frame
from chats.ground.request_ids import REQUEST
from chats.ground.tracing import build_carrier, trace_span
from chats.models import ProviderAccount
from chats.prompt.tokenizer import O200kCounter, load_encoding
from chats.providers import registry
from chats.providers.base import Provider, Timeouts
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns import writes
from chats.turns.attempt import TurnAttempt, run_opened_turn
from chats.turns.attempt_state import SHUTDOWN, STOP
from chats.turns.opening import ClaimedTurn, open_turn
from chats.turns.worker.executor import DeadlineExecutor
from chats.turns.worker.heartbeats import LeaseKeeper

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

# SQLite has one writer: more threads would only wait for each other.
DB_THREADS = {"sqlite": 2, "postgresql": 4}
# Few, because each may hold a connection for as long as a search takes.
SPARE_THREADS = 2
# The maximum time in seconds that a call waits behind others. At the end of a reply the reader
# already has the text; at its start the reader is still waiting.
PATIENCE: dict[Callable[..., Any], float] = {writes.close_step: 0.25}
# The monotonic time at which a task requested its turn.
ASKED_AT: ContextVar[float | None] = ContextVar("asked_at", default=None)
# Seconds that a call waits for an unavailable database. The lease lasts longer.
DB_PATIENCE = 20.0
# Time limit for releasing turns when a worker shuts down, in seconds.
HAND_BACK_SECONDS = 3.0


class Runtime:
    """The event loop, its helpers, and the turns that run on it."""

    def __init__(self) -> None:
        self.name = settings.WORKER_NAME
        self.counter = O200kCounter()
        # Load the vocabulary before any lease runs. Otherwise the first turns would load it
        # concurrently and block the loop for longer than a short lease.
        load_encoding()
        load_what_calls_need()
        self.clock: Callable[[], datetime] = timezone.now
        self.threads = DeadlineExecutor(DB_THREADS[connection.vendor])
        self.spare = ThreadPoolExecutor(SPARE_THREADS, thread_name_prefix="aside")
        self.runs: dict[uuid.UUID, TurnAttempt] = {}
        # The openings of unfinished turns, including those in progress.
        self.begun: set[DatabaseCall[ClaimedTurn | None]] = set()
        self.closing = False
        self.drainer: threading.Thread | None = None
        self.loop = uvloop.new_event_loop()
        self.bus = live.connect_to_bus(settings.REDIS_URL)
        self.writer = live.FrameWriter(self.bus, coalesce=settings.COALESCE_SECONDS)
        self.thread = threading.Thread(target=self.loop.run_forever, name="turns", daemon=True)
        self.thread.start()
        beats = LeaseKeeper(worker=self, runs=self.runs)
        # Exclude everything loaded so far from garbage collection. Each full collection would pause
        # all replies for about 0.1 seconds.
        gc.collect()
        gc.freeze()
        self.tasks = [
            self.schedule(work)
            for work in (self.hear_stops(), beats.keep_leases(), beats.checkpoint())
        ]

    def schedule(self, work: Coroutine[Any, Any, Result]) -> "Future[Result]":
        """Start a coroutine on the loop from another thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, turn_id: uuid.UUID) -> None:
        """Work on a turn until it ends or is released. Does nothing if it cannot be claimed.

        A worker that is shutting down returns the task to the broker.
        """
        if self.closing:
            queue.publish_task(queue.RUN_TURN, {"turn_id": str(turn_id)})
            return
        # Start opening here and let the loop join later: each switch to the loop takes longer than
        # many statements and blocks other turns.
        opened = DatabaseCall(self.threads, open_turn, self.opening(turn_id))
        self.begun.add(opened)
        over: Future[None] = Future()
        work = partial(self.work, turn_id, opened, over, REQUEST.get(), build_carrier())
        opened.attempt.add_done_callback(lambda _: self.schedule(work()))
        over.result()

    def opening(self, turn_id: uuid.UUID) -> dict[str, Any]:
        """Return the keyword arguments of `open_turn` for this worker."""
        return {
            "turn_id": turn_id,
            "worker": self.name,
            "counter": self.counter,
            "now": self.clock(),
        }

    async def work(
        self,
        turn_id: uuid.UUID,
        opened: "DatabaseCall[ClaimedTurn | None]",
        over: "Future[None]",
        request_id: str,
        carrier: dict[str, str],
    ) -> None:
        """Work on one turn and report its end. Exceptions never stop the loop."""
        REQUEST.set(request_id)
        ASKED_AT.set(opened.asked_at)
        try:
            with trace_span("reply", {"turn.id": str(turn_id)}, carrier=carrier):
                await run_opened_turn(
                    opened=opened.answer(), asked_at=opened.asked_at, worker=self, runs=self.runs
                )
        except Exception:
            logger.exception("turn %s ended without a result; its lease will run out", turn_id)
        finally:
            self.begun.discard(opened)
            over.set_result(None)

    async def db(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function in a thread, see `DatabaseCall`."""
        return await DatabaseCall(self.threads, function, arguments).answer()

    async def aside(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run an optional database function in a spare thread, without retries."""
        call = partial(call_and_release, function, arguments)
        return await asyncio.wrap_future(self.spare.submit(call))

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        self.writer.put(turn_id, frame)

    async def renew_streams(self, turn_ids: Iterable[uuid.UUID]) -> None:
        """Postpone the expiry of the turns' streams on the live bus."""
        await self.writer.renew_streams(turn_ids)

    def provider(self, account: Account) -> Provider:
        return registry.get_provider(account, timeouts=Timeouts(**settings.PROVIDER_TIMEOUTS))

    async def hear_stops(self) -> None:
        """Interrupt turns of this worker whose ids appear on the stop stream."""
        # Old entries name turns that have ended. Reading them again has no effect.
        last = "0-0"
        while True:
            try:
                answer = await live.read_stream_entries(self.bus, {live.STOPS: last})
            except (RedisError, OSError):
                await asyncio.sleep(0.5)
                continue
            for entry, fields in answer.get(live.STOPS, []):
                last = entry
                current = self.runs.get(uuid.UUID(fields["turn"]))
                if current:
                    current.interrupt(STOP)

    def start_draining(self, seconds: float) -> threading.Thread:
        """Start draining in a separate thread. Repeating it has no effect.

        Celery exits only after its tasks have ended, and a summary can take minutes. Turns that
        waited for that would lose their worker instead of being released.
        """
        self.closing = True
        if self.drainer is None:
            self.drainer = threading.Thread(target=self.drain, args=(seconds,), name="drain")
            self.drainer.start()
        return self.drainer

    def drain(self, seconds: float) -> None:
        """Give running turns `seconds` to end, then release them."""
        give_up = time.monotonic() + seconds
        while self.begun and time.monotonic() < give_up:
            time.sleep(0.05)
        give_up = time.monotonic() + HAND_BACK_SECONDS
        while self.begun and time.monotonic() < give_up:
            # Repeated, because a claim in progress may have become a running turn.
            self.loop.call_soon_threadsafe(self.interrupt_all)
            time.sleep(0.05)
        self.schedule(self.close()).result(timeout=5)
        # Stop the loop before the interpreter exits. A thread still in C code could crash the
        # process.
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=5)

    def interrupt_all(self) -> None:
        """Tell all running turns that this process is shutting down."""
        for current in list(self.runs.values()):
            current.interrupt(SHUTDOWN)

    async def close(self) -> None:
        """Send the last frames and close all connections."""
        for task in self.tasks:
            task.cancel()
        await self.writer.close()
        await registry.aclose_all()
        await self.bus.aclose()


class DatabaseCall(Generic[Result]):
    """A database function that starts in a thread at once.

    A connection error is retried for `DB_PATIENCE` seconds. That is safe after a commit with
    unknown outcome: all writes are fenced, so a repeated write matches no row and raises
    `LeaseLost`.
    """

    def __init__(
        self, threads: DeadlineExecutor, function: Callable[..., Result], arguments: dict[str, Any]
    ) -> None:
        self.threads = threads
        self.call = partial(call_and_release, function, arguments)
        self.patience = PATIENCE.get(function, 0)
        self.asked_at = time.monotonic()
        self.attempt = self.submit()

    def submit(self) -> "Future[Result]":
        since = None if self.patience else ASKED_AT.get()
        return self.threads.submit(self.call, patience=self.patience, since=since)

    async def answer(self) -> Result:
        """Wait for the function; return its result or raise its exception."""
        give_up = time.monotonic() + DB_PATIENCE
        pause = 0.1
        while True:
            try:
                if self.attempt.done():
                    return self.attempt.result()
                return await asyncio.wrap_future(self.attempt)
            except (OperationalError, InterfaceError) as error:
                if time.monotonic() > give_up:
                    raise
                logger.warning("database: %s, trying again", type(error).__name__)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
                self.attempt = self.submit()


def load_what_calls_need() -> None:
    """Import the adapters of configured providers before any lease starts."""
    with suppress(DatabaseError):
        registry.load_adapters(set(ProviderAccount.objects.values_list("kind", flat=True)))


def call_and_release(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Call the function in the current thread, then close this thread's database connection."""
    return databases.close_connections_after(function)(**arguments)

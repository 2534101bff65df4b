"""The asyncio loop of a worker process, on which all its turns run.

The Celery task of a turn waits in its thread until the turn is over. Celery's own concurrency
limits how many that are; further turns stay in the broker, where another worker may fetch them.
"""

import asyncio
import gc
import logging
import threading
import time
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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
from chats.models import ProviderAccount
from chats.prompt.tokenizer import O200kCounter
from chats.providers import registry
from chats.providers.base import Provider, Timeouts
from chats.providers.registry import ProviderAccountValue as Account
from chats.turns import steps
from chats.turns.opening import Opening, open_turn
from chats.turns.run import SHUTDOWN, STOP, TurnAttempt, run
from chats.turns.worker.executor import DeadlineExecutor
from chats.turns.worker.heartbeats import LeaseKeeper

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

# SQLite takes one writer: there more threads only wait for each other.
DB_THREADS = {"sqlite": 2, "postgresql": 4}
# Few: each may hold a connection for as long as a search takes.
SPARE_THREADS = 2
# The seconds that a call may stand behind others. The reader of a reply that ends has its words
# already; a reader who waits for the first words has nothing yet.
PATIENCE: dict[Callable[..., Any], float] = {steps.close_step: 0.25}
# The seconds that a call waits for a database that went away; the lease outlives it.
DB_PATIENCE = 20.0
# The time in which a worker that ends tries to hand its turns back.
HAND_BACK_SECONDS = 3.0


class Runtime:
    """The loop, its helpers and the turns that run on it."""

    def __init__(self) -> None:
        self.name = settings.WORKER_NAME
        self.counter = O200kCounter()
        # Loads the vocabulary once, before any lease runs: the first turns would do it at the same
        # time, each in its thread, and hold the loop up longer than a short lease lasts.
        self.counter.count("")
        load_what_calls_need()
        self.clock: Callable[[], datetime] = timezone.now
        self.threads = DeadlineExecutor(DB_THREADS[connection.vendor])
        self.spare = ThreadPoolExecutor(SPARE_THREADS, thread_name_prefix="aside")
        self.runs: dict[uuid.UUID, TurnAttempt] = {}
        # The openings of turns that are not over, also those that are still on their way.
        self.begun: set[DatabaseCall[Opening | None]] = set()
        self.closing = False
        self.drainer: threading.Thread | None = None
        self.loop = uvloop.new_event_loop()
        self.bus = live.connect(settings.REDIS_URL)
        self.writer = live.FrameWriter(self.bus, coalesce=settings.COALESCE_SECONDS)
        self.thread = threading.Thread(target=self.loop.run_forever, name="turns", daemon=True)
        self.thread.start()
        beats = LeaseKeeper(worker=self, runs=self.runs)
        # All that is loaded by now stays: the collector would walk through it again and again, each
        # time with every reply standing still for a tenth of a second.
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
        """Work on a turn; return when it is over, handed back, or another worker's.

        A worker that ends puts the task back instead of beginning it.
        """
        if self.closing:
            queue.publish(queue.RUN_TURN, {"turn_id": str(turn_id)})
            return
        # Begun here already, and the loop hears of it when it is done: each way through the loop
        # takes longer than many a statement, and takes the interpreter from the others.
        opened = DatabaseCall(self.threads, open_turn, self.opening(turn_id))
        self.begun.add(opened)
        over: Future[None] = Future()
        opened.attempt.add_done_callback(lambda _: self.schedule(self.work(turn_id, opened, over)))
        over.result()

    def opening(self, turn_id: uuid.UUID) -> dict[str, Any]:
        """Return the arguments of `open_turn`."""
        return {
            "turn_id": turn_id,
            "worker": self.name,
            "counter": self.counter,
            "now": self.clock(),
        }

    async def work(
        self, turn_id: uuid.UUID, opened: "DatabaseCall[Opening | None]", over: "Future[None]"
    ) -> None:
        """Work on one turn and report when it is over; nothing it raises may end the loop."""
        try:
            await run(opened=opened.answer(), asked_at=opened.asked_at, worker=self, runs=self.runs)
        except Exception:
            logger.exception("turn %s ended without a result; its lease will run out", turn_id)
        finally:
            self.begun.discard(opened)
            over.set_result(None)

    async def db(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function in a thread; see `DatabaseCall`."""
        return await DatabaseCall(self.threads, function, arguments).answer()

    async def aside(self, function: Callable[..., Result], **arguments: Any) -> Result:
        """Run a database function once, in threads for what replies can do without."""
        call = partial(in_database, function, arguments)
        return await asyncio.wrap_future(self.spare.submit(call))

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Send a frame on the live bus."""
        self.writer.put(turn_id, frame)

    def provider(self, account: Account) -> Provider:
        """Return the adapter for a provider account."""
        return registry.provider_for(account, timeouts=Timeouts(**settings.PROVIDER_TIMEOUTS))

    async def hear_stops(self) -> None:
        """Interrupt a turn of ours whose id appears on the stop stream."""
        # Old stops name turns that are over; reading them again does nothing.
        last = "0-0"
        while True:
            try:
                answer = await live.read(self.bus, {live.STOPS: last})
            except (RedisError, OSError):
                await asyncio.sleep(0.5)
                continue
            for entry, fields in answer.get(live.STOPS, []):
                last = entry
                current = self.runs.get(uuid.UUID(fields["turn"]))
                if current:
                    current.interrupt(STOP)

    def start_draining(self, seconds: float) -> threading.Thread:
        """Begin to drain, once, in a thread of its own.

        Celery ends only when its tasks are over, and a summary can take minutes: turns that waited
        for that would lose their worker instead of being handed back.
        """
        self.closing = True
        if self.drainer is None:
            self.drainer = threading.Thread(target=self.drain, args=(seconds,), name="drain")
            self.drainer.start()
        return self.drainer

    def drain(self, seconds: float) -> None:
        """Give running turns some time, then hand them back."""
        give_up = time.monotonic() + seconds
        while self.begun and time.monotonic() < give_up:
            time.sleep(0.05)
        give_up = time.monotonic() + HAND_BACK_SECONDS
        while self.begun and time.monotonic() < give_up:
            # Repeated, because a claim that was on its way may have become a run since.
            self.loop.call_soon_threadsafe(self.interrupt_all)
            time.sleep(0.05)
        self.schedule(self.close()).result(timeout=5)
        # The loop ends before the interpreter does: a thread that is in C code then may crash the
        # process.
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=5)

    def interrupt_all(self) -> None:
        """Tell every running turn that this process ends."""
        for current in list(self.runs.values()):
            current.interrupt(SHUTDOWN)

    async def close(self) -> None:
        """Send the last frames and close connections."""
        for task in self.tasks:
            task.cancel()
        await self.writer.close()
        await registry.aclose_all()
        await self.bus.aclose()


class DatabaseCall(Generic[Result]):
    """A call of a database function in a thread, begun at once.

    A connection that broke is tried again for a while. That is safe after a commit of unknown fate
    too: every write is fenced, so its repetition finds no row and raises `LeaseLost`.
    """

    def __init__(
        self, threads: DeadlineExecutor, function: Callable[..., Result], arguments: dict[str, Any]
    ) -> None:
        self.threads = threads
        self.call = partial(in_database, function, arguments)
        self.patience = PATIENCE.get(function, 0)
        self.asked_at = time.monotonic()
        self.attempt = self.submit()

    def submit(self) -> "Future[Result]":
        """Make one attempt, in a thread."""
        return self.threads.submit(self.call, patience=self.patience)

    async def answer(self) -> Result:
        """Return or raise what the function does."""
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
    """Import the adapters of the servers that are set up, for the same reason as the vocabulary."""
    with suppress(DatabaseError):
        registry.load_adapters(set(ProviderAccount.objects.values_list("kind", flat=True)))


def in_database(function: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """Call the function, and leave a usable connection or none to the next one."""
    return databases.briefly(function)(**arguments)

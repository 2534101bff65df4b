"""Renews the claims of this process's summaries, and hands them back on shutdown.

Each summary runs in its own thread, which mostly waits for a model. Another thread renews all
claims on a timer. On shutdown, the process cancels its model calls, and another worker starts those
summaries again.
"""

import asyncio
import logging
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from django.db import DatabaseError, close_old_connections

from chats.ground import databases

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Renew = Callable[[dict[uuid.UUID, str]], object]


class HandedBack(Exception):
    """This process is shutting down, so another worker must write the summary."""


@dataclass(slots=True)
class Writing:
    """A summary in progress: its row, the token of its claim, and a method to cancel its call."""

    row_id: uuid.UUID
    token: str
    cancel: Callable[[], object] | None = None


class Summaries:
    """The summaries that this process writes.

    `most` is the maximum number at a time. None means no limit, because the process runs
    nothing else.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.writing: dict[str, Writing] = {}
        self.taken = 0
        self.most: int | None = None
        self.closing = False

    @contextmanager
    def place(self) -> Iterator[bool]:
        """Reserve a slot for one more summary while the block runs.

        Yields False if none is free.
        """
        with self.lock:
            is_free = not self.closing and (self.most is None or self.taken < self.most)
            self.taken += is_free
        try:
            yield is_free
        finally:
            with self.lock:
                self.taken -= is_free

    @contextmanager
    def held(self, *, row_id: uuid.UUID, token: str) -> Iterator[None]:
        """Renew the worker's claim on a compaction while the block runs."""
        with self.lock:
            self.writing[token] = Writing(row_id, token)
        try:
            yield
        finally:
            with self.lock:
                del self.writing[token]

    def wait_for(self, work: Coroutine[Any, Any, Result], *, token: str) -> Result:
        """Run the coroutine in a new event loop and return its result.

        Raises `HandedBack` on shutdown. Releases the database connection first, because a pool has
        fewer connections than there are threads.
        """
        databases.give_back()
        writing = self.writing.get(token)

        async def cancellable() -> Result:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            if writing is not None and task is not None:
                with self.lock:
                    writing.cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            if self.closing:
                work.close()
                raise HandedBack
            return await work

        try:
            return asyncio.run(cancellable())
        except asyncio.CancelledError as error:
            raise HandedBack from error
        finally:
            if writing is not None:
                with self.lock:
                    writing.cancel = None

    def hand_back(self) -> None:
        """Cancel all model calls of summaries and refuse new ones. Called on shutdown."""
        with self.lock:
            self.closing = True
            for writing in self.writing.values():
                if writing.cancel:
                    # The work of a closed loop is already done.
                    with suppress(RuntimeError):
                        writing.cancel()

    def keep_leases(self, renew: Renew) -> threading.Thread:
        """Renew all claims periodically, in a thread that ends with the process."""
        keeper = threading.Thread(target=self.beat, args=(renew,), name="claims", daemon=True)
        keeper.start()
        return keeper

    def beat(self, renew: Renew) -> None:
        """At every heartbeat, call `renew` with the tokens of all claims by row id.

        If the database is unreachable, the next heartbeat retries. An attempt with a lost claim
        notices at its next write.
        """
        while True:
            time.sleep(settings.HEARTBEAT_EVERY)
            with self.lock:
                tokens = {writing.row_id: writing.token for writing in self.writing.values()}
            if not tokens:
                continue
            try:
                renew(tokens)
            except DatabaseError as error:
                logger.warning(
                    "heartbeat for %d summaries failed: %s", len(tokens), type(error).__name__
                )
            finally:
                close_old_connections()


here = Summaries()

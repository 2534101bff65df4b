"""Reads the live bus for the viewers of a web process."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import cast

from redis.asyncio import Redis
from redis.exceptions import RedisError

from chats.ground.bus_clock import parse_entry_time_ms
from chats.ground.live import PERSON, Entry, Frame, read_stream_entries

CONTROL = "palimpsest:control"
QUEUE_LENGTH = 4000
# The reader's pause per watched stream, in seconds.
REST_PER_STREAM = 0.00003


@dataclass(slots=True, eq=False)
class Subscription:
    """One viewer's frames.

    `lagged` is True once the viewer reads too slowly and frames were dropped.
    """

    frames: deque[Frame] = field(default_factory=deque)
    lagged: bool = False
    waiting: asyncio.Future[None] | None = None

    def put(self, frame: Frame) -> None:
        """Deliver a frame, or mark the viewer as lagging."""
        if len(self.frames) < QUEUE_LENGTH:
            self.frames.append(frame)
        else:
            self.lagged = True
        self.wake()

    def wake(self) -> None:
        """Wake the viewer, because there is a frame or its stream ends."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    async def next(self, *, seconds: float) -> Frame | None:
        """Return the next frame, or None after `seconds` of silence."""
        if not self.frames:
            # A queue with a timeout would create two tasks per frame.
            loop = asyncio.get_running_loop()
            self.waiting = loop.create_future()
            silence = loop.call_later(seconds, self.wake)
            try:
                await self.waiting
            finally:
                silence.cancel()
        return self.frames.popleft() if self.frames else None


def read_frame(entry: Entry, *, key: str) -> Frame:
    """Return the frame of an entry. A person's notices get the time of the bus as their offset."""
    entry_id, fields = entry
    frame = Frame.from_fields(fields, key=key)
    if key.startswith(PERSON):
        # The clock of the process that sent the notice may be wrong.
        frame.offset = parse_entry_time_ms(entry_id)
    return frame


class Hub:
    """The reader of a web process: one blocking XREAD for all watched streams."""

    def __init__(self, client: "Redis") -> None:
        self.client = client
        self.watched: dict[str, set[Subscription]] = {}
        # Reading starts at the oldest entry, because "$" would miss a wake-up between two reads.
        self.positions: dict[str, str] = {CONTROL: "0-0"}
        self.task: asyncio.Task[None] | None = None
        # Whether a read is in progress, and whether a wake-up will end it.
        self.is_reading = self.is_woken = False

    @asynccontextmanager
    async def follow(self, *keys: str) -> AsyncIterator[Subscription]:
        """Yield a subscription to streams, from their oldest stored frames and without gaps."""
        subscription = Subscription()
        try:
            for key in keys:
                await self.begin(key, subscription)
            await self.wake()
            yield subscription
        finally:
            for key in keys:
                self.leave(key, subscription)

    async def begin(self, key: str, subscription: Subscription) -> None:
        """Register with the reader, starting at the oldest entry.

        If the key is already watched, the reader is past that entry, so the stream is read again.
        Frame offsets identify duplicates.
        """
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.read_forever())
        self.watched.setdefault(key, set()).add(subscription)
        if key in self.positions:
            with suppress(RedisError, OSError):
                kept = cast(list[Entry], await self.client.xrange(key))
                frames = [read_frame(entry, key=key) for entry in kept]
                # These frames precede those that the reader delivered during the read.
                subscription.frames.extendleft(reversed(frames))
        self.positions.setdefault(key, "0-0")

    def leave(self, key: str, subscription: Subscription) -> None:
        """Stop delivering frames of this stream. Streams without viewers are not read."""
        self.watched.get(key, set()).discard(subscription)
        if not self.watched.get(key):
            self.watched.pop(key, None)
            self.positions.pop(key, None)

    async def wake(self) -> None:
        """End the current read, so that the next one includes new keys."""
        if not self.is_reading or self.is_woken:
            return
        self.is_woken = True
        try:
            await self.client.xadd(CONTROL, {"w": "1"}, maxlen=10, approximate=True)
        except (RedisError, OSError):
            # The next viewer retries. Until then, viewers fall back to the row after a silence.
            self.is_woken = False

    async def read_forever(self) -> None:
        """Deliver new entries to the viewers of each stream. Survives an unavailable bus."""
        was_away = False
        while True:
            self.is_reading, self.is_woken = True, False
            asked = dict(self.positions)
            try:
                answer = await read_stream_entries(self.client, asked)
            except (RedisError, OSError):
                was_away = True
                await asyncio.sleep(0.5)
                continue
            finally:
                self.is_reading = False
            if was_away:
                self.tell_of_return()
                was_away = False
            for key, entries in answer.items():
                # If the position differs, the key's viewers changed during the read. New viewers
                # get everything from the oldest entry in the next read.
                if self.positions.get(key) != asked[key]:
                    continue
                self.positions[key] = entries[-1][0]
                for entry in entries:
                    self.deliver(key, entry)
            # Each read names all streams, so with many streams it should return more at once.
            await asyncio.sleep(REST_PER_STREAM * len(self.positions))

    def deliver(self, key: str, entry: Entry) -> None:
        """Deliver an entry of a live stream to all subscriptions of its key."""
        watching = self.watched.get(key)
        if watching:
            frame = read_frame(entry, key=key)
            for subscription in watching:
                subscription.put(frame)

    def tell_of_return(self) -> None:
        """Notify people's pages that notices may have been lost.

        Viewers of a turn detect gaps themselves.
        """
        for key, watching in self.watched.items():
            if key.startswith(PERSON):
                for subscription in watching:
                    subscription.put(Frame(kind="resumed", attempt=0, step=0, key=key))

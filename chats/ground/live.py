"""The live bus: carries the frames of a running turn in one Redis Stream per turn.

Another stream per person tells their pages in which chat something changed.

Disposable: every frame can be lost, because the turn's row is checkpointed and each text frame
carries its offset, so a reader sees a gap and fills it from the row. One writer task per worker and
one reader per web process: two pipelines on two connections would reorder.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from chats.ground import cancelling

logger = logging.getLogger(__name__)

KEY = "palimpsest:turn:"
PERSON = "palimpsest:person:"
STOPS = "palimpsest:stops"
CONTROL = "palimpsest:control"
LENGTH = 5000
# Pages that come back after a while look at the rows anyway.
NOTICES_KEPT = 100
# A stream outlives its turn's last step by so much, should no end frame come.
SECONDS_KEPT = 900
# And the end of its turn by so much. A reader that comes later gets the reply from its row.
SECONDS_AFTER_END = 60
BLOCK_MS = 5000
QUEUE_LENGTH = 4000
# The shortest rest of the writer, in seconds.
URGENT_SECONDS = 0.002
# So many turns at once double the writer's rest.
CROWD = 100
# The rest of the reader for each stream that it watches, in seconds.
REST_PER_STREAM = 0.00003

# An id and the fields of one stream entry.
Entry = tuple[str, dict[str, str]]


@dataclass(slots=True)
class Frame:
    """One event of a turn. `kind`: text, reasoning, state, step, anew, restarted or end.

    In a person's stream, `changed` names a chat by its `text` and a time in milliseconds by its
    `offset`, and `resumed` says that the bus was away. `key` is the stream that a reader found it
    in.

    `anew` takes the step's text back; the frame's number `anew` says how often that was done.
    `offset` is the number of code points of the step's text before `text`.
    """

    kind: str
    attempt: int
    step: int
    offset: int = 0
    text: str = ""
    anew: int = 0
    key: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the frame as the stream stores it."""
        return {
            "k": self.kind,
            "a": self.attempt,
            "s": self.step,
            "n": self.anew,
            "o": self.offset,
            "t": self.text,
        }

    @classmethod
    def from_fields(cls, fields: dict[str, str], *, key: str) -> "Frame":
        """Make the frame from the fields of a stream's entry."""
        return cls(
            kind=fields["k"],
            attempt=int(fields["a"]),
            step=int(fields["s"]),
            # Frames of an older worker lack it.
            anew=int(fields.get("n", 0)),
            offset=int(fields["o"]),
            text=fields["t"],
            key=key,
        )

    @property
    def beginning(self) -> tuple[int, int, int]:
        """The text that this is about: attempt, step, and how often it began anew."""
        return self.attempt, self.step, self.anew

    @property
    def is_words(self) -> bool:
        """True for text or thoughts of the model, False for events about them."""
        return self.kind in {"text", "reasoning"}

    @property
    def is_urgent(self) -> bool:
        """True for the first words of a step and for its end."""
        return self.kind == "end" or (self.is_words and not self.offset)

    def absorbs(self, later: "Frame") -> bool:
        """Join a text frame that continues this one; False when it must stand alone."""
        if self.kind != later.kind or not self.is_words:
            return False
        if self.beginning != later.beginning:
            return False
        self.text += later.text
        return True


def turn_key(turn_id: uuid.UUID) -> str:
    """Return the stream of a turn."""
    return f"{KEY}{turn_id}"


def person_key(user_id: int) -> str:
    """Return the stream in which a person's pages are told of changes."""
    return f"{PERSON}{user_id}"


def connect(url: str) -> "Redis":
    """Make a client for the bus: short timeouts, no retries of its own, enough connections."""
    return Redis.from_url(
        url,
        # The responses of this version of the protocol cost less to read.
        protocol=2,
        decode_responses=True,
        socket_connect_timeout=2,
        socket_timeout=BLOCK_MS / 1000 + 5,
        max_connections=64,
        retry=Retry(NoBackoff(), 0),
    )


async def read(client: "Redis", positions: Mapping[str, str]) -> dict[str, list[Entry]]:
    """Return the entries after the given positions, by stream; wait `BLOCK_MS` for the first."""
    answer = await client.xread(cast(Any, dict(positions)), block=BLOCK_MS, count=500)
    return dict(cast(list[tuple[str, list[Entry]]], answer))


def add(to: "Redis", key: str, frame: Frame) -> Any:
    """Add an entry to a stream; return what the client or its pipeline returns for that."""
    return to.xadd(key, cast(Any, frame.fields()), maxlen=LENGTH, approximate=True)


class FrameWriter:
    """Collects frames and sends them every `coalesce` seconds in one pipeline, in order.

    The first words of a step and its end do not wait that long: somebody waits for them. With many
    turns at once the writer rests longer, up to three times: rarer sendings cost less.
    """

    def __init__(self, client: "Redis", *, coalesce: float) -> None:
        self.client = client
        self.coalesce = coalesce
        self.pending: dict[uuid.UUID, list[Frame]] = {}
        # One pipeline for all sendings, after each of which it is empty: making one copies some
        # hundred entries.
        # As a transaction, so that a reader of several turns wakes once and gets all of it.
        self.pipeline = client.pipeline(transaction=True)
        self.wake = asyncio.Event()
        # The turns that have something urgent to say.
        self.urgent: set[uuid.UUID] = set()
        self.hurry = asyncio.Event()
        self.is_down = False
        self.task: asyncio.Task[None] | None = None

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Queue a frame; never waits and never fails. Only from the writer's own loop."""
        frames = self.pending.setdefault(turn_id, [])
        if not frames or not frames[-1].absorbs(frame):
            frames.append(frame)
        self.wake.set()
        if frame.is_urgent:
            self.urgent.add(turn_id)
            self.hurry.set()
        if self.task is None:
            self.task = asyncio.create_task(self.write_forever())

    async def write_forever(self) -> None:
        """Send what was queued, then rest, so that many small tokens become one entry."""
        clock = asyncio.get_running_loop().time
        while True:
            await self.wake.wait()
            self.wake.clear()
            turns = set(self.pending)
            await self.flush(turns)
            rested_at = clock() + self.coalesce * min(1 + len(turns) / CROWD, 3)
            # Urgent words may come without end; frames that wait are sent at the rest's end.
            while clock() < rested_at and await self.is_hurried(before=rested_at):
                await self.flush(self.urgent & self.pending.keys())

    async def is_hurried(self, *, before: float) -> bool:
        """Wait for something urgent; False when the rest ended without it."""
        # Many replies begin at the same time; this sends their first words together.
        await asyncio.sleep(min(self.coalesce, URGENT_SECONDS))
        try:
            async with asyncio.timeout_at(before):
                await self.hurry.wait()
        except TimeoutError:
            return False
        return True

    async def flush(self, turns: Collection[uuid.UUID]) -> None:
        """Send what these turns have queued; a bus that is down costs the frames, not the turn."""
        pending = {turn_id: self.pending.pop(turn_id) for turn_id in turns}
        self.urgent.clear()
        self.hurry.clear()
        if not pending:
            return
        try:
            await self.send(pending)
        except (RedisError, OSError) as error:
            if not self.is_down:
                logger.warning("live bus unreachable, rows carry on: %s", type(error).__name__)
            self.is_down = True
        else:
            self.is_down = False

    async def send(self, pending: Mapping[uuid.UUID, Sequence[Frame]]) -> None:
        """Send all in one pipeline; a single text goes without one, in two thirds of the time."""
        entries = [
            (turn_key(turn_id), frame) for turn_id, frames in pending.items() for frame in frames
        ]
        if len(entries) == 1 and entries[0][1].is_words:
            await add(self.client, *entries[0])
            return
        for key, frame in entries:
            add(self.pipeline, key, frame)
            if not frame.is_words:
                # Each step begins with such a frame, so a key never lives on without an end.
                is_end = frame.kind == "end"
                self.pipeline.expire(key, SECONDS_AFTER_END if is_end else SECONDS_KEPT)
        await self.pipeline.execute()

    async def close(self) -> None:
        """Send what is left and stop."""
        if self.task:
            await cancelling.end(self.task)
        await self.flush(set(self.pending))


@dataclass(slots=True, eq=False)
class Subscription:
    """One viewer's frames. `lagged` is set when it reads too slowly to hold them all."""

    frames: deque[Frame] = field(default_factory=deque)
    lagged: bool = False
    waiting: asyncio.Future[None] | None = None

    def put(self, frame: Frame) -> None:
        """Hand over a frame, or mark the viewer as lagging."""
        if len(self.frames) < QUEUE_LENGTH:
            self.frames.append(frame)
        else:
            self.lagged = True
        self.wake()

    def wake(self) -> None:
        """End the wait for a frame."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    async def next(self, *, seconds: float) -> Frame | None:
        """Return the next frame, or None after `seconds` of silence."""
        if not self.frames:
            # A queue with a timeout would make two tasks for each frame.
            loop = asyncio.get_running_loop()
            self.waiting = loop.create_future()
            silence = loop.call_later(seconds, self.wake)
            try:
                await self.waiting
            finally:
                silence.cancel()
        return self.frames.popleft() if self.frames else None


class Hub:
    """The one reader of a web process: one blocking XREAD over all watched turns."""

    def __init__(self, client: "Redis") -> None:
        self.client = client
        self.watched: dict[str, set[Subscription]] = {}
        # From the oldest entry: with "$" a wake-up between two reads would be lost.
        self.positions: dict[str, str] = {CONTROL: "0-0"}
        self.task: asyncio.Task[None] | None = None
        # Is a read in progress, and will it end because somebody woke the reader?
        self.is_reading = self.is_woken = False

    @asynccontextmanager
    async def follow(self, *keys: str) -> AsyncIterator[Subscription]:
        """Yield a subscription to streams, from their oldest kept frames on, without a gap."""
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
        """Register with the reader, which begins with the oldest entry.

        When the key is watched already, the reader is past that, so all that it has read is read
        again. The offsets of the frames sort out what comes twice.
        """
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(self.read_forever())
        self.watched.setdefault(key, set()).add(subscription)
        if key in self.positions:
            with suppress(RedisError, OSError):
                kept = cast(list[Entry], await self.client.xrange(key))
                frames = [Frame.from_fields(fields, key=key) for _, fields in kept]
                # Before those that the reader handed over meanwhile.
                subscription.frames.extendleft(reversed(frames))
        self.positions.setdefault(key, "0-0")

    def leave(self, key: str, subscription: Subscription) -> None:
        """Hand over no more frames of this stream; one that nobody watches is not read."""
        self.watched.get(key, set()).discard(subscription)
        if not self.watched.get(key):
            self.watched.pop(key, None)
            self.positions.pop(key, None)

    async def wake(self) -> None:
        """End the current read, because it knows only the keys it began with."""
        if not self.is_reading or self.is_woken:
            return
        self.is_woken = True
        try:
            await self.client.xadd(CONTROL, {"w": "1"}, maxlen=10, approximate=True)
        except (RedisError, OSError):
            # The next viewer tries again; until then silence sends these viewers to the row.
            self.is_woken = False

    async def read_forever(self) -> None:
        """Hand each new entry to the viewers of its turn; survive a bus that goes away."""
        was_away = False
        while True:
            self.is_reading, self.is_woken = True, False
            asked = dict(self.positions)
            try:
                answer = await read(self.client, asked)
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
                # Otherwise its viewers left meanwhile, and those who came are owed it from its
                # oldest entry on, which the next read finds.
                if self.positions.get(key) != asked[key]:
                    continue
                self.positions[key] = entries[-1][0]
                for _, fields in entries:
                    self.deliver(key, fields)
            # A read names every stream, so with many streams each read should find more at once.
            await asyncio.sleep(REST_PER_STREAM * len(self.positions))

    def deliver(self, key: str, fields: dict[str, str]) -> None:
        """Deliver one entry to its viewers."""
        watching = self.watched.get(key)
        if watching:
            frame = Frame.from_fields(fields, key=key)
            for subscription in watching:
                subscription.put(frame)

    def tell_of_return(self) -> None:
        """Tell each person's pages that notices may be lost; a turn's viewers see it themselves."""
        for key, watching in self.watched.items():
            if key.startswith(PERSON):
                for subscription in watching:
                    subscription.put(Frame(kind="resumed", attempt=0, step=0, key=key))

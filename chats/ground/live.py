"""The live bus: one Redis Stream per turn, with the frames of the running turn.

A second kind of stream, one per person, announces changed chats to the person's pages. All frames
may be lost, because the turn's row is checkpointed: text frames have offsets, so a reader detects a
gap and fills it from the row. Each worker has one writer task, and each web process one reader,
because two pipelines on two connections would reorder frames.
"""

import asyncio
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
LENGTH = 5000
# Pages that reconnect later read the rows anyway.
NOTICES_KEPT = 100
# Expiry of a person's notices, in seconds after the last one. They hold ids of chats only.
NOTICE_SECONDS = 900
# Expiry of a turn's stream, in seconds. The worker's heartbeats renew it, so it passes at most this
# long after the end of the turn or of its worker. Later readers get the reply from its row.
TURN_SECONDS = 60
# Longest wait for the bus when expiries are renewed, in seconds.
RENEWAL_SECONDS = 2
BLOCK_MS = 5000
# The writer's shortest pause, in seconds.
URGENT_SECONDS = 0.002
# Number of turns that doubles the writer's pause.
CROWD = 100

# Kinds of frames about tool calls.
CALL_KINDS = frozenset({"call", "arguments", "calls", "result"})

# The id and fields of a stream entry.
Entry = tuple[str, dict[str, str]]


@dataclass(slots=True)
class Frame:
    """One event of a turn.

    `kind`: text, reasoning, state, step, anew, restarted, end, or a kind below. `offset`: number of
    code points of the step's text before `text`. `key`: the stream that the frame was read from.
    `logprobs`: the log probabilities of `text`
    (`providers.logprobs.TokenLog.take_entries`). A frame of kind `anew` discards the step's
    text; the number `anew` counts these restarts.

    Frames about the step's tool calls have the kinds `call` (a call begins: its id and name as
    JSON), `arguments` (more of its arguments), `calls` (all calls are complete and run now: the
    length of the arguments of each, as JSON) and `result` (a call has ended). `place` is the
    position of the call in its step. The `offset` of a result is its length; a long result has no
    `text`.

    A person's stream has two other kinds. `changed` contains a chat id in `text`; readers set
    `offset` to the time of the entry in milliseconds. `resumed` means that the bus was unavailable.
    """

    kind: str
    attempt: int
    step: int
    offset: int = 0
    text: str = ""
    anew: int = 0
    key: str = ""
    logprobs: str = ""
    place: int = 0

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "k": self.kind,
            "a": self.attempt,
            "s": self.step,
            "n": self.anew,
            "o": self.offset,
            "t": self.text,
        }
        if self.logprobs:
            found["l"] = self.logprobs
        if self.place:
            found["c"] = self.place
        return found

    @classmethod
    def from_fields(cls, fields: dict[str, str], *, key: str) -> "Frame":
        """Return the frame that an entry of a live stream contains."""
        return cls(
            kind=fields["k"],
            attempt=int(fields["a"]),
            step=int(fields["s"]),
            # Missing in frames of older workers.
            anew=int(fields.get("n", 0)),
            offset=int(fields["o"]),
            text=fields["t"],
            key=key,
            logprobs=fields.get("l", ""),
            place=int(fields.get("c", 0)),
        )

    @property
    def beginning(self) -> tuple[int, int, int]:
        """Identifies the text to which the frame belongs: attempt, step, and number of restarts."""
        return self.attempt, self.step, self.anew

    @property
    def is_words(self) -> bool:
        """True for text and reasoning, False for other events."""
        return self.kind in {"text", "reasoning"}

    @property
    def can_grow(self) -> bool:
        """True if the text of the next frame can be appended: text, reasoning or arguments."""
        return self.is_words or self.kind == "arguments"

    @property
    def is_urgent(self) -> bool:
        """True for the first text of a step and for its end."""
        return self.kind == "end" or (self.is_words and not self.offset)

    def absorbs(self, later: "Frame") -> bool:
        """Append a later frame that continues this one. Return False if it must stay separate."""
        if self.kind != later.kind or not self.can_grow:
            return False
        if self.beginning != later.beginning or self.place != later.place:
            return False
        self.text += later.text
        if later.logprobs:
            self.logprobs = f"{self.logprobs},{later.logprobs}".removeprefix(",")
        return True


def build_turn_key(turn_id: uuid.UUID) -> str:
    return f"{KEY}{turn_id}"


def build_person_key(user_id: int) -> str:
    """Return the stream key of a person's change notices."""
    return f"{PERSON}{user_id}"


def connect_to_bus(url: str) -> "Redis":
    """Return a client for the bus, with short timeouts, no retries and up to 64 connections."""
    return Redis.from_url(
        url,
        # RESP2 responses take less time to parse.
        protocol=2,
        decode_responses=True,
        socket_connect_timeout=2,
        socket_timeout=BLOCK_MS / 1000 + 5,
        max_connections=64,
        retry=Retry(NoBackoff(), 0),
    )


async def read_stream_entries(
    client: "Redis", positions: Mapping[str, str]
) -> dict[str, list[Entry]]:
    """Return the entries after the given positions, by stream. Waits `BLOCK_MS` for the first."""
    answer = await client.xread(cast(Any, dict(positions)), block=BLOCK_MS, count=500)
    return dict(cast(list[tuple[str, list[Entry]]], answer))


def add_stream_entry(to: "Redis", key: str, frame: Frame) -> Any:
    """Add an entry to a stream. Return the result of the client or pipeline."""
    return to.xadd(key, cast(Any, frame.fields()), maxlen=LENGTH, approximate=True)


class FrameWriter:
    """Collects frames and sends them every `coalesce` seconds in one pipeline, in order.

    The first text of a step and its end are sent sooner. With many concurrent turns, the interval
    grows to up to three times its length, to save work.
    """

    def __init__(self, client: "Redis", *, coalesce: float) -> None:
        self.client = client
        self.coalesce = coalesce
        self.pending: dict[uuid.UUID, list[Frame]] = {}
        # One pipeline for all writes, empty after each: creating one copies some hundred entries. A
        # transaction, so that a reader of several turns wakes once and gets everything.
        self.pipeline = client.pipeline(transaction=True)
        self.wake = asyncio.Event()
        # The turns with urgent frames.
        self.urgent: set[uuid.UUID] = set()
        self.hurry = asyncio.Event()
        self.is_down = False
        self.task: asyncio.Task[None] | None = None

    def put(self, turn_id: uuid.UUID, frame: Frame) -> None:
        """Queue a frame. Never waits and never fails.

        Call it only in the writer's own event loop.
        """
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
        """Send queued frames, pausing in between, so that many small tokens become one entry."""
        clock = asyncio.get_running_loop().time
        while True:
            await self.wake.wait()
            self.wake.clear()
            turns = set(self.pending)
            await self.flush(turns)
            rested_at = clock() + self.coalesce * min(1 + len(turns) / CROWD, 3)
            # Urgent frames may arrive constantly. Other frames are sent at the end of the pause.
            while clock() < rested_at and await self.is_hurried(before=rested_at):
                await self.flush(self.urgent & self.pending.keys())

    async def is_hurried(self, *, before: float) -> bool:
        """Wait for an urgent frame. Return False if the pause ends first."""
        # Many replies start at the same time. This sends their first texts together.
        await asyncio.sleep(min(self.coalesce, URGENT_SECONDS))
        try:
            async with asyncio.timeout_at(before):
                await self.hurry.wait()
        except TimeoutError:
            return False
        return True

    async def flush(self, turns: Collection[uuid.UUID]) -> None:
        """Send the queued frames of these turns. If the bus is down, the frames are lost."""
        pending = {turn_id: self.pending.pop(turn_id) for turn_id in turns}
        self.urgent.clear()
        self.hurry.clear()
        if not pending:
            return
        try:
            await self.send(pending)
        except (RedisError, OSError) as error:
            if not self.is_down:
                logger.warning(
                    "live bus unreachable, pages read the database: %s", type(error).__name__
                )
            self.is_down = True
        else:
            self.is_down = False

    async def send(self, pending: Mapping[uuid.UUID, Sequence[Frame]]) -> None:
        """Send all given frames in one pipeline.

        A single text frame is sent without a pipeline, which saves a third of the time.
        """
        entries = [
            (build_turn_key(turn_id), frame)
            for turn_id, frames in pending.items()
            for frame in frames
        ]
        if len(entries) == 1 and entries[0][1].is_words:
            await add_stream_entry(self.client, *entries[0])
            return
        for key, frame in entries:
            add_stream_entry(self.pipeline, key, frame)
            if not frame.can_grow:
                # Each step starts with such a frame, so each key gets an expiry.
                self.pipeline.expire(key, TURN_SECONDS)
        await self.pipeline.execute()

    async def renew_streams(self, turn_ids: Iterable[uuid.UUID]) -> None:
        """Postpone the expiry of these turns' streams, because a long step may send no frames."""
        # A separate pipeline: a flush may be waiting for the answer to the other one.
        pipeline = self.client.pipeline(transaction=False)
        for turn_id in turn_ids:
            pipeline.expire(build_turn_key(turn_id), TURN_SECONDS)
        # A bus that is down is reported by the next flush; one that hangs delays no heartbeat.
        with suppress(RedisError, OSError):
            async with asyncio.timeout(RENEWAL_SECONDS):
                await pipeline.execute()

    async def close(self) -> None:
        """Stop the writer's task, then send the queued frames."""
        if self.task:
            await cancelling.cancel_tasks(self.task)
        await self.flush(set(self.pending))

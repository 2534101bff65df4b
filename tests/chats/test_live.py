"""When the writer of the live bus sends what."""

import asyncio
import uuid
from typing import Any, cast

from redis.asyncio import Redis

from chats.live import KEY, Frame, Writer

A, B = uuid.uuid4(), uuid.uuid4()


class FakeBus:
    """A client and its pipeline; `sent` holds the keys and texts of each execution."""

    def __init__(self) -> None:
        self.queued: list[tuple[str, str]] = []
        self.sent: list[list[tuple[str, str]]] = []

    def pipeline(self, **_options: Any) -> "FakeBus":
        return self

    def xadd(self, key: str, fields: dict[str, Any], **_options: Any) -> None:
        self.queued.append((key, fields["t"]))

    def expire(self, key: str, seconds: int) -> None:
        """Kept for a while."""

    async def execute(self) -> None:
        self.sent.append(self.queued)
        self.queued = []

    async def after(self, sendings: int) -> None:
        """Wait for so many executions."""
        async with asyncio.timeout(5):
            while len(self.sent) < sendings:
                await asyncio.sleep(0.005)


def text(words: str, offset: int) -> Frame:
    return Frame(kind="text", attempt=1, step=1, offset=offset, text=words)


def sent(turn: uuid.UUID, words: str) -> tuple[str, str]:
    return (f"{KEY}{turn}", words)


def test_first_words_leave_while_others_wait_for_the_end_of_the_rest() -> None:
    async def say() -> list[list[tuple[str, str]]]:
        bus = FakeBus()
        writer = Writer(cast(Redis, bus), coalesce=0.5)
        writer.put(A, text("One", 0))
        await bus.after(1)
        writer.put(A, text(" two", 3))
        writer.put(A, text(" three", 7))
        writer.put(B, text("First", 0))
        await bus.after(2)
        writer.put(A, text(" four", 13))
        await bus.after(3)
        await writer.close()
        return bus.sent

    assert asyncio.run(say()) == [
        [sent(A, "One")],
        [sent(B, "First")],
        [sent(A, " two three four")],
    ]


def test_the_end_leaves_at_once_behind_what_was_said_before_it() -> None:
    async def say() -> list[list[tuple[str, str]]]:
        bus = FakeBus()
        writer = Writer(cast(Redis, bus), coalesce=30)
        writer.put(A, text("One", 0))
        await bus.after(1)
        writer.put(A, text(" two", 3))
        writer.put(A, Frame(kind="end", attempt=1, step=1))
        await bus.after(2)
        await writer.close()
        return bus.sent

    assert asyncio.run(say())[1] == [sent(A, " two"), sent(A, "")]


def test_what_is_left_is_sent_at_the_close() -> None:
    async def say() -> list[list[tuple[str, str]]]:
        bus = FakeBus()
        writer = Writer(cast(Redis, bus), coalesce=30)
        writer.put(A, text("One", 0))
        await bus.after(1)
        writer.put(A, text(" two", 3))
        await writer.close()
        return bus.sent

    assert asyncio.run(say())[-1] == [sent(A, " two")]


def test_first_words_without_end_do_not_hold_the_others_back() -> None:
    async def say() -> list[list[tuple[str, str]]]:
        bus = FakeBus()
        writer = Writer(cast(Redis, bus), coalesce=0.05)
        writer.put(A, text("One", 0))
        await bus.after(1)
        writer.put(A, text(" two", 3))
        async with asyncio.timeout(5):
            while not any(sent(A, " two") in some for some in bus.sent):
                writer.put(uuid.uuid4(), text("First", 0))
                await asyncio.sleep(0)
        await writer.close()
        return bus.sent

    assert [sent(A, "One")] == asyncio.run(say())[0]

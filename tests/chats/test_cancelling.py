"""A lost cancellation is repeated until the task or the stream ends."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from chats.ground import cancelling
from chats.streams import connection


async def lose_the_first(times: list[float]) -> None:
    """Swallow the first cancellation, as some libraries do."""
    while True:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            times.append(asyncio.get_running_loop().time())
            if len(times) > 1:
                raise


def test_a_task_that_lost_its_cancellation_is_cancelled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancelling, "PATIENCE", 0.01)
    times: list[float] = []

    async def begin_and_end() -> tuple[bool, bool]:
        task = asyncio.create_task(lose_the_first(times))
        over = asyncio.create_task(asyncio.sleep(0))
        await asyncio.sleep(0.01)
        await cancelling.cancel_tasks(task, over)
        return task.cancelled(), over.cancelled()

    assert asyncio.run(begin_and_end()) == (True, False)
    assert len(times) == 2


async def words() -> AsyncIterator[list[str]]:
    """Yield words forever and swallow each cancellation."""
    while True:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            yield []
        yield ["word"]


async def as_it_is(word: str) -> str:
    return word


async def always() -> bool:
    return True


def test_a_stream_whose_cancellation_was_lost_gives_up_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = connection.Streams()
    monkeypatch.setattr(connection, "STREAMS", streams)

    async def read() -> None:
        async for _ in connection.stream_events(
            user_id=7, updates=words(), encode=as_it_is, may_still=always, language="en"
        ):
            pass

    async def leave() -> Counter[int]:
        reading = asyncio.create_task(read())
        await asyncio.sleep(0.05)
        assert streams.by_user[7] == 1
        reading.cancel()
        await asyncio.wait({reading}, timeout=2)
        return streams.by_user

    assert asyncio.run(leave()) == Counter()

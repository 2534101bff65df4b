"""The live bus: when the writer sends frames, and how the reader notices new turns."""

import asyncio
import uuid
from collections import Counter
from typing import Any, cast

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as BusGone

from chats.ground.live import Frame, FrameWriter, build_turn_key
from chats.ground.live_reader import CONTROL, Hub

A, B = uuid.uuid4(), uuid.uuid4()


class FakePipeline:
    """A pipeline that collects entries and sends them together."""

    def __init__(self, bus: "FakeBus") -> None:
        self.bus = bus
        self.queued: list[tuple[str, str]] = []

    def xadd(self, key: str, fields: dict[str, Any], **_options: Any) -> None:
        self.queued.append((key, fields["t"]))

    def expire(self, key: str, seconds: int) -> None:
        """Do nothing: the fake never expires keys."""

    async def execute(self) -> None:
        self.bus.sent.append(self.queued)
        self.queued = []


class FakeBus:
    """A client of the bus. `sent` holds the keys and texts of each execution."""

    def __init__(self) -> None:
        self.sent: list[list[tuple[str, str]]] = []

    def pipeline(self, **_options: Any) -> FakePipeline:
        return FakePipeline(self)

    async def xadd(self, key: str, fields: dict[str, Any], **_options: Any) -> None:
        self.sent.append([(key, fields["t"])])

    async def after(self, sendings: int) -> None:
        """Wait for this number of executions."""
        async with asyncio.timeout(5):
            while len(self.sent) < sendings:
                await asyncio.sleep(0.005)


def text(words: str, offset: int) -> Frame:
    return Frame(kind="text", attempt=1, step=1, offset=offset, text=words)


def sent(turn: uuid.UUID, words: str) -> tuple[str, str]:
    return (build_turn_key(turn), words)


def test_first_words_leave_while_others_wait_for_the_end_of_the_rest() -> None:
    async def say() -> list[list[tuple[str, str]]]:
        bus = FakeBus()
        writer = FrameWriter(cast(Redis, bus), coalesce=0.5)
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
        writer = FrameWriter(cast(Redis, bus), coalesce=30)
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
        writer = FrameWriter(cast(Redis, bus), coalesce=30)
        writer.put(A, text("One", 0))
        await bus.after(1)
        writer.put(A, text(" two", 3))
        await writer.close()
        return bus.sent

    assert asyncio.run(say())[-1] == [sent(A, " two")]


def test_first_words_without_end_do_not_hold_the_others_back() -> None:
    async def say() -> list[list[tuple[str, str]]]:
        bus = FakeBus()
        writer = FrameWriter(cast(Redis, bus), coalesce=0.05)
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


class Streams:
    """An in-memory stream server with blocking reads. `asked` counts its commands."""

    def __init__(self) -> None:
        self.entries: dict[str, list[dict[str, str]]] = {}
        self.asked: Counter[str] = Counter()
        self.changed = asyncio.Event()
        self.is_away = False

    def say(self, turn: uuid.UUID, words: str, offset: int) -> None:
        """Append a frame, as a worker does."""
        self.add(build_turn_key(turn), {n: str(v) for n, v in text(words, offset).fields().items()})

    def add(self, key: str, fields: dict[str, str]) -> None:
        self.entries.setdefault(key, []).append(fields)
        self.changed.set()

    async def xadd(self, key: str, fields: dict[str, str], **_options: Any) -> None:
        self.asked["xadd"] += 1
        if self.is_away:
            raise BusGone
        self.add(key, fields)

    async def xrange(self, key: str) -> list[tuple[str, dict[str, str]]]:
        self.asked["xrange"] += 1
        return self.after(key, 0)

    async def xread(self, positions: dict[str, str], **_options: Any) -> list[Any]:
        self.asked["xread"] += 1
        while True:
            found = [
                [key, self.after(key, int(seen.split("-")[0]))] for key, seen in positions.items()
            ]
            if any(entries for _, entries in found):
                return [each for each in found if each[1]]
            self.changed.clear()
            await self.changed.wait()

    def after(self, key: str, seen: int) -> list[tuple[str, dict[str, str]]]:
        stream = self.entries.get(key, [])
        return [(f"{n + 1}-0", fields) for n, fields in enumerate(stream) if n + 1 > seen]


async def heard(hub: Hub, turn: uuid.UUID, wanted: str) -> str:
    """Return the text that a viewer of the turn received, once it has this content."""
    words = ""
    async with hub.follow(build_turn_key(turn)) as subscription, asyncio.timeout(5):
        while words != wanted:
            frame = await subscription.next(seconds=5)
            words += frame.text if frame else ""
    return words


def test_a_viewer_who_comes_back_while_something_is_said_hears_all_of_it() -> None:
    async def watch() -> str:
        streams = Streams()
        hub = Hub(cast(Redis, streams))
        streams.say(A, "One", 0)
        async with hub.follow(build_turn_key(A)):
            # By now the reader waits for the entry after the first word.
            await asyncio.sleep(0.1)
        coming_back = asyncio.create_task(heard(hub, A, "One two"))
        await asyncio.sleep(0)
        streams.say(A, " two", 3)
        return await coming_back

    assert asyncio.run(watch()) == "One two"


def test_a_viewer_hears_what_was_said_before_it_came_and_what_comes() -> None:
    async def watch() -> str:
        streams = Streams()
        hub = Hub(cast(Redis, streams))
        streams.say(A, "One", 0)
        asyncio.get_running_loop().call_later(0.05, streams.say, A, " two", 3)
        return await heard(hub, A, "One two")

    assert asyncio.run(watch()) == "One two"


def test_a_second_viewer_of_a_turn_hears_it_from_its_beginning() -> None:
    async def watch() -> list[str]:
        streams = Streams()
        hub = Hub(cast(Redis, streams))
        streams.say(A, "One", 0)
        first = asyncio.create_task(heard(hub, A, "One two"))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(heard(hub, A, "One two"))
        await asyncio.sleep(0.05)
        streams.say(A, " two", 3)
        return [await first, await second]

    assert asyncio.run(watch()) == ["One two", "One two"]


def test_a_viewer_wakes_the_reader_that_waits_for_others_and_a_crowd_wakes_it_once() -> None:
    async def watch() -> tuple[list[str], int]:
        streams = Streams()
        hub = Hub(cast(Redis, streams))
        idle = asyncio.create_task(heard(hub, A, "late"))
        await asyncio.sleep(0.05)
        turns = [uuid.uuid4() for _ in range(20)]
        for turn in turns:
            streams.say(turn, "One", 0)
        found = await asyncio.gather(*(heard(hub, turn, "One") for turn in turns))
        streams.say(A, "late", 0)
        await idle
        return found, streams.asked["xadd"]

    found, wakes = asyncio.run(watch())
    assert found == ["One"] * 20
    assert wakes <= 2


def test_a_wake_that_failed_is_tried_by_the_next_viewer() -> None:
    async def watch() -> list[str]:
        streams = Streams()
        hub = Hub(cast(Redis, streams))
        idle = asyncio.create_task(heard(hub, uuid.uuid4(), "never"))
        await asyncio.sleep(0.05)
        streams.is_away = True
        first = asyncio.create_task(heard(hub, A, "One"))
        await asyncio.sleep(0.05)
        streams.is_away = False
        # Written without `say`, so that only the wake-up entry can end the blocking read.
        for turn in (A, B):
            streams.entries[build_turn_key(turn)] = [
                {n: str(v) for n, v in text("One", 0).fields().items()}
            ]
        found = [await heard(hub, B, "One"), await first]
        idle.cancel()
        assert len(streams.entries[CONTROL]) == 1
        return found

    assert asyncio.run(watch()) == ["One", "One"]

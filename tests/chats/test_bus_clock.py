"""Pages and notices are compared by the clock of the bus, whatever the clocks of the hosts say."""

import asyncio
import time
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as BusGone

from chats.ground import bus_clock
from chats.ground.live import Frame, build_person_key
from chats.ground.live_reader import Hub
from chats.web import drawing

HOUR_MS = 3_600_000


class Bus:
    """A bus whose clock is an hour behind this host."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_away = False

    def time(self) -> tuple[int, int]:
        self.asked += 1
        if self.is_away:
            raise BusGone
        now = time.time() - 3600
        return int(now), int(now % 1 * 1_000_000)


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Bus:
    found = Bus()
    monkeypatch.setattr(bus_clock, "get_clock_client", lambda _url: found)
    monkeypatch.setattr(bus_clock, "CLOCK", bus_clock.BusClock())
    return found


def test_a_page_has_the_time_of_the_bus(bus: Bus) -> None:
    for _ in range(3):
        late = 1000 * time.time() - HOUR_MS - drawing.get_render_time_ms()
        assert drawing.MARGIN_MS - 1 <= late < drawing.MARGIN_MS + 1000
    assert bus.asked == 1


def test_without_an_answer_the_last_reading_continues(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawing.get_render_time_ms()
    bus.is_away = True
    monkeypatch.setattr(bus_clock.CLOCK, "measure_at", 0.0)
    assert before <= drawing.get_render_time_ms() < before + 1000
    # The bus is not asked again at once.
    drawing.get_render_time_ms()
    assert bus.asked == 2


def test_a_bus_that_never_answered_leaves_the_clock_of_the_host(bus: Bus) -> None:
    bus.is_away = True
    assert 0 <= 1000 * time.time() - drawing.get_render_time_ms() < 1000


class Streams:
    """A stream server with one notice, from a host whose clock is wrong."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.entry = ("7000-3", {name: str(value) for name, value in fields.items()})

    async def xadd(self, *_entry: Any, **_options: Any) -> None:
        """Wake no reader, because none has begun."""

    async def xrange(self, _key: str) -> list[Any]:
        return [self.entry]

    async def xread(self, positions: dict[str, str], **_options: Any) -> list[Any]:
        key = build_person_key(1)
        if positions.get(key) == "0-0":
            return [[key, [self.entry]]]
        await asyncio.sleep(10)
        return []


def test_a_notice_has_the_time_of_its_entry() -> None:
    sent = Frame(kind="changed", attempt=0, step=0, offset=99, text="chat")
    hub = Hub(cast(Redis, Streams(sent.fields())))

    async def hear() -> list[int]:
        found = []
        # The second reader gets the entries before it from the bus.
        for _ in range(2):
            async with hub.follow(build_person_key(1)) as subscription:
                frame = await subscription.next(seconds=5)
                found.append(frame.offset if frame else 0)
                async with hub.follow(build_person_key(1)) as second:
                    frame = await second.next(seconds=5)
                    found.append(frame.offset if frame else 0)
        if hub.task is not None:
            hub.task.cancel()
        return found

    assert set(asyncio.run(hear())) == {7000}

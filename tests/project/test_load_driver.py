"""The load driver loses and reorders nothing itself, and notices when a server does."""

import asyncio
import json
import time
from xml.etree import ElementTree

import pytest

from benchmarks.load.cells import Cell, Plan, measure_cell
from benchmarks.load.client import HttpConnection, TokenMeter
from benchmarks.load.model import Pace, model_server
from benchmarks.load.plots import choose_ticks, draw_lines
from benchmarks.load.targets import OpenAITarget
from benchmarks.streams import compute_added, iter_table
from tests.fakes.http_server import begin_stream, end_stream, send_chunk, stub_server

PACE = Pace(tokens=30, first_ms=20, token_ms=2)


def stamp(number: int) -> bytes:
    """A token as the fake server sends it now."""
    return b" %d@%d;" % (number, time.monotonic_ns() // 1000 + 5)


def feed(*numbers: int, size: int = 7) -> TokenMeter:
    """A meter after these tokens, received in pieces that split them."""
    meter = TokenMeter()
    data = b'data: {"text": "' + b"".join(map(stamp, numbers))
    for start in range(0, len(data), size):
        meter.feed(data[start : start + size])
    return meter


def test_tokens_in_order_are_counted() -> None:
    meter = feed(*range(12))
    assert (len(meter.seen), meter.repeated, meter.reordered) == (12, 0, 0)
    assert meter.first_ns > meter.began_ns


def test_lost_repeated_and_reordered_tokens_are_noticed() -> None:
    meter = feed(0, 1, 1, 3, 2, 5)
    assert (len(meter.seen), meter.repeated, meter.reordered) == (5, 1, 1)
    cell = Cell("some", 1, 0)
    cell.count(meter, "", expected=6)
    assert cell.lost == 1
    assert not cell.is_faultless()


def test_tokens_of_an_earlier_reply_are_ignored() -> None:
    old = stamp(0)
    time.sleep(0.01)
    meter = TokenMeter()
    meter.feed(old)
    assert not meter.seen


def test_the_fake_server_and_the_driver_lose_nothing() -> None:
    with model_server(PACE) as model:
        target = OpenAITarget("direct", model.port)
        cell = Cell("direct", 8, 0)
        asyncio.run(measure_cell(cell, target, 8, Plan(turns=2, tokens=30, ramp=0.1)))
    assert cell.is_faultless(), cell
    assert (cell.turns, cell.tokens) == (16, 480)
    assert 20 <= cell.p50 < 200


def test_the_fake_server_answers_without_a_stream_and_lists_its_model() -> None:
    async def ask() -> tuple[bytes, bytes]:
        connection = HttpConnection("127.0.0.1", model.port)
        _, whole = await connection.request("POST", "/v1/chat/completions", {"messages": []})
        _, listed = await connection.request("GET", "/v1/models")
        connection.close()
        return whole, listed

    with model_server(PACE) as model:
        whole, listed = asyncio.run(ask())
    assert json.loads(whole)["choices"][0]["message"]["content"]
    assert json.loads(listed)["data"][0]["id"] == "mock-chat"


def test_a_reply_that_ends_early_is_an_error() -> None:
    async def answer(writer: asyncio.StreamWriter) -> None:
        await begin_stream(writer, {})
        await send_chunk(writer, stamp(0))
        await end_stream(writer)

    async def ask() -> str:
        async with stub_server(answer) as port:
            target = OpenAITarget("short", port)
            await target.prepare(1)
            said = await target.take_turn(0, "Hello", TokenMeter())
            await target.close()
            return said

    assert "ended early" in asyncio.run(ask())


def some_cells() -> list[Cell]:
    """Measurements of two targets at two values, in two repeats."""
    cells = []
    for repeat, extra in ((0, 0.0), (1, 4.0)):
        for x in (1, 20):
            cells += [
                Cell("direct", x, repeat, tokens=100, seconds=1.0, first_ms=[200.0 + extra] * 5),
                Cell(
                    "SQLite",
                    x,
                    repeat,
                    tokens=100,
                    seconds=1.25,
                    first_ms=[210.0 + x + extra] * 5,
                    cpu={"web": 0.01, "worker": 0.03},
                ),
            ]
    return cells


def test_the_added_time_is_compared_within_a_repeat() -> None:
    assert compute_added(some_cells(), "p50") == {"SQLite": [(1, 11.0), (20, 30.0)]}


def test_the_table_has_every_figure() -> None:
    rows = list(iter_table(some_cells(), "streams"))[2:]
    assert rows[0].startswith(
        "| 1 | SQLite | 11.0 / 11.0 ms | 0.80 | 0.400 | web 0.100, worker 0.300 |"
    )
    assert rows[1].endswith("| 0, 0, 0, 0 |")


def test_a_plot_is_valid_and_its_axis_begins_at_zero() -> None:
    drawn = draw_lines(
        {"SQLite & more": [(1, 10.0), (100, 40.0)], "flat": [(1, 5.0)]},
        title="Time < 50 ms",
        x_label="streams",
        y_label="ms",
        log_x=True,
    )
    root = ElementTree.fromstring(drawn)  # noqa: S314  # our own text
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"SQLite & more", "Time < 50 ms", "0", "40", "1", "100"} <= set(texts)
    # Without scripts, styles and foreign addresses, so that any policy shows it.
    assert not {"script", "style=", "href"} & set(drawn.replace("<", " ").split())


def test_a_plot_needs_points() -> None:
    with pytest.raises(ValueError, match="points"):
        draw_lines({}, title="t", x_label="x", y_label="y")


def test_ticks_are_round_and_cover_the_range() -> None:
    assert choose_ticks(0, 87) == [0, 20, 40, 60, 80, 100]
    assert choose_ticks(0, 0.9) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert choose_ticks(0, 0) == [0, 0.2, 0.4, 0.6, 0.8, 1.0] or choose_ticks(0, 0)[0] == 0

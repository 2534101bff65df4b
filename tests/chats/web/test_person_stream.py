"""One stream for all that a person's pages follow."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from django.test import Client

from chats.ground.live import Frame, build_person_key, build_turn_key
from chats.ground.live_reader import Hub
from chats.models import Chat, Turn
from chats.streams import connection, person
from chats.streams.follow import (
    Beginning,
    Delta,
    Done,
    Snapshot,
    StreamPosition,
    TurnFollower,
    TurnRow,
)
from chats.streams.person import (
    ChatChanged,
    FollowedTurn,
    NoticesLost,
    PersonUpdate,
    TurnUpdate,
    follow_person,
)
from chats.streams.web import parse_requested_turns

ME = 7
A, B = uuid.uuid4(), uuid.uuid4()
FIRST = Beginning(1, 1)


class Bus:
    """A bus with some frames, each after a pause in seconds; then it is silent."""

    def __init__(self, frames: Sequence[Frame], *, pause: float) -> None:
        self.waiting = list(frames)
        self.pause = pause
        self.frames: deque[Frame] = deque()
        self.keys: tuple[str, ...] = ()
        self.lagged = False

    @asynccontextmanager
    async def follow(self, *keys: str) -> AsyncIterator["Bus"]:
        """One subscription."""
        self.keys = keys
        yield self

    async def next(self, *, seconds: float) -> Frame | None:
        """The next frame."""
        await asyncio.sleep(self.pause)
        return self.waiting.pop(0) if self.waiting else None


def row(text: str, *, status: str = "running") -> TurnRow:
    return TurnRow(status=status, is_over=status != "running", beginning=FIRST, text=text)


def words(turn: uuid.UUID, text: str, offset: int) -> Frame:
    return Frame(kind="text", attempt=1, step=1, offset=offset, text=text, key=build_turn_key(turn))


def changed(chat: str, at: int) -> Frame:
    return Frame(kind="changed", attempt=0, step=0, offset=at, text=chat, key=build_person_key(ME))


def told(
    rows: dict[uuid.UUID, list[TurnRow]],
    *frames: Frame,
    seen: Mapping[uuid.UUID, StreamPosition] | None = None,
    since: int = 0,
    rounds: int = 12,
    pause: float = 0.0,
) -> list[PersonUpdate]:
    """Collect the events sent to the pages while the rows go through these states."""
    left = {turn: list(states) for turn, states in rows.items()}

    async def read(turn: uuid.UUID) -> TurnRow:
        return left[turn].pop(0) if len(left[turn]) > 1 else left[turn][0]

    async def watch() -> list[PersonUpdate]:
        bus = Bus(frames, pause=pause)
        turns = [
            FollowedTurn(
                TurnFollower(turn_id=turn, read=read),
                row=left[turn].pop(0),
                seen=(seen or {}).get(turn),
            )
            for turn in rows
        ]
        updates = follow_person(user_id=ME, turns=turns, since=since, hub=lambda: cast(Hub, bus))
        found: list[PersonUpdate] = []
        for _ in range(rounds):
            found += await anext(updates)
        await cast(Any, updates).aclose()
        assert bus.keys == (build_person_key(ME), *map(build_turn_key, rows))
        return found

    return asyncio.run(watch())


def test_two_replies_are_followed_side_by_side() -> None:
    rows = {A: [row("One"), row("One two")], B: [row(""), row("First")]}
    found = told(rows, words(B, "First", 0), words(A, " two", 3))
    assert found == [
        TurnUpdate(A, Snapshot(FIRST, "One")),
        TurnUpdate(B, Snapshot(FIRST, "")),
        TurnUpdate(B, Delta(0, "First")),
        TurnUpdate(A, Delta(3, " two")),
    ]


def test_the_end_of_one_reply_ends_none_of_the_others() -> None:
    over = row("One", status="completed")
    end = Frame(kind="end", attempt=1, step=1, key=build_turn_key(A))
    found = told({A: [row("One"), over], B: [row(""), row("x")]}, end, words(B, "x", 0))
    assert TurnUpdate(A, Done(over)) in found
    assert found[-1] == TurnUpdate(B, Delta(0, "x"))


def test_what_the_bus_lost_comes_from_the_row_although_another_reply_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(person, "PATIENCE", 0.0)
    rows = {A: [row("One"), row("One two")], B: [row(""), row("x"), row("xy")]}
    found = told(rows, words(B, "x", 0), words(B, "y", 1))
    assert TurnUpdate(A, Delta(3, " two")) in found


def test_a_page_that_has_seen_more_than_the_row_waits_without_holding_up_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(person, "PATIENCE", 0.0)
    seen = {A: StreamPosition(FIRST, 7)}
    rows = {A: [row(""), row("One two")]}
    found = told(rows, words(A, " three", 7), seen=seen)
    assert found == [TurnUpdate(A, Snapshot(FIRST, "One two")), TurnUpdate(A, Delta(7, " three"))]
    rows = {A: [row(""), row("One")], B: [row(""), row("Here")]}
    found = told(rows, words(B, "Here", 0), seen=seen)
    assert found == [TurnUpdate(B, Snapshot(FIRST, "")), TurnUpdate(B, Delta(0, "Here"))]


def test_a_page_that_has_seen_more_than_the_row_waits_for_no_pause_of_its_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(person, "PATIENCE", 0.08)
    seen = {A: StreamPosition(FIRST, 7)}
    rows = {A: [row(""), row("One two")]}
    frames = [words(A, "x", 7 + place) for place in range(60)]
    found = told(rows, *frames, seen=seen, rounds=50, pause=0.005)
    assert TurnUpdate(A, Snapshot(FIRST, "One two")) in found
    said = "".join(
        update.update.text
        for update in found
        if isinstance(update, TurnUpdate) and isinstance(update.update, Delta)
    )
    assert set(said) == {"x"}


def test_only_changes_that_are_new_are_told() -> None:
    found = told({}, changed("a", 5), changed("b", 6), since=5)
    assert found == [ChatChanged("b", 6)]


def test_a_bus_that_comes_back_is_told() -> None:
    back = Frame(kind="resumed", attempt=0, step=0, key=build_person_key(ME))
    assert told({}, back) == [NoticesLost()]


def test_what_a_browser_asks_for_is_read_with_care() -> None:
    assert parse_requested_turns([f"{A}~{A}", f"{B}~1.2.3", "x", "", f"{A}~1.2.4.5"]) == [
        (A, StreamPosition(Beginning(1, 2, 5), 4)),
        (B, StreamPosition(Beginning(1, 2), 3)),
    ]
    assert len(parse_requested_turns([str(uuid.uuid4()) for _ in range(50)])) == 20


class Silent:
    """A bus that says nothing."""

    lagged = False
    frames = ()

    @asynccontextmanager
    async def follow(self, *keys: str) -> AsyncIterator["Silent"]:
        """One subscription."""
        yield self

    async def next(self, *, seconds: float) -> None:
        """Silence."""
        await asyncio.sleep(0.001)


def test_of_a_foreign_reply_nothing_is_told_but_that_it_is_gone(
    client: Client, bob: Any, chat: Chat, talk: Any, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    turn: Turn = talk("A secret question", "A secret answer")
    client.force_login(bob)
    settings.STREAM_SECONDS = 0.05
    streams = connection.Streams()
    monkeypatch.setattr(streams, "hub", Silent)
    monkeypatch.setattr(connection, "STREAMS", streams)
    answer: Any = client.get("/stream", {"turn": str(turn.pk)})

    async def collect() -> str:
        return b"".join([chunk async for chunk in answer.streaming_content]).decode()

    text = asyncio.run(collect())
    assert f"event: {turn.pk}.done" in text
    assert "secret" not in text
    assert "snapshot" not in text


def test_without_a_session_there_is_no_stream(client: Client, db: None) -> None:
    assert client.get("/stream").status_code == 404

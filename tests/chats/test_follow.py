"""Resuming the stream of a reply after a page reconnects."""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from chats.ground.live import Frame
from chats.ground.live_reader import Hub
from chats.streams import connection, follow
from chats.streams.follow import (
    Beginning,
    Delta,
    Done,
    Reshaped,
    Snapshot,
    StreamPosition,
    Thoughts,
    TurnRow,
    Update,
)
from chats.streams.web import ReplyView

FIRST, SECOND = Beginning(1, 1), Beginning(2, 1)


class Bus:
    """A bus with a few frames. It sends nothing after them."""

    def __init__(self, *frames: Frame) -> None:
        self.frames = deque(frames)
        self.lagged = False

    @asynccontextmanager
    async def follow(self, turn_id: uuid.UUID) -> AsyncIterator["Bus"]:
        """Open one subscription."""
        yield self

    async def next(self, *, seconds: float) -> Frame | None:
        """Return the next frame."""
        return self.frames.popleft() if self.frames else None


def row(text: str, *, beginning: Beginning = FIRST, status: str = "running") -> TurnRow:
    """Return the row of a turn."""
    return TurnRow(status=status, is_over=status != "running", beginning=beginning, text=text)


def told(rows: list[TurnRow], *frames: Frame, seen: StreamPosition | None) -> list[Update]:
    """Return the updates of a page that resumes at `seen` while the row has these states."""
    left = iter(rows)

    async def read(_turn: uuid.UUID) -> TurnRow:
        return next(left)

    async def watch() -> list[Update]:
        bus = Bus(*frames)
        updates = follow.follow_turn(
            turn_id=uuid.uuid4(),
            row=next(left),
            hub=lambda: cast(Hub, bus),
            read=read,
            seen=seen,
            whole=True,
        )
        return [update async for some in updates for update in some]

    return asyncio.run(watch())


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the waiting time to zero."""
    monkeypatch.setattr(follow, "PATIENCE", 0.0)


def test_a_page_that_comes_back_is_shown_nothing_until_the_row_has_come_as_far() -> None:
    rows = [row(""), row("One"), row("One two th"), row("One two three", status="completed")]
    first, *_, last = told(rows, seen=StreamPosition(FIRST, 7))
    assert first == Snapshot(FIRST, "One two th")
    assert last == Done(rows[-1])


def test_a_page_that_comes_back_after_an_attempt_was_lost_is_shown_the_new_one() -> None:
    rows = [row("One"), row("", beginning=SECOND), row("Two", beginning=SECOND, status="completed")]
    assert told(rows, seen=StreamPosition(FIRST, 7))[0] == Snapshot(SECOND, "")


def test_a_page_that_comes_back_after_the_end_is_shown_the_end() -> None:
    rows = [row("One"), row("", status="stopped")]
    assert told(rows, seen=StreamPosition(FIRST, 7)) == [Done(rows[-1])]


@pytest.mark.parametrize("seen", [None, StreamPosition(FIRST, 3), StreamPosition(SECOND, 9)])
def test_any_other_page_is_shown_the_text_at_once(seen: StreamPosition | None) -> None:
    rows = [row("One"), row("One", status="completed")]
    assert told(rows, seen=seen)[0] == Snapshot(FIRST, "One")


ANEW = Beginning(1, 1, 1)


def test_a_page_is_told_of_a_request_for_consent_that_came_without_text() -> None:
    ended = row("", beginning=ANEW, status="completed")
    queued = row("", beginning=Beginning())
    anew = Frame(kind="anew", attempt=1, step=1, anew=1)
    # By the frame; by the row, if the frame was lost; and if the page came later.
    assert told([queued, ended], anew, seen=None)[1:3] == [Reshaped(ANEW), Snapshot(ANEW, "")]
    waiting = replace(row("", beginning=ANEW), awaits_consent=True)
    assert told([queued, waiting, ended], seen=None)[1:3] == [Reshaped(ANEW), Snapshot(ANEW, "")]
    assert told([waiting, ended], seen=None)[:2] == [Snapshot(ANEW, ""), Reshaped(ANEW)]
    # Once: the page that is rendered again knows the place.
    assert told([waiting, ended], seen=StreamPosition(ANEW, 0))[:2] == [
        Snapshot(ANEW, ""),
        Done(ended),
    ]


def test_the_events_of_a_page_name_the_place_it_has_come_to() -> None:
    turn = uuid.uuid4()
    page, anew = ReplyView(turn), Beginning(1, 1, 1)
    updates: list[Any] = [
        Snapshot(FIRST, "One"),
        Delta(3, " two"),
        Delta(7, "\n\nthree\n\nfour"),
        Reshaped(anew),
        Snapshot(anew, ""),
        Delta(0, "New"),
    ]

    async def encoded() -> list[str]:
        return [await page.encode(update) for update in updates]

    found = [
        [line.removeprefix(f"id: {turn}~") for line in text.split("\n") if line.startswith("id: ")]
        for text in asyncio.run(encoded())
    ]
    # A closed block causes two events. Both are included in the position.
    assert found == [["1.1.3"], ["1.1.7"], ["1.1.20"], [], ["1.1.0.1"], ["1.1.3.1"]]
    assert connection.place_from("1.1.3.1") == StreamPosition(anew, 3)


@pytest.mark.parametrize("given", ["", "x", "1.1", "1.1.x", "1.1.1.1.1", "1..1", "1.1.²", "1.1.-1"])
def test_a_place_that_is_not_ours_is_none(given: str) -> None:
    assert connection.place_from(given) is None


@pytest.mark.parametrize("with_thoughts", [False, True])
def test_thoughts_come_in_order_and_a_lost_frame_is_filled_from_the_row(
    with_thoughts: bool,
) -> None:
    async def watch() -> list[Update]:
        bus = Bus(
            Frame("reasoning", 1, 1, 4, "more. "),
            # The frame between these two was lost.
            Frame("reasoning", 1, 1, 14, "End."),
            Frame("text", 1, 1, 0, "Yes."),
        )
        rows = iter(
            [
                replace(row(""), thoughts="Hm, more. And "),
                replace(row("Yes."), thoughts="Hm, more. And End."),
                row("Yes.", status="completed"),
            ]
        )

        async def read(_turn: uuid.UUID) -> TurnRow:
            return next(rows)

        updates = follow.follow_turn(
            turn_id=uuid.uuid4(),
            row=replace(row(""), thoughts="Hm, "),
            hub=lambda: cast(Hub, bus),
            read=read,
            with_thoughts=with_thoughts,
        )
        return [update async for some in updates for update in some]

    found = asyncio.run(watch())
    thoughts = "".join(update.text for update in found if isinstance(update, Thoughts))
    assert thoughts == ("Hm, more. And End." if with_thoughts else "")
    assert [update for update in found if isinstance(update, Delta)] == [Delta(0, "Yes.")]

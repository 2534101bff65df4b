"""Follows one turn: the row first, then the live bus, each checked against the other.

A stream of updates for any door. Text positions are code points of the running step's text. The bus
may lose frames or be wiped, the row is at most one checkpoint old: an offset that does not fit
sends the viewer to the row, and silence does too, so no viewer waits for a frame that was lost. A
viewer who comes back may know more than the row and the bus: then it keeps its text, and gets what
follows it. Only a `Reshaped` takes text back.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from chats.ground.live import Frame, Hub, Subscription, turn_key
from chats.models import Turn
from chats.streams import statements

# After so many seconds of silence the row is read.
PATIENCE = 1.0


class Beginning(NamedTuple):
    """The text in which a position counts: a step's, in one attempt.

    It begins anew with each attempt and each time its text is taken back.
    """

    attempt: int = 0
    step: int = 0
    anew: int = 0


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A viewer's place: so many code points of a text."""

    beginning: Beginning
    position: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole text of the running step so far; replaces what was shown."""

    beginning: Beginning
    text: str


@dataclass(frozen=True, slots=True)
class Delta:
    """More text, `offset` code points into the step."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class TurnNotice:
    """A sentence about the turn ("Waiting for the provider until …"); empty when it continues."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A step ended, a message was taken up, or a text begins anew: look at the rows."""

    beginning: Beginning


@dataclass(frozen=True, slots=True)
class TurnRow:
    """The part of a turn's row that a viewer needs."""

    status: str
    is_over: bool
    beginning: Beginning
    text: str
    # The reason why it failed, if it did.
    code: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The turn is over, and this is how it is stored."""

    row: TurnRow


Update = Snapshot | Delta | TurnNotice | Reshaped | Done

GONE = TurnRow(status="deleted", is_over=True, beginning=Beginning(), text="")


def read_row(turn_id: uuid.UUID) -> TurnRow:
    """Read the turn as stored; a deleted one counts as over."""
    turn = statements.TURN.first(turn=turn_id)
    return GONE if turn is None else row_of(turn, text=turn.partial_text)


def read_row_with_reply(turn_id: uuid.UUID) -> TurnRow:
    """Read the same with the reply's text if the turn is over, for viewers who come late."""
    turn = statements.TURN_AND_REPLY.first(turn=turn_id)
    if turn is None:
        return GONE
    reply = turn.reply.text if turn.reply else ""
    return row_of(turn, text=reply if turn.is_over else turn.partial_text)


def row_of(turn: Turn, *, text: str) -> TurnRow:
    """Return the row as a value."""
    return TurnRow(
        status=turn.status,
        is_over=turn.is_over,
        beginning=Beginning(turn.attempt, turn.step, turn.begun_anew),
        text=text,
        code=turn.error_code,
    )


ReadRow = Callable[[uuid.UUID], Awaitable[TurnRow]]


class TurnFollower:
    """One viewer's place in a turn, and the updates to send next."""

    def __init__(self, *, turn_id: uuid.UUID, read: ReadRow) -> None:
        self.turn_id = turn_id
        self.read = read
        self.beginning = Beginning()
        self.position = 0
        self.looked_at = 0.0

    def begin(self, row: TurnRow, *, seen: StreamPosition | None, whole: bool) -> list[Update]:
        """Return the first updates: a snapshot, or what is missing after the place that was seen.

        The row may not have come so far: then nothing is sent until a source has more.
        """
        if whole:
            return self.over(row) or [self.snapshot(row)]
        if seen is None:
            return [self.snapshot(row), *self.over(row)]
        self.beginning, self.position = seen.beginning, seen.position
        if seen.beginning == row.beginning:
            return self.catch_up(row)
        return [*self.reshaped(row.beginning), self.snapshot(row), *self.over(row)]

    async def look(self) -> TurnRow:
        """Read the row and remember when."""
        self.looked_at = asyncio.get_running_loop().time()
        return await self.read(self.turn_id)

    def snapshot(self, row: TurnRow) -> Snapshot:
        """Start over from the row."""
        self.beginning, self.position = row.beginning, len(row.text)
        return Snapshot(row.beginning, row.text)

    def over(self, row: TurnRow) -> list[Update]:
        """Return the end, if the row says so."""
        return [Done(row)] if row.is_over else []

    def catch_up(self, row: TurnRow) -> list[Update]:
        """Return what the row has beyond this viewer's place."""
        if row.is_over:
            return [Done(row)]
        if row.beginning != self.beginning:
            return [*self.reshaped(row.beginning), self.snapshot(row)]
        return self.more(row.text[self.position :], self.position)

    def reshaped(self, beginning: Beginning) -> list[Update]:
        """Announce a text that begins; that of a queued turn changes no row."""
        return [Reshaped(beginning)] if self.beginning.attempt else []

    def more(self, text: str, offset: int) -> list[Update]:
        """Return a delta that continues this viewer's text."""
        if not text:
            return []
        self.position = offset + len(text)
        return [Delta(offset=offset, text=text)]

    async def hear(self, frame: Frame | None) -> list[Update]:
        """Return the updates that a frame, or a second of silence, means for this viewer."""
        if frame is None:
            return self.catch_up(await self.look())
        if frame.beginning < self.beginning:
            return []
        if frame.kind == "state":
            return [TurnNotice(frame.text)]
        if frame.kind == "end":
            return self.catch_up(await self.look())
        begun: list[Update] = []
        if frame.beginning > self.beginning:
            beginning = Beginning(*frame.beginning)
            begun = [*self.reshaped(beginning), Snapshot(beginning, "")]
            self.beginning, self.position = beginning, 0
        return begun + (await self.hear_text(frame) if frame.kind == "text" else [])

    async def hear_text(self, frame: Frame) -> list[Update]:
        """Take a text frame: continue, skip what is known, or fill a gap from the row."""
        filled: list[Update] = []
        if frame.offset > self.position:
            if asyncio.get_running_loop().time() - self.looked_at < PATIENCE:
                return []
            filled = self.catch_up(await self.look())
        if frame.offset > self.position or is_over(filled):
            return filled
        return filled + self.more(frame.text[self.position - frame.offset :], self.position)


def is_behind(row: TurnRow, seen: StreamPosition | None) -> bool:
    """Tell whether a viewer has seen more of the running text than the row has."""
    return (
        seen is not None
        and not row.is_over
        and seen.beginning == row.beginning
        and seen.position > len(row.text)
    )


def is_over(updates: list[Update]) -> bool:
    """Tell whether nothing follows these updates."""
    return bool(updates) and isinstance(updates[-1], Done)


async def follow(
    *,
    turn_id: uuid.UUID,
    row: TurnRow,
    hub: Callable[[], Hub],
    read: ReadRow,
    seen: StreamPosition | None = None,
    whole: bool = False,
) -> AsyncIterator[list[Update]]:
    """Yield the updates of a turn until it is over; an empty list at least once in `PATIENCE`.

    `row` is the turn as it was read when the stream was asked for: the bus keeps the frames since.
    `seen` is a place to go on from; a `whole` stream begins with a snapshot all the same, once the
    row has come so far, and has none of a turn that is over. `hub` is called in the event loop.
    Ends without `Done` when the viewer reads too slowly: it comes back with its place.
    """
    while whole and is_behind(row, seen):
        yield []
        await asyncio.sleep(PATIENCE / 4)
        row = await read(turn_id)
    viewer = TurnFollower(turn_id=turn_id, read=read)
    updates = viewer.begin(row, seen=seen, whole=whole)
    if is_over(updates):
        yield updates
        return
    async with hub().follow(turn_key(turn_id)) as subscription:
        while True:
            yield updates
            if is_over(updates) or subscription.lagged:
                return
            updates = await listen(viewer, subscription)


async def listen(viewer: TurnFollower, subscription: Subscription) -> list[Update]:
    """Return the updates of the frames that are there, or of a second without one."""
    updates = await viewer.hear(await subscription.next(seconds=PATIENCE))
    while subscription.frames and not is_over(updates):
        updates += await viewer.hear(subscription.frames.popleft())
    return updates

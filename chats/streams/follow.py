"""Follow one turn: the row first, then the live bus, each sure of where the other stands.

A stream of updates for any door. Text positions are code points of the running step's text. The
bus may lose frames or be wiped, the row is at most one checkpoint old: an offset that does not fit
sends the viewer to the row, and silence does too, so no viewer waits for a frame that was lost.
A viewer who comes back may know more than the row and the bus: then it keeps its text, and hears
what follows it. Text is taken back only by a `Reshaped`.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from chats.live import Frame, Hub, Subscription
from chats.models import Turn
from contextpolicy import prepared

# How long silence is believed, in seconds, before the row is read.
PATIENCE = 1.0


class Beginning(NamedTuple):
    """Which text a position counts in: a step's, anew with each attempt and each taking back."""

    attempt: int = 0
    step: int = 0
    anew: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """How far a viewer has come: so many code points of a text."""

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
class State:
    """A sentence about the turn ("Waiting for the provider until …"); empty when it goes on."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A step ended, a message was taken up, or a text begins anew: look at the rows."""

    beginning: Beginning


@dataclass(frozen=True, slots=True)
class Row:
    """What a viewer needs of the turn's row."""

    status: str
    is_over: bool
    beginning: Beginning
    text: str
    # Why it failed, if it did.
    code: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """The turn is over, and this is how it is stored."""

    row: Row


Update = Snapshot | Delta | State | Reshaped | Done

GONE = Row(status="deleted", is_over=True, beginning=Beginning(), text="")
# Of sixty columns: every stream reads them when it begins, in silence and at its end.
_COLUMNS = ("status", "attempt", "step", "begun_anew", "partial_text", "error_code")
_TURN = prepared.Select(lambda at: Turn.objects.only(*_COLUMNS).filter(pk=at("turn")))
_TURN_AND_REPLY = prepared.Select(
    lambda at: (
        Turn.objects.select_related("reply").only(*_COLUMNS, "reply__parts").filter(pk=at("turn"))
    )
)


def read_row(turn_id: uuid.UUID) -> Row:
    """The turn as stored; a deleted one reads as over."""
    turn = _TURN.first(turn=turn_id)
    return GONE if turn is None else row_of(turn, text=turn.partial_text)


def read_row_with_reply(turn_id: uuid.UUID) -> Row:
    """The same, but of a turn that is over the reply's text, for viewers who come late."""
    turn = _TURN_AND_REPLY.first(turn=turn_id)
    if turn is None:
        return GONE
    reply = turn.reply.text if turn.reply else ""
    return row_of(turn, text=reply if turn.is_over else turn.partial_text)


def row_of(turn: Turn, *, text: str) -> Row:
    """The row as a value."""
    return Row(
        status=turn.status,
        is_over=turn.is_over,
        beginning=Beginning(turn.attempt, turn.step, turn.begun_anew),
        text=text,
        code=turn.error_code,
    )


ReadRow = Callable[[uuid.UUID], Awaitable[Row]]


class Viewer:
    """One viewer's place in a turn, and what it has to be told next."""

    def __init__(self, *, turn_id: uuid.UUID, read: ReadRow) -> None:
        self.turn_id = turn_id
        self.read = read
        self.beginning = Beginning()
        self.position = 0
        self.looked_at = 0.0

    def begin(self, row: Row, *, seen: Place | None, whole: bool) -> list[Update]:
        """The first updates: a snapshot, or what is missing after the place that was seen.

        The row may not have come as far as that: then nothing is said until something does.
        """
        if whole:
            return self.over(row) or [self.snapshot(row)]
        if seen is None:
            return [self.snapshot(row), *self.over(row)]
        self.beginning, self.position = seen.beginning, seen.position
        if seen.beginning == row.beginning:
            return self.catch_up(row)
        return [*self.reshaped(row.beginning), self.snapshot(row), *self.over(row)]

    async def look(self) -> Row:
        """Read the row and remember when."""
        self.looked_at = asyncio.get_running_loop().time()
        return await self.read(self.turn_id)

    def snapshot(self, row: Row) -> Snapshot:
        """Start over from the row."""
        self.beginning, self.position = row.beginning, len(row.text)
        return Snapshot(row.beginning, row.text)

    def over(self, row: Row) -> list[Update]:
        """The end, if the row says so."""
        return [Done(row)] if row.is_over else []

    def catch_up(self, row: Row) -> list[Update]:
        """What the row knows beyond this viewer's place."""
        if row.is_over:
            return [Done(row)]
        if row.beginning != self.beginning:
            return [*self.reshaped(row.beginning), self.snapshot(row)]
        return self.more(row.text[self.position :], self.position)

    def reshaped(self, beginning: Beginning) -> list[Update]:
        """Word of a text that begins; that of a queued turn changes no row."""
        return [Reshaped(beginning)] if self.beginning.attempt else []

    def more(self, text: str, offset: int) -> list[Update]:
        """A delta that continues this viewer's text."""
        if not text:
            return []
        self.position = offset + len(text)
        return [Delta(offset=offset, text=text)]

    async def hear(self, frame: Frame | None) -> list[Update]:
        """What a frame, or a second of silence, means for this viewer."""
        if frame is None:
            return self.catch_up(await self.look())
        if frame.beginning < self.beginning:
            return []
        if frame.kind == "state":
            return [State(frame.text)]
        if frame.kind == "end":
            return self.catch_up(await self.look())
        begun: list[Update] = []
        if frame.beginning > self.beginning:
            beginning = Beginning(*frame.beginning)
            begun = [*self.reshaped(beginning), Snapshot(beginning, "")]
            self.beginning, self.position = beginning, 0
        return begun + (await self.hear_text(frame) if frame.kind == "text" else [])

    async def hear_text(self, frame: Frame) -> list[Update]:
        """A text frame: continue, skip what is known, or fill a gap from the row."""
        filled: list[Update] = []
        if frame.offset > self.position:
            if asyncio.get_running_loop().time() - self.looked_at < PATIENCE:
                return []
            filled = self.catch_up(await self.look())
        if frame.offset > self.position or is_over(filled):
            return filled
        return filled + self.more(frame.text[self.position - frame.offset :], self.position)


def is_behind(row: Row, seen: Place | None) -> bool:
    """Whether a viewer has seen more of the running text than the row has."""
    return (
        seen is not None
        and not row.is_over
        and seen.beginning == row.beginning
        and seen.position > len(row.text)
    )


def is_over(updates: list[Update]) -> bool:
    """Whether nothing follows these."""
    return bool(updates) and isinstance(updates[-1], Done)


async def follow(
    *,
    turn_id: uuid.UUID,
    row: Row,
    hub: Callable[[], Hub],
    read: ReadRow,
    seen: Place | None = None,
    whole: bool = False,
) -> AsyncIterator[list[Update]]:
    """The updates of a turn until it is over; an empty list at least once in `PATIENCE`.

    `row` is the turn as it was read when the stream was asked for: the bus keeps what was said
    since. `seen` is a place to go on from; a `whole` stream begins with a snapshot all the same,
    once the row has come as far, and has none of a turn that is over. `hub` is asked in the event
    loop. Ends without `Done` when the viewer reads too slowly: it comes back with its place.
    """
    while whole and is_behind(row, seen):
        yield []
        await asyncio.sleep(PATIENCE / 4)
        row = await read(turn_id)
    viewer = Viewer(turn_id=turn_id, read=read)
    updates = viewer.begin(row, seen=seen, whole=whole)
    if is_over(updates):
        yield updates
        return
    async with hub().follow(turn_id) as subscription:
        while True:
            yield updates
            if is_over(updates) or subscription.lagged:
                return
            updates = await listen(viewer, subscription)


async def listen(viewer: Viewer, subscription: Subscription) -> list[Update]:
    """The updates of the frames that are there, or of a second without one."""
    updates = await viewer.hear(await subscription.next(seconds=PATIENCE))
    while subscription.frames and not is_over(updates):
        updates += await viewer.hear(subscription.frames.popleft())
    return updates

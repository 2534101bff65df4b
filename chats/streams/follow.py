"""Follow one turn: the row first, then the live bus, each sure of where the other stands.

A stream of updates for any door. Text positions are code points of the running step's text. The
bus may lose frames or be wiped, the row is at most one checkpoint old: an offset that does not fit
sends the viewer to the row, and silence does too, so no viewer waits for a frame that was lost.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from chats.live import Frame, Hub, Subscription
from chats.models import Turn
from contextpolicy import prepared

# How long silence is believed, in seconds, before the row is read.
PATIENCE = 1.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole text of the running step so far; replaces what was shown."""

    attempt: int
    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Delta:
    """More text, `offset` code points into the step."""

    attempt: int
    step: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class State:
    """A sentence about the turn ("Waiting for the provider until …"); empty when it goes on."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A step ended, a message was taken up, or the attempt began again: look at the rows."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class Row:
    """What a viewer needs of the turn's row."""

    status: str
    is_over: bool
    attempt: int
    step: int
    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The turn is over, and this is how it is stored."""

    row: Row


Update = Snapshot | Delta | State | Reshaped | Done

GONE = Row(status="deleted", is_over=True, attempt=0, step=0, text="")
# Of sixty columns: every stream reads them when it begins, in silence and at its end.
_COLUMNS = ("status", "attempt", "step", "partial_text")
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
        attempt=turn.attempt,
        step=turn.step,
        text=text,
    )


ReadRow = Callable[[uuid.UUID], Awaitable[Row]]


class Viewer:
    """One viewer's place in a turn, and what it has to be told next."""

    def __init__(self, *, turn_id: uuid.UUID, read: ReadRow) -> None:
        self.turn_id = turn_id
        self.read = read
        self.attempt = 0
        self.step = 0
        self.position = 0
        self.looked_at = 0.0

    def begin(self, row: Row, *, seen: tuple[int, int, int] | None) -> list[Update]:
        """The first updates: a snapshot, or what is missing after (attempt, step, position)."""
        if seen and seen[:2] == (row.attempt, row.step) and seen[2] <= len(row.text):
            self.attempt, self.step, self.position = seen
            return self.catch_up(row)
        return [self.snapshot(row), *self.over(row)]

    async def look(self) -> Row:
        """Read the row and remember when."""
        self.looked_at = asyncio.get_running_loop().time()
        return await self.read(self.turn_id)

    def snapshot(self, row: Row) -> Snapshot:
        """Start over from the row."""
        self.attempt, self.step, self.position = row.attempt, row.step, len(row.text)
        return Snapshot(attempt=row.attempt, step=row.step, text=row.text)

    def over(self, row: Row) -> list[Update]:
        """The end, if the row says so."""
        return [Done(row)] if row.is_over else []

    def catch_up(self, row: Row) -> list[Update]:
        """What the row knows beyond this viewer's place."""
        if row.is_over:
            return [Done(row)]
        if (row.attempt, row.step) != (self.attempt, self.step):
            return [*self.reshaped(row.attempt, row.step), self.snapshot(row)]
        return self.more(row.text[self.position :], self.position)

    def reshaped(self, attempt: int, step: int) -> list[Update]:
        """Word of a new attempt or step; the first begin of a queued turn changes no row."""
        return [Reshaped(attempt, step)] if self.attempt else []

    def more(self, text: str, offset: int) -> list[Update]:
        """A delta that continues this viewer's text."""
        if not text:
            return []
        self.position = offset + len(text)
        return [Delta(attempt=self.attempt, step=self.step, offset=offset, text=text)]

    async def hear(self, frame: Frame | None) -> list[Update]:
        """What a frame, or a second of silence, means for this viewer."""
        if frame is None:
            return self.catch_up(await self.look())
        if (frame.attempt, frame.step) < (self.attempt, self.step):
            return []
        if frame.kind == "state":
            return [State(frame.text)]
        if frame.kind == "end":
            return self.catch_up(await self.look())
        if (frame.attempt, frame.step) > (self.attempt, self.step):
            begun = self.reshaped(frame.attempt, frame.step)
            begun.append(Snapshot(attempt=frame.attempt, step=frame.step, text=""))
            self.attempt, self.step, self.position = frame.attempt, frame.step, 0
            return begun + await self.hear(frame)
        if frame.kind == "anew":
            return self.take_back()
        return await self.hear_text(frame) if frame.kind == "text" else []

    def take_back(self) -> list[Update]:
        """The step's text so far does not count: the model is asked again."""
        if not self.position:
            return []
        self.position = 0
        return [
            *self.reshaped(self.attempt, self.step),
            Snapshot(attempt=self.attempt, step=self.step, text=""),
        ]

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


def is_over(updates: list[Update]) -> bool:
    """Whether nothing follows these."""
    return bool(updates) and isinstance(updates[-1], Done)


async def follow(
    *,
    turn_id: uuid.UUID,
    row: Row,
    hub: Callable[[], Hub],
    read: ReadRow,
    seen: tuple[int, int, int] | None = None,
) -> AsyncIterator[list[Update]]:
    """The updates of a turn until it is over; an empty list at least once in `PATIENCE`.

    `row` is the turn as it was read when the stream was asked for: the bus keeps what was said
    since. `seen` is a place to go on from. `hub` is asked in the event loop. Ends without `Done`
    when the viewer reads too slowly: it comes back with its place.
    """
    viewer = Viewer(turn_id=turn_id, read=read)
    updates = viewer.begin(row, seen=seen)
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

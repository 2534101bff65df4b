"""Follows a turn: first the row, then the live bus, each checked against the other.

Yields updates for pages and API clients. Text positions are code points of the current step's text.
The bus may lose frames; the row is at most one checkpoint old. After a gap in the offsets, or
silence, the follower reads the row, so a lost frame delays no viewer for long. A viewer that
reconnects may have more text than row and bus: it keeps its text and gets the text after it. Only a
`Reshaped` discards text.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from chats.ground.live import CALL_KINDS, Frame, build_turn_key
from chats.ground.live_reader import Hub, Subscription
from chats.models import Turn
from chats.streams import statements

# Seconds of silence after which the row is read.
PATIENCE = 1.0


class Beginning(NamedTuple):
    """The text to which a position refers: a step in one attempt.

    A new one starts with each step and attempt, and each time the text is discarded.
    """

    attempt: int = 0
    step: int = 0
    anew: int = 0


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A viewer's position in a text, in code points."""

    beginning: Beginning
    position: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole text of the running step so far, which replaces the shown text."""

    beginning: Beginning
    text: str


@dataclass(frozen=True, slots=True)
class Delta:
    """More text, starting `offset` code points into the step's text.

    `logprobs` has the log probabilities of its frame, as in `Frame.logprobs`.
    """

    offset: int
    text: str
    logprobs: str = ""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """More reasoning, starting `offset` code points into the step's reasoning."""

    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class CallProgress:
    """A frame about a tool call of the running step, in one of the kinds of `live.CALL_KINDS`."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class TurnNotice:
    """A sentence about the turn ("Next attempt at …").

    Empty when the turn continues.
    """

    sentence: str


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A step ended, a message was accepted, or a text starts again: read the rows."""

    beginning: Beginning


@dataclass(frozen=True, slots=True)
class TurnRow:
    """The part of a turn's row that a viewer needs."""

    status: str
    is_over: bool
    beginning: Beginning
    text: str
    # The error code of a failed turn.
    code: str = ""
    # The reasoning so far. Only for viewers that receive it.
    thoughts: str = ""
    # The turn has no worker until a user decides about its tool calls.
    awaits_consent: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The turn has ended, with its stored row."""

    row: TurnRow


Update = Snapshot | Delta | Thoughts | CallProgress | TurnNotice | Reshaped | Done

GONE = TurnRow(status="deleted", is_over=True, beginning=Beginning(), text="")


def read_row(turn_id: uuid.UUID) -> TurnRow:
    """Read the turn's row. A deleted turn counts as ended."""
    turn = statements.TURN.first(turn=turn_id)
    return GONE if turn is None else build_turn_row(turn, text=turn.partial_text)


def read_row_with_thoughts(turn_id: uuid.UUID) -> TurnRow:
    """Read the turn's row, with the reasoning of its running step."""
    turn = statements.TURN_AND_THOUGHTS.first(turn=turn_id)
    if turn is None:
        return GONE
    return replace(build_turn_row(turn, text=turn.partial_text), thoughts=turn.partial_reasoning)


def read_row_with_reply(turn_id: uuid.UUID) -> TurnRow:
    """Read the turn's row, with the reply's text if the turn has ended."""
    turn = statements.TURN_AND_REPLY.first(turn=turn_id)
    return GONE if turn is None else build_turn_row(turn, text=get_reply_text(turn))


def read_row_with_reply_and_thoughts(turn_id: uuid.UUID) -> TurnRow:
    """Read the turn's row as `read_row_with_reply`, with the reasoning of its running step."""
    turn = statements.TURN_REPLY_AND_THOUGHTS.first(turn=turn_id)
    if turn is None:
        return GONE
    row = build_turn_row(turn, text=get_reply_text(turn))
    return replace(row, thoughts=turn.partial_reasoning)


def get_reply_text(turn: Turn) -> str:
    """Return the text of the reply if the turn has ended, else the text so far."""
    if not turn.is_over:
        return turn.partial_text
    return turn.reply.text if turn.reply else ""


def build_turn_row(turn: Turn, *, text: str) -> TurnRow:
    return TurnRow(
        status=turn.status,
        is_over=turn.is_over,
        beginning=Beginning(turn.attempt, turn.step, turn.begun_anew),
        text=text,
        code=turn.error_code,
        awaits_consent=turn.awaits_consent,
    )


ReadRow = Callable[[uuid.UUID], Awaitable[TurnRow]]


class TurnFollower:
    """One viewer's position in a turn, and its next updates."""

    def __init__(
        self,
        *,
        turn_id: uuid.UUID,
        read: ReadRow,
        with_thoughts: bool = False,
        with_calls: bool = False,
    ) -> None:
        self.turn_id = turn_id
        self.read = read
        self.with_thoughts = with_thoughts
        self.with_calls = with_calls
        self.beginning = Beginning()
        self.position = 0
        # Code points of the step's reasoning already sent.
        self.thought = 0
        self.looked_at = 0.0

    def begin(self, row: TurnRow, *, seen: StreamPosition | None, whole: bool) -> list[Update]:
        """Return the first updates: a snapshot, or the text after the viewer's position.

        If the row is behind that position, nothing is sent until more text arrives.
        """
        if whole:
            return self.over(row) or [self.snapshot(row), *self.ask_for_rows(row, seen=seen)]
        if seen is None:
            return [self.snapshot(row), *self.thoughts_in(row), *self.over(row)]
        self.beginning, self.position = seen.beginning, seen.position
        if seen.beginning == row.beginning:
            return self.catch_up(row)
        return [
            *self.reshaped(row.beginning),
            self.snapshot(row),
            *self.thoughts_in(row),
            *self.over(row),
        ]

    def ask_for_rows(self, row: TurnRow, *, seen: StreamPosition | None) -> list[Update]:
        """Tell a page that was rendered earlier that the turn is waiting for consent."""
        is_known = seen is not None and seen.beginning == row.beginning
        return [] if is_known or not row.awaits_consent else [Reshaped(row.beginning)]

    async def look(self) -> TurnRow:
        """Read the turn's row again, and restart the silence timer."""
        self.looked_at = asyncio.get_running_loop().time()
        return await self.read(self.turn_id)

    def snapshot(self, row: TurnRow) -> Snapshot:
        """Return the stored text as a snapshot, which replaces the text that the viewer has."""
        if row.beginning != self.beginning:
            self.thought = 0
        self.beginning, self.position = row.beginning, len(row.text)
        return Snapshot(row.beginning, row.text)

    def thoughts_in(self, row: TurnRow) -> list[Update]:
        """Return the part of the row's reasoning that was not sent yet."""
        return self.more_thoughts(row.thoughts[self.thought :], self.thought)

    def more_thoughts(self, text: str, offset: int) -> list[Update]:
        """Return an update with reasoning that continues what was sent, and move its position.

        Empty if there is no new reasoning, or if this viewer does not receive it.
        """
        if not text or not self.with_thoughts:
            return []
        self.thought = offset + len(text)
        return [Thoughts(offset=offset, text=text)]

    def over(self, row: TurnRow) -> list[Update]:
        """Return a list with `Done` if the turn has ended, otherwise an empty list."""
        return [Done(row)] if row.is_over else []

    def catch_up(self, row: TurnRow) -> list[Update]:
        """Return the updates that bring the viewer from its position to the stored row."""
        if row.is_over:
            return [Done(row)]
        if row.beginning != self.beginning:
            return [*self.reshaped(row.beginning), self.snapshot(row), *self.thoughts_in(row)]
        return [*self.thoughts_in(row), *self.more(row.text[self.position :], self.position)]

    def reshaped(self, beginning: Beginning) -> list[Update]:
        """Announce that a new text starts, so that viewers reload the rows.

        The first text of a queued turn is not announced, because it changes no row.
        """
        return [Reshaped(beginning)] if self.beginning.attempt or beginning.anew else []

    def more(self, text: str, offset: int, logprobs: str = "") -> list[Update]:
        """Return the text after this viewer's position as updates, and move the position."""
        if not text:
            return []
        self.position = offset + len(text)
        return [Delta(offset, text, logprobs)]

    async def hear(self, frame: Frame | None) -> list[Update]:
        """Return this viewer's updates for a frame.

        None means that no frame arrived for a second; the turn's row is then read again.
        """
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
            self.beginning, self.position, self.thought = beginning, 0, 0
        if frame.kind == "reasoning" and self.with_thoughts:
            return begun + await self.hear_thoughts(frame)
        if frame.kind in CALL_KINDS and self.with_calls:
            return [*begun, CallProgress(frame)]
        return begun + (await self.hear_text(frame) if frame.kind == "text" else [])

    async def hear_thoughts(self, frame: Frame) -> list[Update]:
        """Process a reasoning frame: continue, skip known text, or fill a gap from the row.

        A frame after a gap is ignored if the row was read less than a second ago.
        """
        filled: list[Update] = []
        if frame.offset > self.thought:
            if asyncio.get_running_loop().time() - self.looked_at < PATIENCE:
                return []
            filled = self.catch_up(await self.look())
        if frame.offset > self.thought or has_done_update(filled):
            return filled
        return filled + self.more_thoughts(frame.text[self.thought - frame.offset :], self.thought)

    async def hear_text(self, frame: Frame) -> list[Update]:
        """Process a text frame like `hear_thoughts`."""
        filled: list[Update] = []
        if frame.offset > self.position:
            if asyncio.get_running_loop().time() - self.looked_at < PATIENCE:
                return []
            filled = self.catch_up(await self.look())
        if frame.offset > self.position or has_done_update(filled):
            return filled
        text = frame.text[self.position - frame.offset :]
        return filled + self.more(text, self.position, frame.logprobs)


def is_row_behind(row: TurnRow, seen: StreamPosition | None) -> bool:
    """Return True if a viewer has more of the running text than the row."""
    return (
        seen is not None
        and not row.is_over
        and seen.beginning == row.beginning
        and seen.position > len(row.text)
    )


def has_done_update(updates: list[Update]) -> bool:
    """Return True if the updates end with `Done`."""
    return bool(updates) and isinstance(updates[-1], Done)


async def follow_turn(
    *,
    turn_id: uuid.UUID,
    row: TurnRow,
    hub: Callable[[], Hub],
    read: ReadRow,
    seen: StreamPosition | None = None,
    whole: bool = False,
    with_thoughts: bool = False,
    with_calls: bool = False,
) -> AsyncIterator[list[Update]]:
    """Yield the updates of a turn until it ends.

    Yields an empty list at least once per `PATIENCE` without updates. `row` is the turn
    when the stream was requested: the bus has the frames since then. `seen` is the position
    to resume from. A `whole` stream starts with a snapshot even if `seen` is given, once
    the row has reached that position. The stream of an ended turn has no snapshot.
    `with_thoughts` adds `Thoughts` updates, which `read` must support. `with_calls` adds
    `CallProgress` updates. `hub` is called in the event loop. Ends without `Done` if the viewer
    reads too slowly; it then reconnects with its position.
    """
    while whole and is_row_behind(row, seen):
        yield []
        await asyncio.sleep(PATIENCE / 4)
        row = await read(turn_id)
    viewer = TurnFollower(
        turn_id=turn_id, read=read, with_thoughts=with_thoughts, with_calls=with_calls
    )
    updates = viewer.begin(row, seen=seen, whole=whole)
    if has_done_update(updates):
        yield updates
        return
    async with hub().follow(build_turn_key(turn_id)) as subscription:
        while True:
            yield updates
            if has_done_update(updates) or subscription.lagged:
                return
            updates = await collect_updates(viewer, subscription)


async def collect_updates(viewer: TurnFollower, subscription: Subscription) -> list[Update]:
    """Return the updates of all available frames. Waits up to a second for the first one."""
    updates = await viewer.hear(await subscription.next(seconds=PATIENCE))
    while subscription.frames and not has_done_update(updates):
        updates += await viewer.hear(subscription.frames.popleft())
    return updates

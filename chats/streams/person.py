"""Follows everything that one person's pages show: replies, and notices about their chats.

One stream for all of it, since a browser opens only six connections to a server. Each reply is
followed as in `chats.streams.follow`; the end of one ends the stream for none of the others.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chats.ground.live import Frame, Hub, person_key, turn_key
from chats.streams.follow import (
    PATIENCE,
    StreamPosition,
    TurnFollower,
    TurnRow,
    Update,
    is_behind,
    is_over,
)

# The seconds between two looks at the clock while no reply is followed.
IDLE = 2.0


@dataclass(frozen=True, slots=True)
class ChatChanged:
    """Something about a chat changed, at a time in milliseconds since 1970.

    Without a chat only the list of them did.
    """

    chat_id: str
    at: int


@dataclass(frozen=True, slots=True)
class NoticesLost:
    """The bus was away: any chat may have changed."""


class TurnUpdate(NamedTuple):
    """An update of one of the replies."""

    turn_id: uuid.UUID
    update: Update


PersonUpdate = TurnUpdate | ChatChanged | NoticesLost


@dataclass(slots=True)
class FollowedTurn:
    """A reply that a page shows: its row as it was read, and the place that the page has seen."""

    viewer: TurnFollower
    row: TurnRow
    seen: StreamPosition | None
    # A page that has seen more than the row has is shown nothing until the row has come as far.
    has_begun: bool = False
    held: list[Frame] = field(default_factory=list)
    heard_at: float = 0.0

    def begin(self) -> list[Update]:
        """Return a snapshot, once the row has as much as the page has seen."""
        if is_behind(self.row, self.seen):
            return []
        self.has_begun = True
        return self.viewer.begin(self.row, seen=self.seen, whole=True)

    async def hear(self, frame: Frame) -> list[Update]:
        """Return the updates that a frame means for the page."""
        if self.has_begun:
            return await self.viewer.hear(frame)
        self.held.append(frame)
        return []

    async def look(self) -> list[Update]:
        """Return what the row has, after a silence."""
        if self.has_begun:
            return await self.viewer.hear(None)
        self.row = await self.viewer.look()
        updates = self.begin()
        frames, self.held = deque(self.held), []
        while frames and not is_over(updates):
            updates += await self.hear(frames.popleft())
        return updates


class PersonFollower:
    """The replies that are still followed, and the updates to send next."""

    def __init__(self, turns: Sequence[FollowedTurn], *, key: str, since: int) -> None:
        self.turns = {turn_key(turn.viewer.turn_id): turn for turn in turns}
        self.key = key
        self.since = since

    def begin(self) -> list[PersonUpdate]:
        """Return the first updates of all replies."""
        return [
            told for key, turn in list(self.turns.items()) for told in self.told(key, turn.begin())
        ]

    def told(self, key: str, updates: list[Update]) -> list[PersonUpdate]:
        """Return the updates of a turn as such; one that is over is not followed any more."""
        turn_id = self.turns[key].viewer.turn_id
        if is_over(updates):
            del self.turns[key]
        return [TurnUpdate(turn_id, update) for update in updates]

    async def hear(self, frame: Frame) -> list[PersonUpdate]:
        """Return the updates that a frame means."""
        if frame.key == self.key:
            return self.notices(frame)
        turn = self.turns.get(frame.key)
        if turn is None:
            return []
        if turn.has_begun:
            # One that has not waits for its row to come as far, however much is said meanwhile.
            turn.heard_at = asyncio.get_running_loop().time()
        return self.told(frame.key, await turn.hear(frame))

    def notices(self, frame: Frame) -> list[PersonUpdate]:
        """Return a notice that the pages do not know."""
        if frame.kind == "resumed":
            return [NoticesLost()]
        if frame.offset <= self.since:
            return []
        return [ChatChanged(frame.text, frame.offset)]

    async def look(self) -> list[PersonUpdate]:
        """Return what the rows of silent replies have."""
        now = asyncio.get_running_loop().time()
        found: list[PersonUpdate] = []
        for key, turn in list(self.turns.items()):
            patience = PATIENCE if turn.has_begun else PATIENCE / 4
            if now - turn.heard_at >= patience:
                turn.heard_at = now
                found += self.told(key, await turn.look())
        return found


async def follow_person(
    *,
    user_id: int,
    turns: Sequence[FollowedTurn],
    since: int,
    hub: Callable[[], Hub],
) -> AsyncIterator[list[PersonUpdate]]:
    """Yield what a person's pages are told, without end; an empty list at least every `IDLE`.

    `since`: notices up to this time, in milliseconds, are known. `hub` is called in the event loop.
    Ends when the browser reads too slowly: it comes back with its places.
    """
    key = person_key(user_id)
    person = PersonFollower(turns, key=key, since=since)
    async with hub().follow(key, *person.turns) as subscription:
        now = asyncio.get_running_loop().time()
        for turn in turns:
            turn.heard_at = now
        updates = person.begin()
        while True:
            yield updates
            if subscription.lagged:
                return
            rest = PATIENCE / 4 if any(not t.has_begun for t in person.turns.values()) else PATIENCE
            frame = await subscription.next(seconds=rest if person.turns else IDLE)
            updates = []
            while frame is not None:
                updates += await person.hear(frame)
                frame = subscription.frames.popleft() if subscription.frames else None
            updates += await person.look()

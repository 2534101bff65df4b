"""Streams all updates for one user's pages: replies, and notices about their chats.

All pages of a browser share one stream, because browsers open only six connections to a server.
Replies are followed as in `chats.streams.follow`. The stream continues after a reply has ended.
"""

import asyncio
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chats.ground.live import Frame, build_person_key, build_turn_key
from chats.ground.live_reader import Hub
from chats.streams.follow import (
    PATIENCE,
    StreamPosition,
    TurnFollower,
    TurnRow,
    Update,
    has_done_update,
    is_row_behind,
)

# Seconds between checks while no reply is followed.
IDLE = 2.0


@dataclass(frozen=True, slots=True)
class ChatChanged:
    """A change of a chat, with its Unix time in milliseconds.

    An empty chat id: only the list of chats changed.
    """

    chat_id: str
    at: int


@dataclass(frozen=True, slots=True)
class NoticesLost:
    """The bus was unavailable, so any chat may have changed."""


class TurnUpdate(NamedTuple):
    turn_id: uuid.UUID
    update: Update


PersonUpdate = TurnUpdate | ChatChanged | NoticesLost


@dataclass(slots=True)
class FollowedTurn:
    """A reply on a page: its row as first read, and the position that the page has seen."""

    viewer: TurnFollower
    row: TurnRow
    seen: StreamPosition | None
    # A page that has more text than the row gets nothing until the row has caught up.
    has_begun: bool = False
    held: list[Frame] = field(default_factory=list)
    heard_at: float = 0.0

    def begin(self) -> list[Update]:
        """Return the first updates, once the row has as much text as the page; until then, none."""
        if is_row_behind(self.row, self.seen):
            return []
        self.has_begun = True
        return self.viewer.begin(self.row, seen=self.seen, whole=True)

    async def hear(self, frame: Frame) -> list[Update]:
        if self.has_begun:
            return await self.viewer.hear(frame)
        self.held.append(frame)
        return []

    async def look(self) -> list[Update]:
        """Return the updates from the stored row, after the live bus was silent."""
        if self.has_begun:
            return await self.viewer.hear(None)
        self.row = await self.viewer.look()
        updates = self.begin()
        frames, self.held = deque(self.held), []
        while frames and not has_done_update(updates):
            updates += await self.hear(frames.popleft())
        return updates


class PersonFollower:
    """The replies that are still followed, and their next updates."""

    def __init__(self, turns: Sequence[FollowedTurn], *, key: str, since: int) -> None:
        self.turns = {build_turn_key(turn.viewer.turn_id): turn for turn in turns}
        self.key = key
        self.since = since

    def begin(self) -> list[PersonUpdate]:
        return [
            update
            for key, turn in list(self.turns.items())
            for update in self.address_updates(key, turn.begin())
        ]

    def address_updates(self, key: str, updates: list[Update]) -> list[PersonUpdate]:
        """Return a turn's updates with its id. Stops following a turn that has ended."""
        turn_id = self.turns[key].viewer.turn_id
        if has_done_update(updates):
            del self.turns[key]
        return [TurnUpdate(turn_id, update) for update in updates]

    async def hear(self, frame: Frame) -> list[PersonUpdate]:
        if frame.key == self.key:
            return self.notices(frame)
        turn = self.turns.get(frame.key)
        if turn is None:
            return []
        if turn.has_begun:
            # A reply that has not begun waits for its row, even while frames arrive.
            turn.heard_at = asyncio.get_running_loop().time()
        return self.address_updates(frame.key, await turn.hear(frame))

    def notices(self, frame: Frame) -> list[PersonUpdate]:
        """Return a notice, unless the pages already know it."""
        if frame.kind == "resumed":
            return [NoticesLost()]
        if frame.offset <= self.since:
            return []
        return [ChatChanged(frame.text, frame.offset)]

    async def look(self) -> list[PersonUpdate]:
        """Read replies without recent events from the database, and return their updates."""
        now = asyncio.get_running_loop().time()
        found: list[PersonUpdate] = []
        for key, turn in list(self.turns.items()):
            patience = PATIENCE if turn.has_begun else PATIENCE / 4
            if now - turn.heard_at >= patience:
                turn.heard_at = now
                found += self.address_updates(key, await turn.look())
        return found


async def follow_person(
    *,
    user_id: int,
    turns: Sequence[FollowedTurn],
    since: int,
    hub: Callable[[], Hub],
) -> AsyncIterator[list[PersonUpdate]]:
    """Yield the updates for a user's pages, and an empty list at least once per `IDLE`.

    `since`: the pages know notices up to this time, in milliseconds. `hub` is called in the
    event loop. The updates end only if the browser reads too slowly; it then reconnects
    with its positions.
    """
    key = build_person_key(user_id)
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

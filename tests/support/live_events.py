"""A bus of live events that plays scripted frames."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from asgiref.sync import sync_to_async

from chats.ground.live import Frame

# The next step of the bus: a frame, a side effect, or None for silence.
Step = Frame | Callable[[], object] | None


class ScriptedBus:
    """A bus that plays scripted frames and then sends nothing."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        # Frames that arrived together with the next one.
        self.frames: list[Frame] = []
        self.lagged = False

    @asynccontextmanager
    async def follow(self, turn_id: uuid.UUID) -> AsyncIterator["ScriptedBus"]:
        """Open a subscription, as the hub does."""
        yield self

    async def next(self, *, seconds: float) -> Frame | None:
        """Return the next frame, as a subscription does."""
        while self.steps:
            step = self.steps.pop(0)
            if step is None or isinstance(step, Frame):
                return step
            await sync_to_async(step)()
        return None

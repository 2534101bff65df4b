"""Merges several responses, each with one reply, into one response with several choices."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, cast

from chats.gateway.held_response import WaitingHead
from chats.gateway.wire import DONE, format_stream_event
from chats.ground import cancelling

# Seconds between checks whether the client of a response without new text has disconnected.
LOOK_SECONDS = 1.0
HEAD = "data: "
SUCCESS = 200

Body = Callable[[WaitingHead], AsyncIterator[bytes]]


def merge_bodies(bodies: Sequence[Body], *, is_stream: bool) -> Body:
    """Return one body with the choices of all bodies. Closing it early closes all of them."""
    if len(bodies) == 1:
        return bodies[0]
    return partial(stream_choices, bodies, MergedReplies(len(bodies), is_stream=is_stream))


async def stream_choices(
    bodies: Sequence[Body], merged: "MergedReplies", held: WaitingHead
) -> AsyncIterator[bytes]:
    """Yield the merged body. If a choice fails, the response fails, and the others are closed."""
    running = RunningBodies(bodies)
    has_begun = False
    try:
        async for number, piece in running.pieces():
            has_failed = running.heads[number].status != SUCCESS
            text = "" if has_failed else merged.add(number, piece)
            if has_failed:
                merged.has_failed = True
                text = f"{HEAD}{piece}\n\n"
                if not has_begun:
                    text, held.status = piece, running.heads[number].status
                    held.headers |= running.heads[number].headers
            if text:
                has_begun = True
                yield text.encode()
            if merged.has_failed:
                return
        held.headers |= running.headers
        yield merged.end().encode()
    finally:
        await cancelling.cancel_tasks(*running.tasks)


class RunningBodies:
    """The bodies of several responses, which are read concurrently."""

    def __init__(self, bodies: Sequence[Body]) -> None:
        self.heads = [WaitingHead() for _ in bodies]
        # Pieces by choice. None: the body has ended.
        self.queue: asyncio.Queue[tuple[int, str | None]] = asyncio.Queue()
        self.tasks = [
            asyncio.create_task(self.follow(number, body)) for number, body in enumerate(bodies)
        ]

    @property
    def headers(self) -> dict[str, str]:
        """The additional headers of all responses.

        On conflict, the headers of the first response apply.
        """
        found: dict[str, str] = {}
        for head in reversed(self.heads):
            found |= head.headers
        return found

    async def follow(self, number: int, body: Body) -> None:
        """Put the pieces of one body into the shared queue."""
        try:
            source = cast(AsyncGenerator[bytes, None], body(self.heads[number]))
            async with aclosing(source) as pieces:
                async for piece in pieces:
                    self.queue.put_nowait((number, piece.decode()))
        finally:
            self.queue.put_nowait((number, None))

    async def pieces(self) -> AsyncIterator[tuple[int, str]]:
        """Yield the pieces of all bodies as they arrive, until all have ended."""
        running = len(self.tasks)
        while running:
            number, piece = await self.take()
            if piece is not None:
                yield number, piece
                continue
            running -= 1
            # Raise the error with which the body ended unexpectedly.
            await self.tasks[number]

    async def take(self) -> tuple[int, str | None]:
        """Return the next piece with its number. The piece is None when its stream has ended.

        Raises `CancelledError` if the client disconnected.
        """
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(self.queue.get(), LOOK_SECONDS)
            if cancelling.is_lost():
                raise asyncio.CancelledError


class MergedReplies:
    """Numbers the choices of several responses, and adds up their usage."""

    def __init__(self, count: int, *, is_stream: bool) -> None:
        self.is_stream = is_stream
        self.wholes: list[dict[str, Any]] = [{} for _ in range(count)]
        # Usage by choice, and the event that holds it.
        self.usages: dict[int, Mapping[str, Any] | None] = {}
        self.frame: dict[str, Any] = {}
        self.has_failed = False

    def add(self, number: int, piece: str) -> str:
        """Return the stream output for a piece of a choice's response.

        Empty if the client does not stream, because `end` then returns the complete response.
        """
        if not self.is_stream:
            self.wholes[number] = json.loads(piece)
            return ""
        return "".join(self.convert(number, event) for event in split_events(piece))

    def convert(self, number: int, event: str) -> str:
        """Return a stream event with the number of its choice."""
        if not event.startswith(HEAD):
            return event
        if event == DONE:
            return ""
        data = json.loads(event.removeprefix(HEAD))
        if "error" in data:
            self.has_failed = True
            return event
        if not data["choices"]:
            self.usages[number], self.frame = data["usage"], data
            return ""
        for choice in data["choices"]:
            choice["index"] = number
        return format_stream_event(data)

    def end(self) -> str:
        """Return the end of the stream, or the complete response."""
        if self.is_stream:
            usage = add_usages(list(self.usages.values()))
            last = format_stream_event({**self.frame, "usage": usage}) if self.usages else ""
            return last + DONE
        choices = [
            {**choice, "index": number}
            for number, whole in enumerate(self.wholes)
            for choice in whole["choices"]
        ]
        usage = add_usages([whole["usage"] for whole in self.wholes])
        return json.dumps({**self.wholes[0], "choices": choices, "usage": usage})


def split_events(piece: str) -> Iterator[str]:
    """Yield the complete events of a piece of a stream, and a comment line after them."""
    *events, rest = piece.split("\n\n")
    for event in events:
        if event:
            yield f"{event}\n\n"
    if rest:
        yield rest


def add_usages(usages: Sequence[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """Return the sum of token counts.

    None if one of them is unknown, because the sum would be too low.
    """
    total: dict[str, Any] = {}
    for usage in usages:
        if usage is None:
            return None
        for name, value in usage.items():
            if isinstance(value, Mapping):
                total[name] = add_usages([total.get(name, {}), value])
            else:
                total[name] = total.get(name, 0) + value
    return total

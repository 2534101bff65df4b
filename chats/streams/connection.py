"""One open event stream: checks permission, limits its life, and ends it well.

Authorised when it opens and again every minute; pinged so that proxies keep it; ended after a
quarter of an hour or when this process shuts down, each time so that the client comes back.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, cast

from django.conf import settings
from django.http import StreamingHttpResponse

from chats.ground import cancelling, live
from chats.ground.refusals import Refusal
from chats.streams.follow import Beginning, StreamPosition

# An update of whatever is followed.
T = TypeVar("T")

PING_SECONDS = 15.0
PING = ": ping\n\n"
RESTARTING = "retry: 1000\nevent: server.restarting\ndata: {}\n\n"
RESUME = "retry: 1000\nevent: server.resume\ndata: {}\n\n"


class TooManyStreams(Refusal):
    """One person, or this process, would hold more open streams than allowed."""

    code = "too_many_streams"
    status = 429
    sentence = "Too many pages follow replies at once. Close some of them and try again."
    retry_after = 10


class Streams:
    """This process's open streams, and the one reader of the bus behind them."""

    def __init__(self) -> None:
        self.by_user: Counter[int] = Counter()
        self.closing = threading.Event()
        self.hubs: dict[asyncio.AbstractEventLoop, live.Hub] = {}

    def hub(self) -> live.Hub:
        """Return the hub of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self.hubs:
            self.hubs[loop] = live.Hub(live.connect(settings.REDIS_URL))
        return self.hubs[loop]

    def has_room(self, user_id: int) -> bool:
        """Tell whether one more stream of this person may begin."""
        return bool(
            self.by_user[user_id] < settings.STREAMS_PER_USER
            and self.by_user.total() < settings.STREAMS_PER_INSTANCE
        )

    def check_room(self, user_id: int) -> None:
        """Raise `TooManyStreams` unless one more stream of this person may begin."""
        if not self.has_room(user_id):
            raise TooManyStreams

    @asynccontextmanager
    async def place(self, user_id: int) -> AsyncIterator[None]:
        """Hold one of the person's places while the stream is open."""
        self.by_user[user_id] += 1
        try:
            yield
        finally:
            self.by_user[user_id] -= 1
            self.by_user += Counter()


STREAMS = Streams()


class StreamEnded(Exception):
    """The stream is over; `farewell` goes to the client first."""

    def __init__(self, farewell: str = "") -> None:
        self.farewell = farewell
        super().__init__(farewell)


class EventStream(Generic[T]):
    """One open stream.

    Its source never rests for long, so between two updates there is time to look at the clock and
    at the end of this process.
    """

    def __init__(
        self,
        *,
        updates: AsyncIterator[list[T]],
        encode: Callable[[T], Awaitable[str]],
        may_still: Callable[[], Awaitable[bool]],
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.updates = updates
        self.encode = encode
        self.may_still = may_still
        self.end_at = now + settings.STREAM_SECONDS
        self.check_at = now + settings.STREAM_RECHECK_SECONDS
        self.ping_at = now + PING_SECONDS

    async def next_text(self) -> str:
        """Return the next text to send, empty for none.

        Raises `StreamEnded` when the stream has to end.
        """
        updates = await anext(self.updates, None)
        now = asyncio.get_running_loop().time()
        await self.check(now)
        if updates is None:
            # The turn is over, or this viewer was too slow and comes back.
            raise StreamEnded
        if updates:
            self.ping_at = now + PING_SECONDS
            return "".join([await self.encode(update) for update in updates])
        if now < self.ping_at:
            return ""
        self.ping_at = now + PING_SECONDS
        return PING

    async def check(self, now: float) -> None:
        """Raise `StreamEnded` unless the stream may go on.

        Once a minute it asks whether the person may still read this.
        """
        if cancelling.is_lost():
            # Whoever read this is gone; its place is for others.
            raise asyncio.CancelledError
        if STREAMS.closing.is_set():
            raise StreamEnded(RESTARTING)
        if now >= self.end_at:
            raise StreamEnded(RESUME)
        if now >= self.check_at:
            self.check_at = now + settings.STREAM_RECHECK_SECONDS
            if not await self.may_still():
                raise StreamEnded

    async def close(self) -> None:
        """End the source, which gives up its place on the bus."""
        await cast(AsyncGenerator[list[T], None], self.updates).aclose()


async def events(
    *,
    user_id: int,
    updates: AsyncIterator[list[T]],
    encode: Callable[[T], Awaitable[str]],
    may_still: Callable[[], Awaitable[bool]],
    greeting: str = "",
) -> AsyncIterator[bytes]:
    """Yield the bytes of one event stream, from updates in the form of a door.

    The greeting is events that are sent whatever happens to the stream.
    """
    if greeting:
        yield greeting.encode()
    if not STREAMS.has_room(user_id):
        # Let in together with others that began first: the client comes back, and is refused then.
        yield RESUME.encode()
        return
    async with STREAMS.place(user_id):
        stream = EventStream(updates=updates, encode=encode, may_still=may_still)
        try:
            while True:
                if text := await stream.next_text():
                    yield text.encode()
        except StreamEnded as end:
            if end.farewell:
                yield end.farewell.encode()
        finally:
            await stream.close()


def response(body: AsyncIterator[bytes]) -> StreamingHttpResponse:
    """Make the response that carries a stream: never stored, never buffered by a proxy."""
    answer = StreamingHttpResponse(body, content_type="text/event-stream; charset=utf-8")
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return answer


def sse(event: str, data: str, *, event_id: str = "") -> str:
    """Write one server-sent event.

    Every line of the data is prefixed, so that none can begin a field.
    """
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = (f"id: {event_id}\n" if event_id else "") + f"event: {event}\n"
    return head + "".join(f"data: {line}\n" for line in lines) + "\n"


def event_id_of(place: StreamPosition) -> str:
    """Return the id of an event after which a viewer has come to a place."""
    beginning = place.beginning
    anew = f".{beginning.anew}" if beginning.anew else ""
    return f"{beginning.attempt}.{beginning.step}.{place.position}{anew}"


def place_from(last_event_id: str) -> StreamPosition | None:
    """Return the place that a `Last-Event-ID` names, or None when it is not ours."""
    pieces = last_event_id.split(".")
    if not all(p.isascii() and p.isdigit() and len(p) < 12 for p in pieces):
        return None
    match [int(piece) for piece in pieces]:
        case [attempt, step, position]:
            return StreamPosition(Beginning(attempt, step), position)
        case [attempt, step, position, anew]:
            return StreamPosition(Beginning(attempt, step, anew), position)
    return None

"""An open event stream: authorisation, time limits and a clean end.

Permission is checked when the stream opens and again every minute. Pings keep proxies from closing
it. The stream ends after 15 minutes or when this process shuts down, with an event that makes the
client reconnect.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar, cast

from django.conf import settings
from django.http import StreamingHttpResponse
from django.utils import translation
from django.utils.translation import gettext_noop

from chats.ground import cancelling, live, live_reader
from chats.ground.refusals import Refusal
from chats.streams.follow import Beginning, StreamPosition

# The type of updates.
T = TypeVar("T")

PING_SECONDS = 15.0
PING = ": ping\n\n"
RESTARTING = "retry: 1000\nevent: server.restarting\ndata: {}\n\n"
RESUME = "retry: 1000\nevent: server.resume\ndata: {}\n\n"


class TooManyStreams(Refusal):
    """You have 20 open streams (`STREAMS_PER_USER`), or the server has too many. Close one first.

    Each web process counts its own streams. `STREAMS_PER_INSTANCE` limits those of all users to
    2,000.
    """

    code = "too_many_streams"
    status = 429
    sentence = gettext_noop(
        "Too many open pages or clients are following replies. Close some of them and try again."
    )
    retry_after = 10


class Streams:
    """This process's open streams, with one bus reader per event loop."""

    def __init__(self) -> None:
        self.by_user: Counter[int] = Counter()
        self.closing = threading.Event()
        self.hubs: dict[asyncio.AbstractEventLoop, live_reader.Hub] = {}

    def hub(self) -> live_reader.Hub:
        """Return the live-bus hub of the running event loop, started at the first use."""
        loop = asyncio.get_running_loop()
        if loop not in self.hubs:
            self.hubs[loop] = live_reader.Hub(live.connect_to_bus(settings.REDIS_URL))
        return self.hubs[loop]

    def has_room(self, user_id: int) -> bool:
        """Return True if this user may open another stream."""
        return bool(
            self.by_user[user_id] < settings.STREAMS_PER_USER
            and self.by_user.total() < settings.STREAMS_PER_INSTANCE
        )

    def check_room(self, user_id: int) -> None:
        """Raise `TooManyStreams` if this user may not open another stream."""
        if not self.has_room(user_id):
            raise TooManyStreams

    @asynccontextmanager
    async def place(self, user_id: int) -> AsyncIterator[None]:
        """Count the stream as open for this user while in the context."""
        self.by_user[user_id] += 1
        try:
            yield
        finally:
            self.by_user[user_id] -= 1
            self.by_user += Counter()


STREAMS = Streams()


class StreamEnded(Exception):
    """The stream ends. `farewell` is sent to the client first."""

    def __init__(self, farewell: str = "") -> None:
        self.farewell = farewell
        super().__init__(farewell)


class EventStream(Generic[T]):
    """One open stream.

    Its source yields at least every one or two seconds, which leaves time for checks between
    updates.
    """

    def __init__(
        self,
        *,
        updates: AsyncIterator[list[T]],
        encode: Callable[[T], Awaitable[str]],
        may_still: Callable[[], Awaitable[bool]],
        language: str,
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.language = language
        self.updates = updates
        self.encode = encode
        self.may_still = may_still
        self.end_at = now + settings.STREAM_SECONDS
        self.check_at = now + settings.STREAM_RECHECK_SECONDS
        self.ping_at = now + PING_SECONDS

    async def next_text(self) -> str:
        """Return the next piece of the stream to send, possibly empty.

        Raises `StreamEnded` when the stream has to end, and CancelledError.
        """
        updates = await anext(self.updates, None)
        now = asyncio.get_running_loop().time()
        await self.check(now)
        if updates is None:
            # The turn has ended, or this viewer was too slow and reconnects.
            raise StreamEnded
        if updates:
            self.ping_at = now + PING_SECONDS
            # The middleware's language has ended with the view.
            with translation.override(self.language):
                return "".join([await self.encode(update) for update in updates])
        if now < self.ping_at:
            return ""
        self.ping_at = now + PING_SECONDS
        return PING

    async def check(self, now: float) -> None:
        """Raise `StreamEnded` if the stream must end.

        Permission is checked again every `STREAM_RECHECK_SECONDS`. Raises CancelledError if the
        client has disconnected.
        """
        if cancelling.is_lost():
            # The client has disconnected. Free its slot.
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
        """Close the source, which unsubscribes from the bus."""
        await cast(AsyncGenerator[list[T], None], self.updates).aclose()


async def stream_events(
    *,
    user_id: int,
    updates: AsyncIterator[list[T]],
    encode: Callable[[T], Awaitable[str]],
    may_still: Callable[[], Awaitable[bool]],
    language: str,
    greeting: str = "",
    farewell: Callable[[], str] | None = None,
) -> AsyncIterator[bytes]:
    """Yield the bytes of one event stream. Text for users is in `language`.

    The greeting is sent even if the user has too many streams. `farewell` returns the last event
    for clients that do not understand `server.restarting` and `server.resume`.
    """
    if greeting:
        yield greeting.encode()
    if not STREAMS.has_room(user_id):
        # Other streams opened since the check. The client reconnects, and is refused then.
        yield (RESUME if farewell is None else farewell()).encode()
        return
    async with STREAMS.place(user_id):
        stream = EventStream(updates=updates, encode=encode, may_still=may_still, language=language)
        try:
            while True:
                if text := await stream.next_text():
                    yield text.encode()
        except StreamEnded as end:
            with translation.override(language):
                if text := end.farewell if farewell is None else farewell():
                    yield text.encode()
        finally:
            await stream.close()


def build_stream_response(body: AsyncIterator[bytes]) -> StreamingHttpResponse:
    """Return the response of a stream. Disables caching and proxy buffering."""
    answer = StreamingHttpResponse(body, content_type="text/event-stream; charset=utf-8")
    answer["Cache-Control"] = "no-store"
    answer["X-Accel-Buffering"] = "no"
    return answer


def format_sse_event(event: str, data: str, *, event_id: str = "") -> str:
    """Encode one server-sent event.

    Each line of the data gets a prefix, so that no line can start another field.
    """
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = (f"id: {event_id}\n" if event_id else "") + f"event: {event}\n"
    return head + "".join(f"data: {line}\n" for line in lines) + "\n"


def format_event_id(place: StreamPosition) -> str:
    beginning = place.beginning
    anew = f".{beginning.anew}" if beginning.anew else ""
    return f"{beginning.attempt}.{beginning.step}.{place.position}{anew}"


def place_from(last_event_id: str) -> StreamPosition | None:
    """Parse the position in a `Last-Event-ID`; None if it does not have the format of our ids."""
    pieces = last_event_id.split(".")
    if not all(p.isascii() and p.isdigit() and len(p) < 12 for p in pieces):
        return None
    match [int(piece) for piece in pieces]:
        case [attempt, step, position]:
            return StreamPosition(Beginning(attempt, step), position)
        case [attempt, step, position, anew]:
            return StreamPosition(Beginning(attempt, step, anew), position)
    return None

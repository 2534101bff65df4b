"""Reads the response to a model call: deadlines, payloads, events.

Shared by all HTTP adapters. The bytes are read here instead of by the vendors' packages, because
this takes an eighth of the time of their typed chunks and distinguishes all faults of real servers.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Protocol

import httpx2
from django.utils.translation import gettext_noop

from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError, ProviderEvent, ProviderRequest, Timeouts
from chats.providers.sse import BodyParser, LineTooLong
from chats.providers.stream_end import StreamEnd
from chats.providers.transport import ResponseBody

# After the last event, the connection is read to its end so that it can be reused, for at most this
# many seconds.
DRAIN_SECONDS = 0.25
# Wait after a finish reason that follows the text, for servers that never send an end mark.
AFTER_FINISH_SECONDS = 5.0
_ADDRESS_REFUSED = gettext_noop(
    "The provider’s address is not allowed on this instance. An operator needs to check the "
    "provider’s address."
)


class ReplyParser(Protocol):
    """Parses one reply, payload by payload. `end` tracks its progress."""

    end: StreamEnd

    def read(self, payload: bytes) -> Iterator[ProviderEvent]:
        """Yield the events of one payload. Raises ProviderError."""
        ...

    def finish(self) -> Iterator[ProviderEvent]:
        """Yield the remaining events at the end of the stream. Raises ProviderError."""
        ...


class HttpProvider(ABC):
    """Base of the HTTP adapters: subclasses open the call, this class reads the response."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts

    async def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Yield the events of one call. Raises ProviderError."""
        deadlines = Deadlines(self._timeouts, is_streamed=request.stream)
        reader = self._reader()
        async with AsyncExitStack() as connection:
            response = await self._open(request, deadlines)
            request.sent.sha256 = response.extensions["sent"]
            connection.push_async_callback(response.aclose)
            body = PayloadReader(response, reader, deadlines)
            connection.callback(body.close)
            while (payloads := await body.payloads()) is not None:
                for payload in payloads:
                    for event in reader.read(payload):
                        yield event
        for event in reader.finish():
            yield event

    @abstractmethod
    async def aclose(self) -> None:
        """Close all pooled connections."""

    @abstractmethod
    def _reader(self) -> ReplyParser:
        """Return a parser for one reply."""

    @abstractmethod
    async def _open(self, request: ProviderRequest, deadlines: "Deadlines") -> httpx2.Response:
        """Send the request and return the response with its body unread. Raises ProviderError."""


@contextmanager
def provider_errors() -> Iterator[None]:
    """Convert timeouts and refused addresses to ProviderError."""
    try:
        yield
    except TimeoutError:
        raise ProviderError("provider_timeout") from None
    except AddressRefused:
        raise ProviderError(
            "provider_unavailable", retryable=False, sentence=_ADDRESS_REFUSED
        ) from None


class Deadlines:
    """The deadlines of a call, in the event loop's time."""

    def __init__(self, timeouts: Timeouts, *, is_streamed: bool) -> None:
        self._timeouts = timeouts
        self._is_streamed = is_streamed
        self._start = asyncio.get_running_loop().time()
        # For a reply that appears complete: its state, and the deadline for more. Bytes without
        # content, such as comments, do not extend it.
        self._last: tuple[str, float] = ("", 0.0)

    def opening(self) -> float:
        """Return the deadline for the start of the response.

        A reply that is not streamed starts when it is complete.
        """
        wait = self._timeouts.first_token if self._is_streamed else self._timeouts.total
        return self._start + min(wait, self._timeouts.total)

    def reading(self, end: StreamEnd) -> float:
        """Return the deadline for the next bytes, depending on the reply's progress."""
        if end.is_marked:
            return self._once("marked", DRAIN_SECONDS)
        if end.is_separate:
            return self._once("separate", min(AFTER_FINISH_SECONDS, self._timeouts.gap))
        if end.is_finished and end.has_output:
            return self._once("finished", self._timeouts.gap)
        self._last = ("", 0.0)
        if not end.has_output:
            return self.opening()
        now = asyncio.get_running_loop().time()
        return min(now + self._timeouts.gap, self._start + self._timeouts.total)

    def _once(self, state: str, seconds: float) -> float:
        """Return the deadline of a state, counted from its start."""
        if self._last[0] != state:
            self._last = (state, asyncio.get_running_loop().time() + seconds)
        return self._last[1]


class PayloadReader:
    """The payloads of one response, either an event stream or a JSON object."""

    def __init__(
        self, response: httpx2.Response, reader: ReplyParser, deadlines: Deadlines
    ) -> None:
        # The body is not decoded, because the transport accepts no compressed response.
        self._body: ResponseBody = response.extensions["body"]
        self._reader = reader
        self._deadlines = deadlines
        # One timer per response: a timer per token would cost as much as parsing it.
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf
        self._is_waiting = False
        self._parser = BodyParser()
        self._is_over = False

    async def payloads(self) -> list[bytes] | None:
        """Return the next payloads, or None at the end. Raises ProviderError."""
        try:
            return await self._next()
        except ProviderError as error:
            if self._reader.end.ends_with(error):
                return None
            raise

    async def _next(self) -> list[bytes] | None:
        if self._is_over:
            return None
        self._deadline = self._deadlines.reading(self._reader.end)
        if self._timer is None or self._deadline < self._timer.when():
            self._set_timer()
        self._is_waiting = True
        try:
            chunk = await self._body.read()
            self._is_over = not chunk
            return self._parser.feed(chunk) if chunk else self._parser.close()
        except LineTooLong:
            raise ProviderError("provider_protocol") from None
        finally:
            self._is_waiting = False

    def close(self) -> None:
        """Cancel the timer of the read deadline."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._look_at_clock)

    def _look_at_clock(self) -> None:
        """Fail with a timeout when the timer expires, unless data arrived since it was set."""
        self._timer = None
        if asyncio.get_running_loop().time() < self._deadline:
            self._set_timer()
        elif self._is_waiting:
            self._body.abort(ProviderError("provider_timeout"))

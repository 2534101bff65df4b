"""Adapter to any server that speaks OpenAI's chat completions; the only user of that package.

The package sends the request, through the product's one HTTP client; the stream is read here from
raw bytes, which costs an eighth of its typed chunks and lets every fault of a real server be told
apart.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream

from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError, ProviderEvent, ProviderRequest, Timeouts
from chats.providers.chunks import ReplyReader
from chats.providers.failures import failure_of_response
from chats.providers.sse import EventParser, LineTooLong
from chats.providers.transport import Resolver, ResponseBody, guarded_client, resolve_host
from chats.providers.wire import body_of

# A whole reply (not streamed) may be this long; a stream is bounded per line and by its reader.
MAX_WHOLE_REPLY = 16 << 20
# After the last event the connection is read to its end, to be used again; but not waited for.
DRAIN_SECONDS = 0.25
# Between the finish reason and the end, for servers that never send the end.
AFTER_FINISH_SECONDS = 5.0
_ADDRESS_REFUSED = (
    "The provider's address is not allowed on this instance. "
    "An operator needs to check the provider's address."
)


@dataclass(frozen=True, slots=True)
class _Dialect:
    """The options that a server turned out not to accept."""

    takes_usage_option: bool = True
    limit_name: str = "max_tokens"


class OpenAIProvider:
    """One account on one server. Belongs to the event loop it is first used in."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeouts: Timeouts,
        allowed_private: Collection[str],
        resolve: Resolver = resolve_host,
    ) -> None:
        self._timeouts = timeouts
        self._has_key = bool(api_key)
        # Kept per model: one account may serve models of several generations.
        self._dialects: dict[str, _Dialect] = {}
        self._client = AsyncOpenAI(
            base_url=base_url,
            # The package insists on a key; without one the header is left out below.
            api_key=api_key or "none",
            max_retries=0,
            http_client=guarded_client(
                allowed_private=allowed_private, connect_seconds=timeouts.connect, resolve=resolve
            ),
        )

    async def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Yield the events of one call. Raises ProviderError."""
        deadlines = _Deadlines(self._timeouts, is_streamed=request.stream)
        reader = ReplyReader()
        async with AsyncExitStack() as connection:
            response = await self._open(request, deadlines, connection)
            body = _PayloadReader(response, reader, deadlines)
            connection.callback(body.close)
            while (payloads := await body.payloads()) is not None:
                for payload in payloads:
                    for event in reader.read(payload):
                        yield event
        for event in reader.finish():
            yield event

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._client.close()

    async def _open(
        self, request: ProviderRequest, deadlines: "_Deadlines", connection: AsyncExitStack
    ) -> httpx2.Response:
        """Send the request; once more for each option that the server turns out not to take."""
        while True:
            dialect = self._dialects.get(request.model, _Dialect())
            try:
                async with asyncio.timeout_at(deadlines.opening()):
                    response = await self._send(request, dialect)
                connection.push_async_callback(response.aclose)
                return response
            except openai.APIStatusError as error:
                body = error.response.text
                failure = failure_of_response(
                    status=error.status_code, headers=error.response.headers, body=body
                )
                better = _adapted(dialect, failure, body)
                if better == dialect:
                    raise failure from None
                self._dialects[request.model] = better
            except TimeoutError:
                raise ProviderError("provider_timeout") from None
            except AddressRefused:
                raise ProviderError(
                    "provider_unavailable", retryable=False, sentence=_ADDRESS_REFUSED
                ) from None

    async def _send(self, request: ProviderRequest, dialect: _Dialect) -> httpx2.Response:
        """Send the request and return the response, its body unread.

        By the package's plain `post`: its typed method walks through every argument of the
        interface, given or not, value by value, and takes as long for it as for all the rest.
        """
        body = body_of(
            request,
            limit_name=dialect.limit_name,
            takes_usage_option=dialect.takes_usage_option,
        )
        headers = {} if self._has_key else {"Authorization": openai.Omit()}
        # As a stream even where one whole reply is asked for: its length is limited as it arrives.
        stream = await self._client.post(
            "/chat/completions",
            body=body,
            options={"headers": headers},
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[object],
        )
        return stream.response


class _Deadlines:
    """The deadlines of a call, in the event loop's time."""

    def __init__(self, timeouts: Timeouts, *, is_streamed: bool) -> None:
        self._timeouts = timeouts
        self._is_streamed = is_streamed
        self._start = asyncio.get_running_loop().time()
        # The end of reading a reply that is known to be whole: what comes then moves it no more.
        self._last: dict[str, float] = {}

    def opening(self) -> float:
        """Return the deadline for the response to begin; a whole reply begins when complete."""
        wait = self._timeouts.first_token if self._is_streamed else self._timeouts.total
        return self._start + min(wait, self._timeouts.total)

    def reading(self, reader: ReplyReader) -> float:
        """Return the deadline for the next bytes, by how far the reply has come."""
        now = asyncio.get_running_loop().time()
        if reader.is_ended:
            return self._last.setdefault("ended", now + DRAIN_SECONDS)
        if reader.is_finished:
            wait = min(AFTER_FINISH_SECONDS, self._timeouts.gap)
            return self._last.setdefault("finished", now + wait)
        if not reader.has_output:
            return self.opening()
        return min(now + self._timeouts.gap, self._start + self._timeouts.total)


class _PayloadReader:
    """The payloads of one response, whether it is an event stream or one JSON object."""

    def __init__(
        self, response: httpx2.Response, reader: ReplyReader, deadlines: _Deadlines
    ) -> None:
        # As sent: the transport takes no compressed response, so there is nothing to decode.
        self._body: ResponseBody = response.extensions["body"]
        self._reader = reader
        self._deadlines = deadlines
        # One timer for the whole response: one for each token would cost as much as its reading.
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = math.inf
        self._is_waiting = False
        kind = response.headers.get("content-type", "")
        self._parser = _WholeBody() if "json" in kind else EventParser()
        self._is_over = False

    async def payloads(self) -> list[bytes] | None:
        """Return what arrived next, None at the end.

        Raises ProviderError, unless the model had already said that it was done.
        """
        try:
            return await self._next()
        except ProviderError:
            if self._reader.is_finished or self._reader.is_ended:
                return None
            raise

    async def _next(self) -> list[bytes] | None:
        if self._is_over:
            return None
        self._deadline = self._deadlines.reading(self._reader)
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
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self) -> None:
        self.close()
        self._timer = asyncio.get_running_loop().call_at(self._deadline, self._look_at_clock)

    def _look_at_clock(self) -> None:
        """Give up when the timer ran out, unless something arrived since it was set."""
        self._timer = None
        if asyncio.get_running_loop().time() < self._deadline:
            self._set_timer()
        elif self._is_waiting:
            self._body.abort(ProviderError("provider_timeout"))


class _WholeBody:
    """Collects a body that is one payload; the same two steps as an EventParser."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Collect a piece; raises LineTooLong over the limit."""
        self._pieces.append(chunk)
        self._size += len(chunk)
        if self._size > MAX_WHOLE_REPLY:
            raise LineTooLong
        return []

    def close(self) -> list[bytes]:
        return [b"".join(self._pieces)]


def _adapted(dialect: _Dialect, failure: ProviderError, body: str) -> _Dialect:
    """Drop from the dialect what this refusal complains about; nothing if that is unknown."""
    if failure.code != "provider_rejected" or failure.status not in {400, 422}:
        return dialect
    if "stream_options" in body:
        return replace(dialect, takes_usage_option=False)
    if "max_completion_tokens" in body:
        return replace(dialect, limit_name="max_completion_tokens")
    return dialect

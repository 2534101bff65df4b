"""Adapter for servers with Anthropic's Messages API.

Only this module imports Anthropic's package, an optional extra. The package sends the request
through the product's HTTP client; `reading` reads the response.
"""

import asyncio
import logging
from collections.abc import Collection

import anthropic
import httpx2
from anthropic import AsyncAnthropic, AsyncStream

from chats.providers.anthropic_chunks import MessageReader
from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.base import ProviderError, ProviderRequest, Timeouts
from chats.providers.failures import parse_response_failure
from chats.providers.kinds import strip_api_version
from chats.providers.learned_options import LearnedHere
from chats.providers.output_limits import find_lower_limit, limit_output, select_lower_limit
from chats.providers.reading import Deadlines, HttpProvider, provider_errors
from chats.providers.transport import Resolver, build_guarded_client, resolve_host

# Below this level the package logs whole requests.
logging.getLogger("anthropic").setLevel(logging.INFO)


class AnthropicProvider(HttpProvider):
    """One account on one server. Bound to the event loop of its first use."""

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str,
        timeouts: Timeouts,
        allowed_private: Collection[str],
        resolve: Resolver = resolve_host,
    ) -> None:
        super().__init__(timeouts)
        self._has_key = bool(api_key)
        # The limits of output tokens of models that refused a request, by model.
        self._output_limits: LearnedHere[int] = LearnedHere()
        self._client = AsyncAnthropic(
            base_url=strip_api_version(base_url),
            # Without a key, the package would look for one in the environment and in files. The
            # header is removed below.
            api_key=api_key or "none",
            max_retries=0,
            # Message content must not reach tracing.
            open_telemetry=False,
            http_client=build_guarded_client(
                allowed_private=allowed_private, connect_seconds=timeouts.connect, resolve=resolve
            ),
        )

    async def aclose(self) -> None:
        await self._client.close()

    def _reader(self) -> MessageReader:
        return MessageReader()

    async def _open(self, request: ProviderRequest, deadlines: Deadlines) -> httpx2.Response:
        """Send the request. If its output limit exceeds the model's, retry once with the model's.

        Stores the limit only if the retry succeeded: an error can repeat text from a client.
        """
        stored = request.known.get("most_output")
        known = stored if isinstance(stored, int) else None
        most = select_lower_limit(self._output_limits.get(request.model), known)
        sent = limit_output(request, most)
        try:
            response = await self._send_until(sent, deadlines)
        except anthropic.APIStatusError as error:
            failure = self._convert(error, request)
            found = find_lower_limit(failure, error.response.text, sent=sent)
            if found is None:
                raise failure from None
        else:
            # An earlier call may have learned a limit that no turn stored.
            if most != known:
                request.sent.learned = {"most_output": most}
            return response
        try:
            response = await self._send_until(limit_output(request, found), deadlines)
        except anthropic.APIStatusError as error:
            raise self._convert(error, request) from None
        self._output_limits.put(request.model, found)
        request.sent.learned = {"most_output": found}
        return response

    async def _send_until(self, request: ProviderRequest, deadlines: Deadlines) -> httpx2.Response:
        """Send the request before the deadline. Raises ProviderError and the package's errors."""
        with provider_errors():
            async with asyncio.timeout_at(deadlines.opening()):
                return await self._send(request)

    def _convert(self, error: anthropic.APIStatusError, request: ProviderRequest) -> ProviderError:
        """Return our error for a response, and store the hash of the refused body."""
        response = error.response
        request.sent.sha256 = response.extensions["sent"]
        return parse_response_failure(
            status=error.status_code, headers=response.headers, body=response.text
        )

    async def _send(self, request: ProviderRequest) -> httpx2.Response:
        """Send the request and return the response with its body unread."""
        headers = {} if self._has_key else {"Authorization": anthropic.Omit()}
        # Streamed even for a whole reply, so that its length is limited as it arrives.
        try:
            stream = await self._client.post(
                "/v1/messages",
                body=build_anthropic_body(request),
                options={"headers": headers},
                cast_to=object,
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except anthropic.APIConnectionError as error:
            # The package wraps the errors of our transport.
            raise error.__cause__ or error from None
        return stream.response

"""The HTTP connection to a model server: it goes where the address guard allows and nowhere else.

Resolves the host itself, has every address judged, and connects to a judged address, so a name
cannot be re-pointed between the check and the connection. Host header and TLS name stay the ones
of the URL. Answers are bounded here too: header size, no compression, short error bodies.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection

import httpx2

from chats.providers.address import check_addresses

MAX_HEADERS = 32 * 1024
MAX_ERROR_BODY = 64 * 1024
# What goes upstream. Everything else (platform details, headers that the environment could add for
# another provider) stays here.
_SENT_HEADERS = frozenset(
    {
        "host",
        "accept",
        "authorization",
        "connection",
        "content-type",
        "content-length",
        "transfer-encoding",
        "user-agent",
    }
)

Resolver = Callable[[str, int], Awaitable[list[str]]]


async def resolve_host(host: str, port: int) -> list[str]:
    """Every address of a host, by the system's resolver. Raises httpx2.ConnectError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError("The host name cannot be resolved.") from error
    return [str(entry[4][0]) for entry in found]


class AnswerRefused(httpx2.RemoteProtocolError):
    """The answer's headers are too large, or its body is compressed although none was asked for."""


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends to checked addresses only. Raises AddressRefused besides httpx2's own errors.

    It follows no proxy of the environment: a proxy would resolve names by itself.
    """

    def __init__(
        self, *, allowed_private: Collection[str], resolve: Resolver = resolve_host
    ) -> None:
        self._allowed_private = frozenset(allowed_private)
        self._resolve = resolve
        # How many calls run at once is the worker's to say; a limit here would only make calls wait
        # for each other until their time is up.
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=50)
        self._inner = httpx2.AsyncHTTPTransport(limits=limits)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Try the host's addresses in order; the next one is only for a failed connection."""
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        addresses = check_addresses(
            host=host,
            port=port,
            addresses=await self._resolve(host, port),
            allowed_private=self._allowed_private,
        )
        for address in addresses[:-1]:
            try:
                return await self._send(request, address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._send(request, addresses[-1])

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self._inner.aclose()

    async def _send(self, request: httpx2.Request, address: str) -> httpx2.Response:
        headers = [(k, v) for k, v in request.headers.items() if k.lower() in _SENT_HEADERS]
        response = await self._inner.handle_async_request(
            httpx2.Request(
                method=request.method,
                url=request.url.copy_with(host=address),
                headers=[*headers, ("Accept-Encoding", "identity")],
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
        )
        return await _bounded(response)


async def _bounded(response: httpx2.Response) -> httpx2.Response:
    size = sum(len(name) + len(value) + 4 for name, value in response.headers.raw)
    encoding = response.headers.get("content-encoding", "identity")
    if size > MAX_HEADERS or encoding != "identity":
        await response.aclose()
        raise AnswerRefused("The answer is too large or compressed.")
    if response.is_success:
        return response
    return httpx2.Response(
        status_code=response.status_code,
        headers=response.headers,
        stream=_Shortened(response),
        extensions=response.extensions,
    )


class _Shortened(httpx2.AsyncByteStream):
    """The beginning of an error answer: enough to tell what it is, never enough to hurt."""

    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ERROR_BODY
        async for chunk in self._response.aiter_raw():
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._response.aclose()

"""The HTTP connection to a model server: it goes where the address guard allows and nowhere else.

Resolves the host itself, has every address judged, and connects to a judged address, so a name
cannot be re-pointed between the check and the connection. Host header and TLS name stay the ones
of the URL. Answers are bounded here too: header size, no compression, short error bodies.

The connections are aiohttp's, whose parser is written in C: a token costs half of what it does
over httpx2's own.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import NoReturn

import aiohttp
import httpx2
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

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
        self._inner = _Connections()

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
        headers.append(("Accept-Encoding", "identity"))
        return await _bounded(await self._inner.send(request, address=address, headers=headers))


class Body(httpx2.AsyncByteStream):
    """The body of an answer, as its bytes arrive.

    `read` is for who reads token after token: `httpx2.Response` wraps four generators around each.
    """

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def read(self) -> bytes:
        """What has arrived, at least one byte; empty at the end. Raises httpx2.TransportError."""
        try:
            return await self._answer.content.readany()
        except aiohttp.ClientError as error:
            raise httpx2.ReadError("The answer broke off.") from error

    def abort(self, error: Exception) -> None:
        """Let a reading that waits, and every later one, fail with this error."""
        self._answer.content.set_exception(error)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while chunk := await self.read():
            yield chunk

    async def aclose(self) -> None:
        # A connection whose answer was not read to its end is closed, any other is kept.
        self._answer.release()


class _NoNames(AbstractResolver):
    """Only judged addresses are connected to; a name that came this far is a mistake."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        raise OSError(f"{host}:{port} ({family.name}) is not an address.")

    async def close(self) -> None:
        """Nothing is held."""


class _Connections:
    """aiohttp's pool, in httpx2's words. Belongs to the loop it is first used in."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None

    async def send(
        self, request: httpx2.Request, *, address: str, headers: list[tuple[str, str]]
    ) -> httpx2.Response:
        """One request as it stands: no redirect, cookie, proxy or header of aiohttp's own."""
        is_tls = request.url.scheme == "https"
        body = await request.aread()
        patience = request.extensions.get("timeout", {}).get("connect")
        try:
            answer = await self._open_session().request(
                request.method,
                _at(request.url, address),
                headers=headers,
                data=body or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=patience),
                ssl=self._tls_context() if is_tls else True,
                server_hostname=request.url.host if is_tls else None,
            )
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            _raise_as_httpx2(error)
        stream = Body(answer)
        return httpx2.Response(
            status_code=answer.status,
            headers=list(answer.raw_headers),
            stream=stream,
            extensions={"body": stream},
        )

    async def aclose(self) -> None:
        """Close the pooled connections."""
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            # How many calls run at once is the worker's to say; a limit here would only make calls
            # wait for each other until their time is up.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, resolver=_NoNames()),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
                max_field_size=MAX_HEADERS,
                max_line_size=MAX_HEADERS,
            )
        return self._session

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
        return self._tls


def _at(url: httpx2.URL, address: str) -> URL:
    """The same URL with a judged address in place of the host."""
    path, _, query = url.raw_path.decode("ascii").partition("?")
    return URL.build(
        scheme=url.scheme,
        # What is given as encoded is taken as it is, so the brackets have to be there.
        host=f"[{address}]" if ":" in address else address,
        port=url.port,
        path=path,
        query_string=query,
        encoded=True,
    )


def _raise_as_httpx2(error: Exception) -> NoReturn:
    match error:
        case TimeoutError():
            raise httpx2.ConnectTimeout("Nobody answered in time.") from error
        case aiohttp.ClientConnectorError():
            raise httpx2.ConnectError("The connection cannot be made.") from error
        case ValueError():
            raise httpx2.LocalProtocolError("The request cannot be written.") from error
    raise httpx2.RemoteProtocolError("There is no readable answer.") from error


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

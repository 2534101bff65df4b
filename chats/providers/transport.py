"""The product's HTTP client, limited to the addresses that the guard allows.

The client is httpx2's, like that of the vendors' packages. Its connections are aiohttp's, whose
parser is written in C and takes half the time per token of httpx2's. This module adds the guard, as
aiohttp's resolver, and limits for responses: header size, no compression, short error bodies.
Connection failures become ProviderError here.
"""

import asyncio
import functools
import hashlib
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from http import HTTPStatus

import aiohttp
import httpx2
from aiohttp.abc import AbstractResolver, ResolveResult
from django.utils.translation import gettext_noop
from yarl import URL

from chats.ground.tracing import trace_span
from chats.providers.address import check_addresses
from chats.providers.base import ProviderError

logger = logging.getLogger(__name__)
MAX_HEADERS = 32 * 1024
MAX_ERROR_BODY = 64 * 1024
# Headers that are sent, in addition to those that aiohttp needs (Host, Content-Length). All others
# are dropped, such as platform details and headers that the environment adds for another provider.
_SENT_HEADERS = frozenset(
    {
        "accept",
        "anthropic-version",
        "authorization",
        "content-type",
        "user-agent",
        "webhook-id",
        "webhook-signature",
        "webhook-timestamp",
    }
)
_CERTIFICATE_REFUSED = gettext_noop(
    "The provider’s certificate is not valid, so nothing was sent to the provider. An operator "
    "needs to check the provider’s address and its certificate."
)

Client = httpx2.AsyncClient
Resolver = Callable[[str, int], Awaitable[list[str]]]


async def resolve_host(host: str, port: int) -> list[str]:
    """Return all addresses of a host from the system's resolver. Raises ProviderError."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ProviderError("provider_unavailable") from None
    return [str(entry[4][0]) for entry in found]


def build_guarded_client(
    *,
    allowed_private: Collection[str],
    connect_seconds: float,
    resolve: Resolver = resolve_host,
    sent_headers: Collection[str] = (),
    most: int = sys.maxsize,
) -> httpx2.AsyncClient:
    """Return an HTTP client that connects only to allowed addresses and sends only allowed headers.

    `allowed_private`: private hosts that are allowed. `sent_headers`: names of headers that may be
    sent in addition to `_SENT_HEADERS`. The caller limits the time to wait for a response. Calls
    raise AddressRefused and ProviderError. A successful body of more than `most` bytes fails with
    the code `provider_protocol`, unless it is read with `ResponseBody.read`.
    """
    return httpx2.AsyncClient(
        transport=GuardedTransport(
            allowed_private=allowed_private, resolve=resolve, sent_headers=sent_headers, most=most
        ),
        # A proxy from the environment would resolve names on its side.
        trust_env=False,
        timeout=httpx2.Timeout(None, connect=connect_seconds),
    )


async def post_body(client: Client, url: str, *, body: str, headers: Mapping[str, str]) -> int:
    """Send a body and return the status of the response, which is not read.

    Raises AddressRefused and ProviderError. The caller limits the time.
    """
    try:
        async with client.stream(
            "POST", url, content=body.encode(), headers=dict(headers)
        ) as response:
            return response.status_code
    except (httpx2.HTTPError, httpx2.InvalidURL):
        raise ProviderError("provider_unavailable") from None


async def fetch_response(
    client: Client, url: str, *, body: bytes, headers: Mapping[str, str], most: int
) -> tuple[int, Mapping[str, str], bytes]:
    """Send a body. Return status, headers and body of the response, of at most `most` bytes.

    Raises AddressRefused and ProviderError. The caller limits the time.
    """
    try:
        async with client.stream("POST", url, content=body, headers=dict(headers)) as response:
            read = bytearray()
            async for piece in response.aiter_raw():
                read += piece
                if len(read) > most:
                    raise ProviderError("provider_protocol")
            return response.status_code, response.headers, bytes(read)
    except (httpx2.HTTPError, httpx2.InvalidURL):
        raise ProviderError("provider_unavailable") from None


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Connects to checked addresses only. Bound to the event loop of its first use."""

    def __init__(
        self,
        *,
        allowed_private: Collection[str],
        resolve: Resolver = resolve_host,
        sent_headers: Collection[str] = (),
        most: int = sys.maxsize,
    ) -> None:
        self._guard = _AddressGuard(allowed_private=allowed_private, resolve=resolve)
        self._sent_headers = _SENT_HEADERS | frozenset(sent_headers)
        self._most = most
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request unchanged. Follows no redirects and stores no cookies.

        The response has the SHA-256 of the body that was sent, as `sent`. Raises AddressRefused and
        ProviderError.
        """
        url = URL(str(request.url), encoded=True)
        await self._guard.check_host(url)
        data = await request.aread()
        headers = [(k, v) for k, v in request.headers.items() if k.lower() in self._sent_headers]
        try:
            with trace_span("model server", {"server.address": url.host or ""}) as span:
                response = await self._open_session().request(
                    request.method,
                    url,
                    headers=[*headers, ("Accept-Encoding", "identity")],
                    data=data or None,
                    allow_redirects=False,
                    ssl=_tls_context() if url.scheme == "https" else True,
                    timeout=aiohttp.ClientTimeout(
                        sock_connect=request.extensions["timeout"]["connect"]
                    ),
                )
                if span is not None:
                    span.set_attribute("http.response.status_code", response.status)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            logger.info("model server %s: %s", url.host, type(error).__name__)
            raise _failure(error) from None
        level = logging.DEBUG if response.status < HTTPStatus.BAD_REQUEST else logging.INFO
        logger.log(level, "model server %s answered %d", url.host, response.status)
        if not _is_acceptable(response):
            response.close()
            raise ProviderError("provider_protocol")
        body = ResponseBody(response, most=self._most)
        return httpx2.Response(
            status_code=response.status,
            headers=list(response.raw_headers),
            stream=body,
            extensions={"body": body, "sent": hashlib.sha256(data).hexdigest()},
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    # The worker limits concurrent calls. A limit here would only make calls wait
                    # until their timeout.
                    limit=0,
                    resolver=self._guard,
                    use_dns_cache=False,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                max_field_size=MAX_HEADERS,
                max_line_size=MAX_HEADERS,
            )
        return self._session


class ResponseBody(httpx2.AsyncByteStream):
    """The body of a response as it arrives. Bodies of error responses are truncated.

    `read` is for reading token by token: `httpx2.Response` wraps four generators around
    each piece.
    """

    def __init__(self, response: aiohttp.ClientResponse, *, most: int = sys.maxsize) -> None:
        self._response = response
        self._most = most

    async def read(self) -> bytes:
        """Return the bytes that have arrived; empty at the end. Raises ProviderError."""
        try:
            return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise _failure(error) from None

    def abort(self, error: ProviderError) -> None:
        """Make the pending read and all later reads fail with this error."""
        self._response.content.set_exception(error)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_good = 200 <= self._response.status < 300
        left = self._most if is_good else MAX_ERROR_BODY
        while left > 0 and (chunk := await self.read()):
            yield chunk[:left]
            left -= len(chunk)
        if left < 0 and is_good:
            raise ProviderError("provider_protocol")

    async def aclose(self) -> None:
        # A connection with an incompletely read response is closed, any other is reused.
        self._response.release()


class _AddressGuard(AbstractResolver):
    """Gives aiohttp only the addresses that were checked for a request.

    A name therefore cannot change between check and connection. The Host header and the TLS name
    stay those of the URL.
    """

    def __init__(self, *, allowed_private: Collection[str], resolve: Resolver) -> None:
        self._allowed_private = frozenset(allowed_private)
        self._resolve = resolve
        self._checked: dict[tuple[str, int], tuple[str, ...]] = {}

    async def check_host(self, url: URL) -> None:
        """Resolve the host of a request and check its addresses.

        Called for each request, because aiohttp does not resolve the host when it reuses a
        connection, or when the host is an address. Raises AddressRefused if one address is refused,
        and ProviderError if the host cannot be resolved.
        """
        host, port = url.raw_host or "", url.port or 0
        self._checked[host, port] = check_addresses(
            host=host,
            port=port,
            addresses=await self._resolve(host, port),
            allowed_private=self._allowed_private,
        )

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the checked addresses of a host.

        Raises KeyError for a host that was not checked.
        """
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in self._checked[host, port]
        ]

    async def close(self) -> None:
        """Do nothing: no connection is held."""


@functools.cache
def _tls_context() -> ssl.SSLContext:
    """Return the process's TLS context. Created at first use, because it takes about 0.05 s."""
    return httpx2.create_ssl_context()


def _is_acceptable(response: aiohttp.ClientResponse) -> bool:
    size = sum(len(name) + len(value) + 4 for name, value in response.raw_headers)
    encodings = response.headers.getall("Content-Encoding", ["identity"])
    return size <= MAX_HEADERS and encodings == ["identity"]


def _failure(error: Exception) -> ProviderError:
    match error:
        case TimeoutError():
            return ProviderError("provider_timeout")
        case aiohttp.ClientConnectorCertificateError():
            return ProviderError(
                "provider_unavailable", retryable=False, sentence=_CERTIFICATE_REFUSED
            )
    return ProviderError("provider_unavailable")

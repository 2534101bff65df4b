"""A small HTTP/1.1 client for load, and a meter of the fake server's timestamped tokens.

A general client uses more CPU than the server under test, which would be measured as the server's
latency. This one has one kept-alive connection per simulated person.
"""

import asyncio
import json
import re
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

import httptools

# Token i of a reply reads ` i@T;`, with T in microseconds of the monotonic clock.
STAMP = re.compile(rb"(\d+)@(\d{6,});")
LONGEST_STAMP = 40
# Servers close idle connections after five seconds, some while a request is on its way.
LONGEST_IDLE = 2.0
Receive = Callable[[bytes], None]


class TokenMeter:
    """Finds tokens in received bytes: their order, losses, repetitions and the first one's time.

    Tokens that were sent before the meter was created belong to earlier replies and are ignored.
    """

    def __init__(self) -> None:
        self.began_ns = time.monotonic_ns()
        self.first_ns = 0
        self.seen: set[int] = set()
        self.repeated = self.reordered = 0
        self.delays_us = array("q")
        self._highest = -1
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Count the tokens of received bytes. A token may be split between calls."""
        now = time.monotonic_ns()
        text, end = self._rest + data, 0
        for found in STAMP.finditer(text):
            number, sent_us, end = int(found[1]), int(found[2]), found.end()
            if sent_us * 1000 < self.began_ns - 1000:
                continue
            if number in self.seen:
                self.repeated += 1
                continue
            self.reordered += number < self._highest
            self._highest = max(number, self._highest)
            self.seen.add(number)
            self.first_ns = self.first_ns or now
            self.delays_us.append(now // 1000 - sent_us)
        self._rest = text[max(end, len(text) - LONGEST_STAMP) :]

    @property
    def first_ms(self) -> float:
        """Milliseconds from the creation of the meter to the first token."""
        return (self.first_ns - self.began_ns) / 1e6


class HttpConnection(asyncio.Protocol):
    """One connection that is opened when needed and kept between requests."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._transport: Any = None
        self._over: asyncio.Future[None] | None = None
        self._parser: Any = None
        self._receive: Receive | None = None
        self._pieces: list[bytes] = []
        self._used_at = 0.0
        self.headers: dict[str, str] = {}
        self.status = 0

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        *,
        receive: Receive | None = None,
        seconds: float = 120,
    ) -> tuple[int, bytes]:
        """Send a request; return its status and body.

        If `receive` is given, it gets the body of a successful response as it arrives. An object is
        sent as JSON. Raises OSError if the connection ends early, and TimeoutError after `seconds`.
        """
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        fields = {"host": f"{self.host}:{self.port}", "accept": "*/*"}
        if data is not None:
            fields |= {"content-type": "application/json", "content-length": str(len(data))}
        lines = [f"{name}: {value}" for name, value in {**fields, **(headers or {})}.items()]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines]) + "\r\n\r\n"
        loop = asyncio.get_running_loop()
        if time.monotonic() - self._used_at > LONGEST_IDLE:
            self.close()
        if self._transport is None or self._transport.is_closing():
            await loop.create_connection(lambda: self, self.host, self.port)
        self._parser = httptools.HttpResponseParser(self)
        self._receive, self._pieces, self.headers = receive, [], {}
        self._over = loop.create_future()
        if self._transport is None:
            raise ConnectionResetError("the connection ended at once")
        self._transport.write(head.encode() + (data or b""))
        try:
            await asyncio.wait_for(self._over, seconds)
        except BaseException:
            self.close()
            raise
        self._used_at = time.monotonic()
        return self.status, b"".join(self._pieces)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    # Callbacks of the transport.
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that is waiting."""
        self._transport = None
        if self._over is not None and not self._over.done():
            self._over.set_exception(ConnectionResetError(f"the connection ended early: {exc!r}"))

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if self._over is not None and not self._over.done():
                self._over.set_exception(ConnectionError(f"not HTTP: {error!r}"))

    # Callbacks of the parser.
    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header by its lower-case name."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Store the status."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Pass a piece of the body on, or store it."""
        if self._receive is not None and self.status < 300:
            self._receive(data)
        else:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        """End the request."""
        if self.status >= 200 and self._over is not None and not self._over.done():
            self._over.set_result(None)
            if self.headers.get("connection", "").lower() == "close":
                self.close()

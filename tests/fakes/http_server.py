"""A minimal HTTP/1.1 server for fakes: parses requests, sends whole or chunked responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

REASONS = {200: "OK", 307: "Temporary Redirect", 400: "Bad Request", 404: "Not Found"}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """The next request of a connection, or None if the client closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = dict(_header(line) for line in lines if line)
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return HttpRequest(method, url.path, parse_qs(url.query), headers, body)


async def send_json(
    writer: asyncio.StreamWriter,
    answer: object,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
) -> None:
    """Send a complete JSON response."""
    body = json.dumps(answer).encode()
    fields = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        **(headers or {}),
    }
    writer.write(_head(status, fields) + body)
    await writer.drain()


async def begin_stream(writer: asyncio.StreamWriter, headers: Mapping[str, str]) -> None:
    """Send the headers of a chunked event stream."""
    fields = {
        "content-type": "text/event-stream; charset=utf-8",
        "transfer-encoding": "chunked",
        **headers,
    }
    writer.write(_head(200, fields))
    await writer.drain()


async def send_chunk(writer: asyncio.StreamWriter, data: bytes, *, writes: int = 1) -> None:
    """Send one chunk, in one TCP write or split into several."""
    framed = b"%x\r\n%b\r\n" % (len(data), data)
    size = -(-len(framed) // writes)
    for start in range(0, len(framed), size):
        writer.write(framed[start : start + size])
        await writer.drain()
        if writes > 1:
            # Long enough for the kernel to send each part separately.
            await asyncio.sleep(0.002)


async def end_stream(writer: asyncio.StreamWriter) -> None:
    """Send the empty chunk that ends a stream."""
    writer.write(b"0\r\n\r\n")
    await writer.drain()


@asynccontextmanager
async def stub_server(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Start a server that answers the first request of each connection by hand; return its port."""

    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            try:
                await read_request(reader)
                await answer(writer)
            finally:
                writer.close()
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        running.add(task)

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip()


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

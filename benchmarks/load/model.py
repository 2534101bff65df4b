"""A fast fake model server for load: streams timestamped tokens at exact times. Loopback only.

`python -m benchmarks.load.model [--port 0] [--tokens 100] [--first-ms 200] [--token-ms 20]` prints
its port. It answers `POST /v1/chat/completions`. Token i reads ` i@T;` with T in microseconds of
the monotonic clock, so a client on the same machine sees the delay, loss and order of each token.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httptools

from benchmarks.load.words import texts, vocabulary

# Tokens that are due at the same time and sent in one write.
MOST_AT_ONCE = 16
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Pace:
    """The length of a reply and its times in milliseconds.

    With `words`, each token is a generated word instead of a timestamp.
    """

    tokens: int = 100
    first_ms: float = 200.0
    token_ms: float = 20.0
    words: bool = False


class ModelConnection(asyncio.Protocol):
    """One kept-alive connection, with at most one request at a time."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._timer: asyncio.TimerHandle | None = None
        self._transport: Any = None
        self._body: list[bytes] = []
        self._head = b""
        self._sent = 0
        self._begin = 0.0
        self._prompt_tokens = 0
        self._words: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect requests."""
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the reply."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        """Forget the previous request."""
        self._body = []

    def on_body(self, data: bytes) -> None:
        """Store a piece of the request."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Answer a request: a stream, a complete reply, or the list of models."""
        if not self._body:
            self._send_json({"object": "list", "data": [{"id": "mock-chat", "object": "model"}]})
            return
        request = json.loads(b"".join(self._body))
        self._prompt_tokens = sum(map(len, self._body)) // 4
        name = json.dumps(request.get("model", "mock-chat"))
        self._head = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":%s,' % (
            name.encode()
        )
        loop = asyncio.get_running_loop()
        if not request.get("stream"):
            self._send_json(self._whole_reply(str(request.get("model"))))
            return
        self._sent, self._begin = 0, loop.time() + self._pace.first_ms / 1000
        self._transport.write(STREAM_HEAD)
        self._timer = loop.call_at(self._begin, self._send_due)

    def _send_due(self) -> None:
        """Send every token that is due, and set the timer for the next."""
        loop, pace = asyncio.get_running_loop(), self._pace
        pieces: list[bytes] = []
        while self._sent < pace.tokens and len(pieces) < MOST_AT_ONCE:
            if self._due() > loop.time():
                break
            stamp = self._token()
            role = b'"role":"assistant",' if not self._sent else b""
            delta = b'"choices":[{"index":0,"delta":{%b"content":"%b"}}]}\n\n' % (role, stamp)
            pieces.append(frame(self._head + delta))
            self._sent += 1
        if self._sent < pace.tokens:
            self._transport.write(b"".join(pieces))
            self._timer = loop.call_at(self._due(), self._send_due)
            return
        end = b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        usage = b'"choices":[],"usage":%b}\n\n' % json.dumps(self._usage()).encode()
        pieces += [frame(self._head + end), frame(self._head + usage), frame(b"data: [DONE]\n\n")]
        self._transport.write(b"".join(pieces) + b"0\r\n\r\n")

    def _token(self) -> bytes:
        """The next token."""
        if self._pace.words:
            if not self._words:
                chance = time.monotonic_ns()
                (text,) = texts(1, words=vocabulary(), length=self._pace.tokens, seed=chance)
                self._words = text.split()
            return b" " + self._words.pop().encode()
        return b" %d@%d;" % (self._sent, time.monotonic_ns() // 1000)

    def _due(self) -> float:
        """The time at which the next token is due."""
        return self._begin + self._sent * self._pace.token_ms / 1000

    def _usage(self) -> dict[str, int]:
        """The token counts of the request and the reply."""
        prompt, reply = self._prompt_tokens, self._pace.tokens
        return {
            "prompt_tokens": prompt,
            "completion_tokens": reply,
            "total_tokens": prompt + reply,
        }

    def _whole_reply(self, model: str) -> dict[str, Any]:
        """A reply that is not streamed."""
        message = {"role": "assistant", "content": "A short reply."}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": self._usage(),
        }

    def _send_json(self, answer: object) -> None:
        """Send a complete response."""
        body = json.dumps(answer).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % len(body) + body)


def frame(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A running fake server: its process and its port."""

    pid: int
    port: int

    @property
    def host(self) -> str:
        """`host:port`, in the format of ALLOWED_PRIVATE_PROVIDERS."""
        return f"127.0.0.1:{self.port}"


@contextmanager
def model_server(pace: Pace, *, port: int = 0) -> Iterator[ModelServer]:
    """Run the fake server until the block ends. Raises RuntimeError if it does not start."""
    command = [sys.executable, "-m", "benchmarks.load.model", "--port", str(port)]
    command += ["--tokens", str(pace.tokens)]
    command += ["--words"] if pace.words else []
    command += ["--first-ms", str(pace.first_ms), "--token-ms", str(pace.token_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.strip().isdecimal():
                raise RuntimeError("The fake model server did not start.")
            yield ModelServer(process.pid, int(line))
        finally:
            process.terminate()


async def serve(port: int, pace: Pace) -> None:
    """Serve until cancelled; print the port."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ModelConnection(pace), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201  # its starter reads the port
    await server.serve_forever()


def main() -> None:
    """Serve with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--first-ms", type=float, default=200.0)
    parser.add_argument("--token-ms", type=float, default=20.0)
    parser.add_argument("--words", action="store_true")
    asked = parser.parse_args()
    import uvloop

    uvloop.run(
        serve(asked.port, Pace(asked.tokens, asked.first_ms, asked.token_ms, words=asked.words))
    )


if __name__ == "__main__":
    main()

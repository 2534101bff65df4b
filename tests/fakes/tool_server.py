"""A server of tools (MCP over HTTP), written by hand, with faults."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "2025-06-18"


def describe(name: str, *, description: str = "", **annotations: Any) -> dict[str, Any]:
    """Return a tool as the server lists it. Its arguments are one text."""
    return {
        "name": name,
        "description": description or f"Do {name}.",
        "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
        **({"annotations": annotations} if annotations else {}),
    }


@dataclass
class FakeToolServer:
    """The tools, the result of calls, and the received requests.

    `fault`, of calls only: slow, huge, wrong_json, closing, wrong_result. `error`: the tool reports
    one. `rpc_error`: the error of the protocol that answers calls. `call_status` and `call_type`:
    the status and the content type of responses to calls. `slow_seconds`: how long a slow call
    takes.
    """

    port: int = 0
    tools: list[dict[str, Any]] = field(default_factory=lambda: [describe("echo")])
    text: str = ""
    # Blocks instead of the text, and structured content.
    content: list[dict[str, Any]] = field(default_factory=list)
    structured: dict[str, Any] | None = None
    fault: str = ""
    error: bool = False
    rpc_error: dict[str, Any] | None = None
    call_status: int = 200
    call_type: str = "application/json"
    slow_seconds: float = 30.0
    page_size: int = 1000
    calls: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    called: threading.Event = field(default_factory=threading.Event)
    closing: threading.Event = field(default_factory=threading.Event)

    @property
    def host(self) -> str:
        """The host in the format of the settings."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/mcp"

    def answer(self, method: str, parameters: dict[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request. None: the method is unknown."""
        if method == "initialize":
            return {
                "protocolVersion": VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            }
        if method == "tools/list":
            start = int(parameters.get("cursor") or 0)
            end = start + self.page_size
            more = {"nextCursor": str(end)} if end < len(self.tools) else {}
            return {"tools": self.tools[start:end], **more}
        if method == "tools/call":
            self.calls.append(parameters)
            self.called.set()
            if self.fault == "slow":
                self.closing.wait(self.slow_seconds)
            if self.fault == "wrong_result":
                return {"content": "no list"}
            said = parameters.get("arguments", {}).get("text", "")
            text = "x" * 40_000_000 if self.fault == "huge" else self.text or f"echo: {said}"
            content = self.content or [{"type": "text", "text": text}]
            extra = {} if self.structured is None else {"structuredContent": self.structured}
            return {"content": content, "isError": self.error, **extra}
        return None


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    fake: FakeToolServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.fake.headers.append({name.lower(): value for name, value in self.headers.items()})
        if "id" not in body:
            self.send(202, b"")
            return
        is_call = body["method"] == "tools/call"
        if is_call and self.fake.fault == "closing":
            self.fake.calls.append(body["params"])
            self.close_connection = True
            return
        result = self.fake.answer(body["method"], body.get("params") or {})
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": body["id"]}
        if result is None:
            answer["error"] = {"code": -32601, "message": "Method not found"}
        elif is_call and self.fake.rpc_error:
            answer["error"] = self.fake.rpc_error
        else:
            answer["result"] = result
        is_wrong = is_call and self.fake.fault == "wrong_json"
        content = b"{not json" if is_wrong else json.dumps(answer).encode()
        if is_call:
            self.send(self.fake.call_status, content, content_type=self.fake.call_type)
        else:
            self.send(200, content)

    def do_GET(self) -> None:
        self.send(405, b"")

    def do_DELETE(self) -> None:
        self.send(405, b"")

    def send(self, status: int, body: bytes, *, content_type: str = "application/json") -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", content_type)
            if status in (301, 302, 307, 308):
                self.send_header("location", "http://127.0.0.1:1/mcp")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (ConnectionError, BrokenPipeError):
            self.close_connection = True

    def log_message(self, *_args: Any) -> None:
        """Suppress the access log."""


@contextmanager
def serving_tools() -> Iterator[FakeToolServer]:
    """Run a server in threads until the block ends."""
    fake = FakeToolServer()

    class Bound(Handler):
        """Requests to this server."""

    Bound.fake = fake
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    fake.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        fake.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()

"""A webhook receiver that records requests and answers with scripted statuses."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """The received requests: headers in lower case, and bodies. After `statuses` it answers 200."""

    port: int = 0
    statuses: list[int] = field(default_factory=list)
    seconds: float = 0.0
    came: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    @property
    def host(self) -> str:
        """The host in the format of the settings."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The URL that receives webhooks."""
        return f"http://{self.host}/told?key=a%20b"


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver in threads until the block ends."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.came.append(({**headers, "path": self.path}, body))
            time.sleep(receiver.seconds)
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("location", f"http://{receiver.host}/elsewhere")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: Any) -> None:
            """Suppress the access log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

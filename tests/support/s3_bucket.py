"""A server with the operations of S3 that the storage of files uses."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

S3_KEY, S3_SECRET = "AKIATEST", "a secret"


class Bucket(BaseHTTPRequestHandler):
    """The operations of S3 that the storage uses, for one bucket."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]]
    parts: ClassVar[dict[str, dict[int, bytes]]]

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    @property
    def key(self) -> str:
        return urlsplit(self.path).path

    @property
    def query(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.path).query, keep_blank_values=True)

    def answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        headers.setdefault("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def read_body(self) -> bytes:
        assert f"Credential={S3_KEY}/" in self.headers["Authorization"]
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:  # the server's name
        data = self.read_body()
        if "partNumber" in self.query:
            self.parts[self.key][int(self.query["partNumber"][0])] = data
        else:
            self.objects[self.key] = data
        self.answer(200, ETag='"one"')

    def do_POST(self) -> None:  # the server's name
        self.read_body()
        if "uploads" in self.query:
            self.parts[self.key] = {}
            self.answer(200, b"<R><UploadId>one</UploadId></R>")
            return
        parts = self.parts.pop(self.key)
        self.objects[self.key] = b"".join(parts[number] for number in sorted(parts))
        self.answer(
            200, b"<CompleteMultipartUploadResult><ETag>one</ETag></CompleteMultipartUploadResult>"
        )

    def do_GET(self) -> None:  # the server's name
        data = self.objects.get(self.key)
        if data is None:
            self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        if found := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(found[1]), int(found[2] or len(data) - 1)
            piece = data[first : last + 1]
            where = f"bytes {first}-{first + len(piece) - 1}/{len(data)}"
            self.answer(206, piece, Content_Range=where, ETag='"one"')
            return
        self.answer(200, data, ETag='"one"', Last_Modified="Sat, 28 Nov 2026 07:00:00 GMT")

    do_HEAD = do_GET  # noqa: N815  # the server's name

    def do_DELETE(self) -> None:  # the server's name
        self.objects.pop(self.key, None)
        self.answer(204)


@contextmanager
def run_bucket() -> Iterator[tuple[type[Bucket], dict[str, str]]]:
    """Run the server. Yield its bucket, and the settings of a product that uses it."""

    class OwnBucket(Bucket):
        objects: ClassVar[dict[str, bytes]] = {}
        parts: ClassVar[dict[str, dict[int, bytes]]] = {}

    server = ThreadingHTTPServer(("127.0.0.1", 0), OwnBucket)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield (
        OwnBucket,
        {
            "S3_BUCKET": "chat-files",
            "S3_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "S3_REGION": "eu-central-1",
            "S3_ACCESS_KEY": S3_KEY,
            "S3_SECRET_KEY": S3_SECRET,
            "S3_PREFIX": "one",
            "S3_ADDRESSING": "path",
        },
    )
    server.shutdown()
    server.server_close()
    thread.join()

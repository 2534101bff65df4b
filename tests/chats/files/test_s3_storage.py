"""Files in a bucket of an S3-compatible server, with the real client and a small server."""

import io
import re
import threading
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import TestCase
from pytest_django.fixtures import Settings

from chats.files import storage, uploads
from chats.files.attach import load_image
from chats.models import FileRemoval, StoredFile
from project import env, file_storage
from tests.chats.api.programs import Program
from tests.chats.files.conftest import Read, Upload, read_stream, work_on
from tests.chats.files.sample_files import make_png

committed = TestCase.captureOnCommitCallbacks
KEY, SECRET = "AKIATEST", "a secret"


class Bucket(BaseHTTPRequestHandler):
    """The operations of S3 that the storage uses, for one bucket."""

    protocol_version = "HTTP/1.1"
    objects: dict[str, bytes]
    parts: dict[str, dict[int, bytes]]

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
        assert f"Credential={KEY}/" in self.headers["Authorization"]
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


@pytest.fixture(autouse=True)
def bucket(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Bucket]]:
    class OwnBucket(Bucket):
        objects: dict[str, bytes] = {}  # noqa: RUF012  # of this test
        parts: dict[str, dict[int, bytes]] = {}  # noqa: RUF012  # of this test

    server = ThreadingHTTPServer(("127.0.0.1", 0), OwnBucket)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name, value in {
        "S3_BUCKET": "chat-files",
        "S3_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
        "S3_REGION": "eu-central-1",
        "S3_ACCESS_KEY": KEY,
        "S3_SECRET_KEY": SECRET,
        "S3_PREFIX": "one",
        "S3_ADDRESSING": "path",
    }.items():
        monkeypatch.setenv(name, value)
    found = file_storage.read_file_storage(Path("unused"))
    settings.STORAGES = {**settings.STORAGES, "files": found}
    yield OwnBucket
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_file_is_stored_read_downloaded_and_deleted(
    of_alice: Program, read: Read, bucket: type[Bucket]
) -> None:
    found = read(b"The lighthouse is in Kiel.")
    assert found["state"] == "ready"
    row = StoredFile.objects.get()
    assert bucket.objects == {f"/chat-files/one/{row.path}": b"The lighthouse is in Kiel."}
    answer = of_alice.get(f"files/{found['id']}/content")
    assert read_stream(answer) == b"The lighthouse is in Kiel."
    with committed(execute=True):
        assert of_alice.call("DELETE", f"files/{found['id']}").status_code == 204
    assert not bucket.objects
    assert not FileRemoval.objects.exists()


def test_the_copy_of_an_image_is_in_the_bucket(read: Read, bucket: type[Bucket]) -> None:
    row = StoredFile.objects.get(pk=read(make_png(), "a.png")["id"])
    assert len(bucket.objects) == 2
    found = load_image(row)
    assert found is not None
    assert found.data == bucket.objects[f"/chat-files/one/{row.copy_path}"]


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_a_large_file_is_stored_in_parts(
    is_encrypted: bool, alice: User, now: datetime, bucket: type[Bucket], settings: Settings
) -> None:
    settings.FILE_ENCRYPTION = is_encrypted
    data = b"0123456789abcdef" * (20 * 65_536)
    row, _ = uploads.accept_upload(io.BytesIO(data), name="a.txt", owner=alice, now=now)
    (stored,) = bucket.objects.values()
    assert (stored == data) is not is_encrypted
    assert b"".join(storage.iter_file_bytes(row)) == data


def test_a_file_that_the_bucket_lost_is_missing(
    of_alice: Program, upload: Upload, bucket: type[Bucket]
) -> None:
    own = upload(b"words").json()["id"]
    bucket.objects.clear()
    answer = of_alice.get(f"files/{own}/content")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "file_missing")
    work_on(own)
    assert of_alice.get(f"files/{own}").json()["code"] == "file_damaged"


def test_a_bucket_needs_its_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_storage, "find_spec", lambda name: None)
    with pytest.raises(env.Misconfigured):
        file_storage.read_file_storage(Path("unused"))


def test_without_a_bucket_files_are_in_the_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("S3_BUCKET")
    found = file_storage.read_file_storage(tmp_path)
    assert found["OPTIONS"]["location"] == tmp_path

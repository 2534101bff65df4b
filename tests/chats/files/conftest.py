"""Fixtures: clients that upload files."""

import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from chats.models import Chat
from project import file_storage
from tests.chats.api.conftest import of_alice, of_charlie, program
from tests.chats.api.programs import Program
from tests.support.file_uploads import Read, Upload, read_like_a_worker, send_upload
from tests.support.s3_bucket import S3_KEY, S3_SECRET, Bucket

__all__ = ["of_alice", "of_charlie", "program"]


@pytest.fixture(autouse=True)
def own_folder(settings: Settings, tmp_path: Path) -> None:
    """Use a file storage for each test."""
    options = {**settings.STORAGES["files"]["OPTIONS"], "location": tmp_path}
    settings.STORAGES = {
        **settings.STORAGES,
        "files": {**settings.STORAGES["files"], "OPTIONS": options},
    }


@pytest.fixture
def upload(of_alice: Program) -> Upload:
    """Upload a file of Alice and return the response."""

    def send(data: bytes, name: str = "notes.txt") -> Any:
        return send_upload(of_alice, data, name)

    return send


@pytest.fixture
def read(of_alice: Program, upload: Upload) -> Read:
    """Upload a file, read it like a worker, and return its JSON."""

    def reading_file(data: bytes, name: str = "a.txt") -> Any:
        answer = upload(data, name)
        assert answer.status_code == 201, answer.json()
        read_like_a_worker(answer.json()["id"])
        return of_alice.get(f"files/{answer.json()['id']}").json()

    return reading_file


@pytest.fixture
def send(of_alice: Program, chat: Chat) -> Callable[..., Any]:
    """Send a message with files and return the response."""

    def sending(*files: str, text: str = "What does it say?", **more: Any) -> Any:
        body = {"text": text, "files": list(files), **more}
        return of_alice.post(f"chats/{chat.pk}/messages", body)

    return sending


@pytest.fixture
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
        "S3_ACCESS_KEY": S3_KEY,
        "S3_SECRET_KEY": S3_SECRET,
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

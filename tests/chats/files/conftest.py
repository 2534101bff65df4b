"""Fixtures: clients that upload files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from chats.models import Chat
from project import file_storage
from tests.chats.api.conftest import of_alice, of_charlie, program
from tests.chats.api.programs import Program
from tests.support.file_uploads import Read, Upload, read_like_a_worker, send_upload
from tests.support.s3_bucket import Bucket, run_bucket

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
    with run_bucket() as (own_bucket, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        found = file_storage.read_file_storage(Path("unused"))
        settings.STORAGES = {**settings.STORAGES, "files": found}
        yield own_bucket

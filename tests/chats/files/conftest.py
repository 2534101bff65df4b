"""Fixtures: clients that upload files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.files.uploadedfile import SimpleUploadedFile
from pytest_django.fixtures import Settings

from chats.files import reading
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.conftest import of_alice, of_charlie, program
from tests.chats.api.programs import Program

__all__ = ["of_alice", "of_charlie", "program"]
Upload = Callable[..., Any]
Read = Callable[..., Any]


def send_upload(client: Program, data: bytes, name: str = "notes.txt") -> Any:
    """Upload a file and return the response."""
    return client.client.post("/api/v1/files", {"file": SimpleUploadedFile(name, data)})


def work_on(file_id: str) -> None:
    """Read a file like a worker."""
    reading.read_uploaded_file(file_id=file_id, counter=ApproximateCounter())  # type: ignore[arg-type]


def read_stream(answer: Any) -> bytes:
    """Return the body of a streamed response."""

    async def collect() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return async_to_sync(collect)()


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
        work_on(answer.json()["id"])
        return of_alice.get(f"files/{answer.json()['id']}").json()

    return reading_file

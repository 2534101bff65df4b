"""Uploads of files over the API, and the worker that reads them."""

from collections.abc import Callable
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from chats.files import reading
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.programs import Program

Upload = Callable[..., Any]
Read = Callable[..., Any]


def send_upload(client: Program, data: bytes, name: str = "notes.txt") -> Any:
    """Upload a file and return the response."""
    return client.client.post("/api/v1/files", {"file": SimpleUploadedFile(name, data)})


def read_like_a_worker(file_id: str) -> None:
    """Read a file like a worker."""
    reading.read_uploaded_file(file_id=file_id, counter=ApproximateCounter())  # type: ignore[arg-type]

"""Helpers for imports over the API: send a file, run the worker, read the report."""

import uuid
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from chats.exchange import import_job
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.chats.api.programs import Program


@dataclass(frozen=True)
class Brought:
    """The result of an import: its row, and the outcome of each chat."""

    row: dict[str, Any]
    outcomes: list[dict[str, Any]]

    @property
    def chats(self) -> list[dict[str, Any]]:
        """Return the imported chats."""
        return [told for told in self.outcomes if told["chat"]]

    @property
    def not_taken(self) -> list[tuple[str, str]]:
        """Return title and code of each chat that failed."""
        return [(told["title"], told["code"]) for told in self.outcomes if not told["chat"]]


def send(program: Program, data: bytes, **headers: str) -> Any:
    """Send a file and return the response."""
    return program.client.post(
        "/api/v1/imports", data, content_type="application/octet-stream", headers=headers
    )


def work(import_id: object) -> None:
    """Process an import as a worker does."""
    import_job.continue_import(
        import_id=uuid.UUID(str(import_id)),
        counter=ApproximateCounter(),
        clock=timezone.now,
        is_closing=lambda: False,
    )


def bring(program: Program, data: bytes) -> Brought:
    """Import a file and return the result."""
    answer = send(program, data)
    assert answer.status_code == 202, answer.json()
    assert answer["Location"] == f"/api/v1/imports/{answer.json()['id']}"
    own = answer.json()["id"]
    work(own)
    listed = program.get(f"imports/{own}/chats", limit="100").json()
    return Brought(program.get(f"imports/{own}").json(), listed["data"])


def brought(program: Program, data: bytes) -> dict[str, Any]:
    """Import a file with one new chat and return that chat."""
    found = bring(program, data)
    assert (found.row["state"], found.row["added"]) == ("done", 1), found.row
    (made,) = found.chats
    return made


def refused(program: Program, data: bytes) -> tuple[str, str]:
    """Return code and message of a refused file, refused on upload or on reading."""
    answer = send(program, data)
    if answer.status_code != 202:
        error = answer.json()["error"]
        return error["code"], error["message"]
    own = answer.json()["id"]
    work(own)
    row = program.get(f"imports/{own}").json()
    assert row["state"] == "failed", row
    return row["code"], row["reason"]

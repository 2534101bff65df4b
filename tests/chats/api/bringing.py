"""An import as a program sees it: the file sent, a worker at it, and the report."""

import uuid
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from chats.exchange import taking
from contextpolicy.engine.tokens import ApproximateCounter
from tests.chats.api.programs import Program


@dataclass(frozen=True)
class Brought:
    """What became of a file: its import, and the chats of it that are here."""

    row: dict[str, Any]
    outcomes: list[dict[str, Any]]

    @property
    def chats(self) -> list[dict[str, Any]]:
        """The chats that are here."""
        return [told for told in self.outcomes if told["chat"]]

    @property
    def not_taken(self) -> list[tuple[str, str]]:
        """Title and code of each chat that could not be taken."""
        return [(told["title"], told["code"]) for told in self.outcomes if not told["chat"]]


def send(program: Program, data: bytes, **headers: str) -> Any:
    """The answer to a file."""
    return program.client.post(
        "/api/v1/imports", data, content_type="application/octet-stream", headers=headers
    )


def work(import_id: object) -> None:
    """What a worker does with an import."""
    taking.go_on(
        import_id=uuid.UUID(str(import_id)),
        counter=ApproximateCounter(),
        clock=timezone.now,
        is_closing=lambda: False,
    )


def bring(program: Program, data: bytes) -> Brought:
    """What became of a file that was taken at once."""
    answer = send(program, data)
    assert answer.status_code == 202, answer.json()
    assert answer["Location"] == f"/api/v1/imports/{answer.json()['id']}"
    own = answer.json()["id"]
    work(own)
    listed = program.get(f"imports/{own}/chats", limit="100").json()
    return Brought(program.get(f"imports/{own}").json(), listed["data"])


def brought(program: Program, data: bytes) -> dict[str, Any]:
    """The one chat of a file, which is new."""
    found = bring(program, data)
    assert (found.row["state"], found.row["added"]) == ("done", 1), found.row
    (made,) = found.chats
    return made


def refused(program: Program, data: bytes) -> tuple[str, str]:
    """Code and sentence of a file that was refused, at once or when it was read."""
    answer = send(program, data)
    if answer.status_code != 202:
        error = answer.json()["error"]
        return error["code"], error["message"]
    own = answer.json()["id"]
    work(own)
    row = program.get(f"imports/{own}").json()
    assert row["state"] == "failed", row
    return row["code"], row["reason"]

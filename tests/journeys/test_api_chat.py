"""From a printed sign-in link to a reply read over the API, with an audit event for each step."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.core.management import call_command
from django.test import Client

from chats.models import Turn
from chats.providers.base import Finished, TextDelta, UsageReport
from chats.streams import connection
from contextpolicy.models import ModelSpec
from tests.chats.api.programs import Program
from tests.support.scripted_worker import InlineWorker, ScriptedProvider
from tests.support.streamed_responses import read_stream

REPLY = ["A palimpsest ", "is a page\n\n", "written over. 羊皮紙"]


class Silent:
    """A bus without events: the client's data comes from the database."""

    lagged = False

    @asynccontextmanager
    async def follow(self, turn_id: UUID) -> AsyncIterator["Silent"]:
        """The hub's side."""
        yield self

    async def next(self, *, seconds: float) -> None:
        """The subscription's side."""


@pytest.fixture
def silent_bus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run without a broker."""
    monkeypatch.setattr(connection.STREAMS, "hub", Silent)


@pytest.fixture
def admin(db: None, demo_model: ModelSpec) -> Program:
    """The first administrator's browser, signed in with the link that the operator printed."""
    out = StringIO()
    call_command("login_link", stdout=out)
    found = re.search(r"/login/link/\S+", out.getvalue())
    assert found
    browser = Client(enforce_csrf_checks=True)
    assert browser.get(found[0]).status_code == 200
    token = browser.cookies["csrftoken"].value
    assert browser.post(found[0], {"csrfmiddlewaretoken": token}).status_code == 302
    program = Program("")
    program.client = browser
    return program


def make_key(admin: Program) -> dict[str, Any]:
    """Create a key in the browser's session."""
    token = admin.client.cookies["csrftoken"].value
    body = {"name": "CI", "scopes": ["chats:read", "chats:write", "audit:read", "policy:read"]}
    made = admin.post("keys", body, HTTP_X_CSRFTOKEN=token)
    assert made.status_code == 201
    key: dict[str, Any] = made.json()
    return key


def work(turn_id: str) -> None:
    """Run a worker's task for the turn."""
    script = [*map(TextDelta, REPLY), UsageReport(20, 9, 0, 0), Finished("stop")]
    worker: Any = InlineWorker(ScriptedProvider([script]))
    async_to_sync(worker.turn)(UUID(turn_id))


def stream(program: Program, path: str) -> str:
    """The whole event stream."""
    answer: Any = program.client.get(f"/api/v1/{path}/events")
    return read_stream(answer).decode()


@pytest.mark.requirement("S5")
def test_program_asks_and_reads_the_reply_and_its_record(admin: Program, silent_bus: None) -> None:
    key = make_key(admin)
    program = Program(key["secret"])
    asked = program.post("chats", {"text": "What is a palimpsest?"}).json()
    path = f"chats/{asked['id']}/turns/{asked['turn']['id']}"
    assert program.get(path).json()["status"] == "queued"

    work(asked["turn"]["id"])

    turn = program.get(path).json()
    assert (turn["status"], turn["reply"]["text"]) == ("completed", "".join(REPLY))
    assert turn["usage"]["output"] == 9
    (receipt,) = turn["receipts"]
    assert receipt["outcome"] == "ok"
    assert [part["origin"] for part in receipt["segments"]] == ["question"]
    listed = program.get(f"chats/{asked['id']}/messages").json()["data"]
    assert [message["seq"] for message in listed] == [1, 2]
    events = stream(program, path)
    assert "written over. \\u7f8a" in events
    assert events.rstrip().split("\n\n")[-1].startswith("id: 1.1.")
    recorded = program.get("audit/events", chat=asked["id"]).json()["data"]
    assert [event["type"] for event in recorded] == [
        "turn.completed",
        "turn.started",
        "chat.created",
    ]
    assert program.get(f"chats/{asked['id']}/policy").json()["digest"] == receipt["policy"]

    token = admin.client.cookies["csrftoken"].value
    admin.call("DELETE", f"keys/{key['id']}", HTTP_X_CSRFTOKEN=token)
    assert program.get(path).status_code == 401
    assert Turn.objects.get().status == "completed"

"""The messages of a team as JSON lines: complete, in order, read in batches."""

import json
import warnings
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection as database
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.ground import databases
from chats.models import ApiKey, Branch, Chat, Message
from chats.streams import connection, lines
from chats.teams import lookup
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code
from tests.support.streamed_responses import read_stream
from tests.support.team_endpoints import ANN, PLANNER

# A few full parts. One test has more messages.
COUNT = 4 * lookup.PART
MANY = 5_000


@pytest.fixture(autouse=True)
def streams(monkeypatch: pytest.MonkeyPatch) -> connection.Streams:
    """Separate stream counters for this test."""
    streams = connection.Streams()
    monkeypatch.setattr(connection, "STREAMS", streams)
    # With PostgreSQL, each batch returns its connection. Here it holds the test's transaction.
    monkeypatch.setattr(databases, "close_old_connections", list)
    return streams


def fill_chat(chat: Chat, count: int) -> Chat:
    """Add messages of two members to an empty chat."""
    branch = chat.active_branch
    assert branch is not None
    now = timezone.now() - timedelta(hours=1)
    Message.objects.bulk_create(
        Message(
            branch=branch,
            seq=seq,
            accepted=seq,
            role="user" if seq % 2 else "assistant",
            speaker=ANN if seq % 2 else PLANNER,
            parts=[{"type": "text", "text": f"Line\n{seq}\u2028"}],
            created_at=now,
        )
        for seq in range(1, count + 1)
    )
    Branch.objects.filter(pk=branch.pk).update(last_seq=count)
    Chat.objects.filter(pk=chat.pk).update(accepted_count=count)
    return chat


@pytest.fixture
def long_chat(chat: Chat) -> Chat:
    """Alice's chat with several parts of messages."""
    return fill_chat(chat, COUNT)


def read(answer: Any) -> list[dict[str, Any]]:
    """Return the objects of a stream, read to its end."""
    assert answer.status_code == 200
    assert answer["Content-Type"] == "application/x-ndjson"
    assert (answer["Cache-Control"], answer["X-Accel-Buffering"]) == ("no-store", "no")
    text = read_stream(answer)
    assert text.endswith(b"\n") or not text
    return [json.loads(line) for line in text.splitlines()]


def path(chat: Chat) -> str:
    """Return the path of the list."""
    return f"chats/{chat.pk}/team/messages"


@pytest.mark.requirement("S3.12", by="integrator")
def test_five_thousand_messages_come_in_order_and_in_parts(
    of_alice: Program, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_chat(chat, MANY)
    parts: list[int] = []
    plain = lookup.load_next_messages

    def counted(rows: Any, *, after: int) -> list[Message]:
        found = plain(rows, after=after)
        parts.append(len(found))
        return found

    monkeypatch.setattr(lookup, "load_next_messages", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answer = of_alice.get(path(chat), stream="true")
        assert parts == []
        with CaptureQueriesContext(database) as heard:
            rows = read(answer)
    assert [row["id"] for row in rows] == [f"msg-{seq}" for seq in range(1, MANY + 1)]
    assert rows[1]["content"] == "Line\n2\u2028"
    assert rows[1]["speaker"] == PLANNER
    assert max(parts) == lookup.PART
    # The last batch is full, so one more query finds the end.
    assert len(parts) == MANY // lookup.PART + 1
    # One query per batch, and two for the read permission.
    assert len(heard) <= 3 * len(parts)
    messages = [q["sql"] for q in heard if "chats_message" in q["sql"]]
    assert len(messages) == len(parts)
    assert all(f"LIMIT {lookup.PART}" in statement for statement in messages)
    # A line has the same fields as an item of a page.
    (first,) = of_alice.get(path(chat), limit=1).json()["data"]
    assert rows[0] == first


def test_a_stream_takes_the_filters_of_the_list(of_alice: Program, long_chat: Chat) -> None:
    theirs = read(of_alice.get(path(long_chat), stream="true", speaker="planner"))
    assert [row["id"] for row in theirs] == [f"msg-{seq}" for seq in range(2, COUNT + 1, 2)]
    assert len(read(of_alice.get(path(long_chat), stream="true", id="msg-7"))) == 1
    assert read(of_alice.get(path(long_chat), stream="true", until="2000-01-01T00:00:00Z")) == []
    assert of_alice.get(path(long_chat), stream="false").json()["next_cursor"]


def test_what_is_added_meanwhile_is_not_in_it(of_alice: Program, long_chat: Chat) -> None:
    answer = of_alice.get(path(long_chat), stream="true")
    of_alice.post(path(long_chat), {"message": {"content": "late", "speaker": ANN}})
    assert len(read(answer)) == COUNT


def test_a_stream_has_no_pages_but_begins_at_a_cursor(of_alice: Program, long_chat: Chat) -> None:
    refused = of_alice.get(path(long_chat), stream="true", limit=5)
    assert read_status_and_code(refused) == (400, "invalid_value")
    assert refused.json()["error"]["param"] == "limit"
    cursor = of_alice.get(path(long_chat), limit=100).json()["next_cursor"]
    assert read(of_alice.get(path(long_chat), stream="true", cursor=cursor))[0]["id"] == "msg-101"
    wrong = of_alice.get(path(long_chat), stream="true", cursor=cursor, speaker="ann")
    assert read_status_and_code(wrong) == (400, "invalid_cursor")


def test_a_stranger_and_another_person_get_nothing(
    of_charlie: Program, client: Client, long_chat: Chat
) -> None:
    assert read_status_and_code(of_charlie.get(path(long_chat), stream="true")) == (
        404,
        "not_found",
    )
    assert client.get(f"/api/v1/{path(long_chat)}", {"stream": "true"}).status_code == 401


def test_it_works_in_a_session(alice: User, long_chat: Chat, client: Client) -> None:
    client.force_login(alice)
    assert len(read(client.get(f"/api/v1/{path(long_chat)}", {"stream": "true"}))) == COUNT


@pytest.mark.parametrize("way", ["key", "chat", "time", "restart"])
def test_a_list_that_is_cut_says_so_and_goes_on_later(
    way: str,
    of_alice: Program,
    long_chat: Chat,
    settings: Settings,
    streams: connection.Streams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = lookup.load_next_messages

    def once(rows: Any, *, after: int) -> list[Message]:
        if way == "key":
            ApiKey.objects.update(revoked_at=timezone.now())
        elif way == "chat":
            Chat.objects.update(deleted_at=timezone.now())
        elif way == "restart":
            streams.closing.set()
        return plain(rows, after=after)

    if way == "time":
        settings.STREAM_SECONDS = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(lookup, "load_next_messages", once)
        rows = read(of_alice.get(path(long_chat), stream="true"))
    assert len(rows) == (1 if way == "time" else lookup.PART + 1)
    assert rows[-1]["error"]["code"] == lines.ListCut.code
    settings.STREAM_SECONDS = 900.0
    streams.closing.clear()
    ApiKey.objects.update(revoked_at=None)
    Chat.objects.update(deleted_at=None)
    rest = read(of_alice.get(path(long_chat), stream="true", cursor=rows[-1]["next_cursor"]))
    assert len(rows) - 1 + len(rest) == COUNT
    assert streams.by_user == {}


def test_no_more_are_open_at_once_than_a_person_may_have(
    of_alice: Program, long_chat: Chat, settings: Settings
) -> None:
    settings.STREAMS_PER_USER = 0
    assert read_status_and_code(of_alice.get(path(long_chat), stream="true")) == (
        429,
        "too_many_streams",
    )


def test_the_schema_tells_of_lines(of_alice: Program) -> None:
    schema = of_alice.client.get("/api/v1/schema", headers={"Accept": "application/json"}).json()
    (listed,) = [
        methods["get"]
        for methods in schema["paths"].values()
        if methods.get("get", {}).get("operationId") == "chats_team_messages_list"
    ]
    assert "application/x-ndjson" in listed["responses"]["200"]["content"]
    assert "stream" in {parameter["name"] for parameter in listed["parameters"]}

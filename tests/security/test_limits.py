"""The table of limits: each has its status, its code, and leaves what was sent to its sender."""
# ruff: noqa: N802 (tests are named for the row they hold)

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from chats import rates
from chats.messages import MESSAGE_CEILING, MessageTooLong, check_text
from chats.models import Chat, Message
from chats.streams import connection
from tests.chats.api.programs import Program
from tests.security.conftest import program_of
from tests.security.world import World


@pytest.fixture
def program(alice: User, demo_model: object) -> Program:
    """Alice's program."""
    return program_of(alice)


def code_of(answer: Any) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


CASES: list[tuple[str, str, Any, int, str]] = [
    ("POST", "chats/{chat}/messages", {"text": "x" * 32_001}, 422, "message_too_long"),
    ("POST", "chats/{chat}/messages", {"text": " \n"}, 422, "message_empty"),
    ("POST", "chats/{chat}/messages", {"text": "a\x00"}, 422, "invalid_character"),
    ("POST", "chats/{chat}/messages", b"[" * 40 + b"]" * 40, 400, "invalid_json"),
    ("POST", "chats", {"title": [[[[[[[]]]]]]]}, 400, "invalid_value"),
    ("POST", "chats", {f"k{n}": 1 for n in range(10_001)}, 400, "invalid_json"),
    ("POST", "chats", {"title": "x" * 201}, 422, "too_long"),
    ("PATCH", "chats/{chat}", {"title": "x" * 201}, 422, "too_long"),
    ("POST", "chats", b"x" * 3_000_000, 413, "request_too_large"),
    ("GET", "chats?limit=101", None, 400, "invalid_value"),
    ("GET", "chats?limit=0", None, 400, "invalid_value"),
    ("GET", "chats?cursor=forged", None, 400, "invalid_cursor"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), CASES)
def test_a_limit_has_its_code(
    method: str, path: str, body: Any, status: int, code: str, program: Program, chat: Chat
) -> None:
    assert code_of(program.call(method, path.format(chat=chat.pk), body)) == (status, code)
    assert not Message.objects.exists()


@pytest.mark.parametrize("key", ["k" * 256, "é", "a\tb"])
def test_an_idempotency_key_has_a_form(key: str, program: Program, chat: Chat) -> None:
    answer = program.post(f"chats/{chat.pk}/messages", {"text": "x"}, HTTP_IDEMPOTENCY_KEY=key)
    assert code_of(answer) == (400, "invalid_idempotency_key")


def test_no_policy_raises_the_ceiling_of_a_message() -> None:
    with pytest.raises(MessageTooLong):
        check_text("x" * (MESSAGE_CEILING + 1), limit=10**9)


def test_a_person_has_so_many_replies_at_once(
    program: Program, alice: User, settings: Settings
) -> None:
    settings.RUNS_PER_USER = 2
    answers = [program.post("chats", {"text": "x"}) for _ in range(3)]
    assert [answer.status_code for answer in answers[:2]] == [202, 202]
    assert code_of(answers[2]) == (429, "too_many_runs")
    assert int(answers[2]["Retry-After"]) > 0
    assert Chat.objects.count() == 2


def test_a_chat_has_so_many_waiting_messages_and_so_many_in_all(
    program: Program, chat: Chat, settings: Settings
) -> None:
    path = f"chats/{chat.pk}/messages"
    settings.WAITING_PER_CHAT = 1
    assert program.post(path, {"text": "x"}).status_code == 202
    assert code_of(program.post(path, {"text": "x"})) == (409, "chat_busy")
    settings.MESSAGES_PER_CHAT = 0
    assert code_of(program.post(path, {"text": "x"})) == (409, "chat_full")


def test_both_doors_have_the_same_rate_of_messages(
    program: Program, page: Client, chat: Chat, settings: Settings
) -> None:
    settings.MESSAGES_PER_MINUTE = 2
    rates.MESSAGES.clear()
    address = f"/chats/{chat.pk}/messages"
    assert page.post(address, {"text": "one"}).status_code == 302
    assert page.post(address, {"text": "two"}).status_code == 302
    answer = page.post(address, {"text": "keep this text"})
    assert answer.status_code == 429
    assert "keep this text" in answer.content.decode()
    refused = program.post(f"chats/{chat.pk}/messages", {"text": "x"})
    assert code_of(refused) == (429, "rate_limit_exceeded")
    assert int(refused["Retry-After"]) > 0
    assert Message.objects.count() == 2


def test_requests_have_a_rate_that_each_answer_tells(program: Program, settings: Settings) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2
    rates.REQUESTS.clear()
    answers = [program.get("chats") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["X-RateLimit-Remaining"] for answer in answers[:2]] == ["1", "0"]
    assert code_of(answers[2]) == (429, "rate_limit_exceeded")


class SilentBus:
    """Nothing is ever said."""

    @asynccontextmanager
    async def follow(self, turn_id: uuid.UUID) -> AsyncIterator["SilentBus"]:
        """One subscription."""
        yield self

    lagged = False

    async def next(self, *, seconds: float) -> None:
        """Silence."""
        await asyncio.sleep(0.001)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> connection.Streams:
    """The streams of a process, with a bus that is silent."""
    streams = connection.Streams()
    monkeypatch.setattr(streams, "hub", SilentBus)
    monkeypatch.setattr(connection, "STREAMS", streams)
    monkeypatch.setattr(connection, "PING_SECONDS", 0.01)
    return streams


def stream_of(browser: Client, world: World) -> Any:
    """The page's own event stream."""
    return browser.get(f"/chats/{world.ids['chat_id']}/turns/{world.ids['turn_id']}/stream")


def read(answer: Any) -> str:
    """All of a stream until the server ends it."""

    async def collect() -> str:
        return b"".join([chunk async for chunk in answer.streaming_content]).decode()

    return async_to_sync(collect)()


def test_S18_a_page_s_stream_is_bounded_and_never_stored(
    page: Client, world: World, streams: connection.Streams, settings: Settings
) -> None:
    settings.STREAM_SECONDS = 0.05
    answer = stream_of(page, world)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/event-stream; charset=utf-8"
    assert (answer["Cache-Control"], answer["X-Accel-Buffering"]) == ("no-store", "no")
    assert "event: server.resume" in read(answer)
    settings.STREAMS_PER_USER = 0
    assert stream_of(page, world).status_code == 429
    settings.STREAMS_PER_USER, settings.STREAMS_PER_INSTANCE = 1, 0
    assert stream_of(page, world).status_code == 429


def test_S18_a_page_s_stream_ends_with_its_session(
    page: Client, world: World, streams: connection.Streams, settings: Settings
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0.001
    settings.STREAM_SECONDS = 20
    answer = stream_of(page, world)
    page.session.flush()
    text = read(answer)
    assert "server.resume" not in text
    assert "done" not in re_events(text)


def re_events(text: str) -> list[str]:
    """The names of the events in a stream."""
    return [line.removeprefix("event: ") for line in text.split("\n") if line[:7] == "event: "]


def test_S18_a_stranger_and_charlie_get_no_stream(world: World, charlie: User) -> None:
    browser = Client()
    assert stream_of(browser, world).status_code == 404
    browser.force_login(charlie)
    assert stream_of(browser, world).status_code == 404

"""The table of limits: each has its status and its code, and the sender keeps the input."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from chats.actions import lifecycle
from chats.api.core import inputs, strict_json
from chats.ground import rates
from chats.models import Chat, Message, Turn
from chats.people import keys
from chats.providers import sse, transport
from chats.record.message_text import MESSAGE_CEILING, MessageTooLong, check_text
from chats.streams import connection
from chats.turns.start import TooManyTurnsOfKey, start_turn
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.acceptance import SHORTEST_SUMMARY
from contextpolicy.linter import errors
from project import settings as product
from tests.chats.api.programs import Program
from tests.security.world import World
from tests.support.error_codes import read_status_and_code
from tests.support.role_clients import create_client_of


@pytest.fixture
def program(alice: User, demo_model: object) -> Program:
    """Alice's API client."""
    return create_client_of(alice)


def test_every_default_is_the_table_s() -> None:
    """Changing a limit by accident would refuse users, or allow too much."""
    kibi = 1024
    defaults = {
        "DATA_UPLOAD_MAX_MEMORY_SIZE": 2.5 * kibi * kibi,
        "DATA_UPLOAD_MAX_NUMBER_FIELDS": 10_000,
        "MESSAGES_PER_CHAT": 200_000,
        "CHATS_PER_USER": 20_000,
        "FOLDERS_PER_USER": 200,
        "DELETED_CHAT_DAYS": 7,
        "IMPORTS_PER_USER": 2,
        "IMPORT_REPORT_DAYS": 30,
        "TEMPORARY_CHAT_HOURS": 24,
        "TURNS_PER_USER": 4,
        "TURNS_PER_KEY": 8,
        "WAITING_PER_CHAT": 20,
        "MESSAGES_PER_MINUTE": 30,
        "WARM_UPS_PER_MINUTE": 30,
        "METER_UPDATES_PER_MINUTE": 60,
        "WARM_UP_SECONDS": 60,
        "API_REQUESTS_PER_MINUTE": 300,
        "LOGIN_FAILURES_PER_IP": 10,
        "LOGIN_FAILURES_PER_ACCOUNT": 5,
        "REPLY_CHARS": 400_000,
        "TOOL_CALLS_PER_STEP": 64,
        "GATEWAY_LOGPROB_BYTES": 8 * kibi * kibi,
        "PROVIDER_TIMEOUTS": {"connect": 5, "first_token": 60, "gap": 30, "total": 600},
        "STREAMS_PER_USER": 20,
        "STREAMS_PER_INSTANCE": 2_000,
        "STREAM_SECONDS": 15 * 60,
        "STREAM_RECHECK_SECONDS": 60,
        "ADDRESS_BYTES": 4 * kibi,
        "HEADER_BYTES": 8 * kibi,
        "HEADERS_BYTES": 32 * kibi,
        "IMPORT_FILE_BYTES": 512 * kibi * kibi,
        "IMPORT_UNPACKED_BYTES": 2 * kibi * kibi * kibi,
        "IMPORT_ENTRIES": 20_000,
        "IMPORT_CHAT_BYTES": 64 * kibi * kibi,
    }
    assert {name: getattr(product, name) for name in defaults} == defaults
    assert (MESSAGE_CEILING, PolicyValues().input_length_limit) == (200_000, 32_000)
    assert (strict_json.DEPTH, strict_json.KEYS) == (32, 10_000)
    assert (lifecycle.TITLE_LENGTH, keys.NAME_LENGTH, errors.LONGEST_TEXT) == (200, 200, 20_000)
    lengths = sse.MAX_LINE, transport.MAX_HEADERS
    assert lengths == (kibi * kibi, 32 * kibi)
    assert (inputs.LARGEST_PAGE, inputs.PageQuery.read({})["limit"]) == (100, 20)
    assert (keys.KEYS_PER_PERSON, keys.DEFAULT_DAYS, keys.LONGEST_DAYS) == (20, 90, 365)
    assert connection.PING_SECONDS == 15
    assert SHORTEST_SUMMARY == 20


CASES: list[tuple[str, str, Any, int, str]] = [
    ("POST", "chats/{chat}/messages", {"text": "x" * 32_001}, 422, "message_too_long"),
    ("POST", "chats/{chat}/messages", {"text": " \n"}, 422, "message_empty"),
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
    assert read_status_and_code(program.call(method, path.format(chat=chat.pk), body)) == (
        status,
        code,
    )
    assert not Message.objects.exists()


@pytest.mark.parametrize("key", ["", "k" * 256, "é", "a\tb"])
def test_an_idempotency_key_has_a_form(key: str, program: Program, chat: Chat) -> None:
    answer = program.post(f"chats/{chat.pk}/messages", {"text": "x"}, HTTP_IDEMPOTENCY_KEY=key)
    assert read_status_and_code(answer) == (400, "invalid_idempotency_key")


def test_an_idempotency_key_is_known_for_a_day_by_owner_and_route(
    alice: User, bob: User, chat: Chat, demo_model: object, now: datetime
) -> None:
    def ask(user: User, place: Chat, at: datetime) -> Message:
        return start_turn(user=user, chat=place, text="x", now=at, idempotency_key="k").message

    first = ask(alice, chat, now)
    assert ask(alice, chat, now + timedelta(hours=24)) == first
    others = [lifecycle.create_chat(owner=owner, now=now) for owner in (alice, bob)]
    assert ask(alice, others[0], now) != first
    assert ask(bob, others[1], now) != first
    assert ask(alice, chat, now + timedelta(hours=24, seconds=1)) != first


def test_no_policy_raises_the_ceiling_of_a_message() -> None:
    with pytest.raises(MessageTooLong):
        check_text("x" * (MESSAGE_CEILING + 1), limit=10**9)


def test_S28_a_person_has_so_many_replies_at_once(
    page: Client, demo_model: object, settings: Settings
) -> None:
    settings.TURNS_PER_USER = 2
    for number in range(2):
        assert page.post("/chats/new", {"text": "x", "key": f"{number}"}).status_code == 302
    answer = page.post("/chats/new", {"text": "keep this text", "key": "2"})
    assert answer.status_code == 429
    assert "2 of your replies are already running" in answer.content.decode()
    assert "keep this text" in answer.content.decode()
    assert Chat.objects.count() == 2


def test_S28_each_key_has_so_many_replies_at_once(
    program: Program, page: Client, alice: User, settings: Settings
) -> None:
    settings.TURNS_PER_KEY = 2
    settings.TURNS_PER_USER = 1
    answers = [program.post("chats", {"text": "x"}) for _ in range(3)]
    assert [answer.status_code for answer in answers[:2]] == [202, 202]
    assert read_status_and_code(answers[2]) == (429, "too_many_runs")
    assert answers[2].json()["error"]["message"] == TooManyTurnsOfKey(limit=2).sentence
    assert int(answers[2]["Retry-After"]) > 0
    # Another key and the person's session have separate limits.
    assert create_client_of(alice).post("chats", {"text": "x"}).status_code == 202
    assert page.post("/chats/new", {"text": "x"}).status_code == 302
    assert page.post("/chats/new", {"text": "x"}).status_code == 429
    # Messages that wait in the same chat do not count twice.
    own = f"chats/{answers[0].json()['id']}"
    assert program.post(f"{own}/messages", {"text": "x"}).status_code == 202
    Turn.objects.update(status="failed", error_code="internal_error")
    assert program.post("chats", {"text": "x"}).status_code == 202
    assert program.post("chats", {"text": "x"}).status_code == 202
    assert Turn.objects.filter(status="queued").count() == 2
    last = answers[1].json()
    again = f"chats/{last['id']}/turns/{last['turn']['id']}/retry"
    assert read_status_and_code(program.post(again)) == (429, "too_many_runs")


def test_a_chat_has_so_many_waiting_messages_and_so_many_in_all(
    program: Program, chat: Chat, settings: Settings
) -> None:
    path = f"chats/{chat.pk}/messages"
    settings.WAITING_PER_CHAT = 1
    assert program.post(path, {"text": "x"}).status_code == 202
    assert read_status_and_code(program.post(path, {"text": "x"})) == (409, "chat_busy")
    settings.MESSAGES_PER_CHAT = 0
    assert read_status_and_code(program.post(path, {"text": "x"})) == (409, "chat_full")


def test_S28_both_doors_have_the_same_rate_of_messages(
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
    assert read_status_and_code(refused) == (429, "rate_limit_exceeded")
    assert int(refused["Retry-After"]) > 0
    assert (refused["X-RateLimit-Limit"], refused["X-RateLimit-Remaining"]) == ("2", "0")
    assert Message.objects.count() == 2


def test_S28_requests_have_a_rate_that_each_answer_tells(
    program: Program, settings: Settings
) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2
    rates.REQUESTS.clear()
    answers = [program.get("chats") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert [answer["X-RateLimit-Remaining"] for answer in answers[:2]] == ["1", "0"]
    assert read_status_and_code(answers[2]) == (429, "rate_limit_exceeded")


class SilentBus:
    """A bus without events."""

    @asynccontextmanager
    async def follow(self, *keys: str) -> AsyncIterator["SilentBus"]:
        """One subscription."""
        yield self

    lagged = False
    frames = ()

    async def next(self, *, seconds: float) -> None:
        """Wait without an event."""
        await asyncio.sleep(0.001)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> connection.Streams:
    """The streams of a process, with a silent bus."""
    streams = connection.Streams()
    monkeypatch.setattr(streams, "hub", SilentBus)
    monkeypatch.setattr(connection, "STREAMS", streams)
    monkeypatch.setattr(connection, "PING_SECONDS", 0.01)
    return streams


def stream_of(browser: Client, world: World) -> Any:
    """The page's event stream."""
    return browser.get("/stream", {"turn": world.ids["turn_id"]})


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


def test_S18_streams_that_open_at_once_are_counted_when_they_begin(
    page: Client, world: World, streams: connection.Streams, settings: Settings
) -> None:
    settings.STREAMS_PER_USER, settings.STREAM_SECONDS = 1, 0.05
    # Both were admitted before either began.
    first, second = stream_of(page, world), stream_of(page, world)

    async def follow() -> tuple[str, str]:
        pieces = aiter(first.streaming_content)
        begun = (await anext(pieces)).decode()
        other = b"".join([chunk async for chunk in second.streaming_content]).decode()
        await pieces.aclose()
        return begun, other

    begun, other = async_to_sync(follow)()
    assert ".snapshot\n" in begun
    assert re_events(other) == ["server.resume"]
    assert streams.by_user.total() == 0
    assert stream_of(page, world).status_code == 200


def test_S18_a_page_s_stream_ends_with_its_session(
    page: Client, world: World, streams: connection.Streams, settings: Settings
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0.001
    settings.STREAM_SECONDS = 20
    answer = stream_of(page, world)
    page.session.flush()
    text = read(answer)
    assert "server.resume" not in text
    assert not any(name.endswith("done") for name in re_events(text))


def re_events(text: str) -> list[str]:
    """The names of the events in a stream."""
    return [line.removeprefix("event: ") for line in text.split("\n") if line[:7] == "event: "]


def test_S18_a_stranger_gets_no_stream_and_charlie_hears_only_that_a_reply_is_gone(
    world: World, charlie: User, streams: connection.Streams, settings: Settings
) -> None:
    settings.STREAM_SECONDS = 0.05
    browser = Client()
    assert stream_of(browser, world).status_code == 404
    browser.force_login(charlie)
    turn = world.ids["turn_id"]
    events = re_events(read(stream_of(browser, world)))
    assert events == [f"{turn}.refresh", f"{turn}.done", "server.resume"]

"""Pass-through requests, which store no content, and dry runs."""

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import OperationalError, connection
from django.utils import timezone

from chats.gateway import watch as watches
from chats.gateway.passthrough import forward, provider_call
from chats.models import ApiKey, Chat, Message, PassedOn, Receipt, Turn
from chats.people import keys
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.record.usage import sum_person_usage
from contextpolicy.models import AuditEvent
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import (
    TOOLS,
    Answer,
    GatewayClient,
    Messages,
    assistant,
    calling,
    list_chat_messages,
    system,
    user,
)
from tests.support.gateway_passthrough import POLICY_OFF, ScriptModel, leave_stream

pytestmark = pytest.mark.django_db

SECRET = "the merger of April"
DRY = {"X-Context-Dry-Run": "true"}


def ask(program: GatewayClient, messages: Messages, headers: Any = None, **more: Any) -> Answer:
    """Send a conversation without a worker."""
    body = {"model": "demo", "messages": messages, **more}
    return program.close(program.open(body, **(headers or {})))


@pytest.mark.parametrize("bad", ["a\0b", "a\ud83d"])
def test_characters_that_cannot_be_stored_are_replaced_in_what_is_passed_on(
    program: GatewayClient, model: ScriptModel, set_policy: SetPolicy, bad: str
) -> None:
    set_policy(unmanaged="asked")
    provider = model()
    assert ask(program, [user(bad)], POLICY_OFF).status == 200
    sent = provider.requests[-1].messages[-1].content
    assert sent == bad.replace("\0", "\ufffd").replace("\ud83d", "\ufffd")


def keeping_nothing(program: GatewayClient) -> GatewayClient:
    """Set the client's key to pass-through."""
    ApiKey.objects.update(unmanaged=True)
    return program


def stored() -> str:
    """Return all stored values of the database."""
    said = []
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            cursor.execute(f'SELECT * FROM "{table}"')  # noqa: S608 - names of the test's own tables
            said += [str(row) for row in cursor.fetchall()]
    return "\n".join(said)


@pytest.mark.parametrize("why", ["key", "policy", "header"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_passed_on_and_only_its_numbers_stay(
    program: GatewayClient,
    alice: User,
    model: ScriptModel,
    set_policy: SetPolicy,
    why: str,
    stream: bool,
) -> None:
    values = {"key": "keys", "policy": "all", "header": "asked"}
    set_policy(unmanaged=values[why], system_text="The house says hello.")
    if why == "key":
        keeping_nothing(program)
    provider = model()
    sent = [system("Be brief."), user(SECRET), assistant("Which?"), user(f"{SECRET} again")]
    answer = ask(
        program, sent, POLICY_OFF if why == "header" else None, stream=stream, temperature=0.2,
        max_tokens=7, tools=TOOLS, stream_options={"include_usage": True},
    )  # fmt: skip
    assert (answer.status, answer.text) == (200, "It is secret.")
    assert answer.headers["X-Context-Decision"] == "off"
    assert answer.headers["X-Context-Off"] == why
    request = provider.requests[0]
    assert [(wire.role, wire.content) for wire in request.messages] == [
        ("system", "Be brief."),
        ("user", SECRET),
        ("assistant", "Which?"),
        ("user", f"{SECRET} again"),
    ]
    assert (request.parameters, request.max_output_tokens) == ({"temperature": 0.2}, 7)
    assert [tool.name for tool in request.tools] == ["weather"]
    usage = answer.chunks[-1]["usage"] if stream else answer.json["usage"]
    assert usage["total_tokens"] == 29
    assert SECRET not in stored()
    assert "secret." not in stored()
    assert not any(kind.objects.exists() for kind in (Chat, Message, Turn, Receipt))
    event = AuditEvent.objects.get(type="gateway.passed_on")
    told = {name: event.data[name] for name in ("why", "model", "outcome", "input_tokens")}
    assert told == {"why": why, "model": "demo", "outcome": "ok", "input_tokens": 20}
    assert (event.data["output_tokens"], event.actor) == (9, f"user:{alice.pk}")
    row = sum_person_usage(
        owner=alice, since=PassedOn.objects.get().created_at, until=timezone.now(), by="key"
    )[0]
    assert (row.group, row.calls, row.input, row.cached, row.output) == ("app", 1, 20, 5, 9)
    call_command("ledger_verify")


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_is_passed_on_although_the_database_went_away(
    program: GatewayClient, model: ScriptModel, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    keeping_nothing(program)
    model()

    def away(*_given: Any) -> None:
        raise OperationalError("no route to the database")

    monkeypatch.setattr(provider_call, "store_end", away)
    answer = ask(program, [user(SECRET)], stream=stream)
    assert (answer.status, answer.text) == (200, "It is secret.")
    assert PassedOn.objects.get().outcome == "open"


def test_responses_and_calls_of_tools_are_passed_on_too(
    program: GatewayClient, model: ScriptModel
) -> None:
    keeping_nothing(program)
    model(*calling("a", text="Let me see. "))
    body = {"model": "demo", "input": SECRET, "instructions": "Be brief."}
    answer = program.close(program.open(body, path="responses"))
    assert [item["type"] for item in answer.json["output"]] == ["message", "function_call"]
    assert PassedOn.objects.get().kind == "responses"
    # No response is stored, so none can be continued.
    model()
    again = {**body, "previous_response_id": answer.json["id"]}
    refused = program.close(program.open(again, path="responses"))
    assert refused.json["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    ("policy", "key", "headers", "status", "code"),
    [
        ("none", True, {}, 403, "opt_out_not_allowed"),
        ("none", False, POLICY_OFF, 403, "opt_out_not_allowed"),
        ("keys", False, POLICY_OFF, 403, "opt_out_not_allowed"),
        ("asked", False, {"X-Context-Policy": "small"}, 400, "invalid_value"),
        ("asked", False, {"X-Context-Dry-Run": "maybe"}, 400, "invalid_value"),
    ],
)
def test_who_may_not_opt_out_is_refused_and_nothing_is_sent_or_kept(
    program: GatewayClient,
    model: ScriptModel,
    set_policy: SetPolicy,
    policy: str,
    key: bool,
    headers: dict[str, str],
    status: int,
    code: str,
) -> None:
    provider = model()
    set_policy(unmanaged=policy)
    if key:
        keeping_nothing(program)
    answer = ask(program, [user(SECRET)], headers)
    error = answer.json["error"]
    assert (answer.status, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert (provider.requests, SECRET in stored()) == ([], False)


def test_a_chat_that_is_named_is_not_passed_by(
    program: GatewayClient, model: ScriptModel, chat: Chat
) -> None:
    provider = model()
    keeping_nothing(program)
    answer = ask(program, [user(SECRET)], model=f"chat:{chat.pk}")
    assert (answer.status, answer.json["error"]["code"]) == (409, "chat_keeps_its_messages")
    assert answer.headers["X-Should-Retry"] == "false"
    assert (provider.requests, Message.objects.exists()) == ([], False)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ((ProviderError("provider_unavailable"),), 502, "provider_unavailable"),
        ((ProviderError("context_overflow"),), 400, "context_length_exceeded"),
        ((Finished("none"),), 502, "reply_incomplete"),
    ],
)
def test_a_failure_before_the_first_words_has_its_status(
    program: GatewayClient, model: ScriptModel, stream: bool, script: Any, status: int, code: str
) -> None:
    keeping_nothing(program)
    model(*script)
    answer = ask(program, [user(SECRET)], stream=stream)
    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert PassedOn.objects.get().outcome == "failed"


def test_a_failure_in_the_middle_ends_the_stream_with_an_error(
    program: GatewayClient, model: ScriptModel
) -> None:
    keeping_nothing(program)
    model(TextDelta("It is "), ProviderError("provider_unavailable"))
    answer = ask(program, [user(SECRET)], stream=True)
    assert answer.status == 200
    assert answer.chunks[-1]["error"]["code"] == "provider_unavailable"
    assert "[DONE]" not in answer.body
    assert PassedOn.objects.get().error_code == "provider_unavailable"


def test_a_program_that_leaves_ends_the_call(program: GatewayClient, model: ScriptModel) -> None:
    keeping_nothing(program)

    async def think(_worker: Any) -> None:
        await asyncio.sleep(60)

    provider = model(TextDelta("It is "), think, Finished("stop"))
    response = program.open({"model": "demo", "messages": [user(SECRET)], "stream": True})

    leave_stream(response, after=b"It is")
    assert provider.cancelled == 1
    assert PassedOn.objects.get().outcome == "stopped"
    assert AuditEvent.objects.get(type="gateway.passed_on").data["outcome"] == "stopped"


def pause(seconds: float) -> Callable[[Any], Any]:
    """A pause in a script."""

    async def rest(_worker: Any) -> None:
        await asyncio.sleep(seconds)

    return rest


def test_a_silence_is_broken_before_proxies_give_up(
    program: GatewayClient, model: ScriptModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.02)
    keeping_nothing(program)
    model(pause(0.2), TextDelta("It is "), pause(0.2), TextDelta("secret."), Finished("stop"))
    answer = ask(program, [user(SECRET)], stream=True)
    assert (answer.status, answer.text) == (200, "It is secret.")
    before, after = answer.body.split("It is ")
    assert before.startswith(watches.PING)
    assert watches.PING in after
    assert answer.body.endswith("[DONE]\n\n")


def test_a_whole_reply_is_never_preceded_by_a_sign(
    program: GatewayClient, model: ScriptModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.02)
    keeping_nothing(program)
    model(pause(0.2), TextDelta("secret."), Finished("stop"))
    assert ask(program, [user(SECRET)]).text == "secret."


@pytest.mark.parametrize("begun", [[], [TextDelta("It is ")]])
def test_a_stream_ends_once_its_key_is_revoked(
    program: GatewayClient,
    model: ScriptModel,
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
    begun: list[Any],
) -> None:
    monkeypatch.setattr(forward, "LOOK_SECONDS", 0.02)
    settings.STREAM_RECHECK_SECONDS = 0.05
    keeping_nothing(program)

    async def revoke(_worker: Any) -> None:
        await sync_to_async(ApiKey.objects.update)(revoked_at=timezone.now())
        await asyncio.sleep(60)

    provider = model(*begun, revoke, TextDelta("secret."), Finished("stop"))
    answer = ask(program, [user(SECRET)], stream=True)
    assert answer.status == (200 if begun else 401)
    said = answer.chunks[-1] if begun else answer.json
    assert said["error"]["code"] == "invalid_api_key"
    assert "[DONE]" not in answer.body
    assert provider.cancelled == 1
    row = PassedOn.objects.get()
    assert (row.outcome, row.error_code) == ("failed", "invalid_api_key")


def test_a_database_that_is_away_ends_no_passed_reply(
    program: GatewayClient, model: ScriptModel, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.STREAM_RECHECK_SECONDS = 0.01
    keeping_nothing(program)

    async def wait(_worker: Any) -> None:
        await asyncio.sleep(0.05)

    def away(**_named: Any) -> Any:
        raise OperationalError("no route to the database")

    model(TextDelta("It is "), wait, TextDelta("secret."), Finished("stop"))
    response = program.open(
        {"model": "demo", "messages": [user(SECRET)], "stream": True}, **POLICY_OFF
    )
    monkeypatch.setattr(keys, "is_living", away)
    assert program.close(response).text == "It is secret."


def rows() -> dict[str, int]:
    """Return the number of rows of each table."""
    return {kind.__name__: kind.objects.count() for kind in apps.get_models()}  # type: ignore[attr-defined]  # each has one


def test_a_dry_run_tells_what_would_come_and_stores_nothing(
    program: GatewayClient, set_policy: SetPolicy, sent: list[Any]
) -> None:
    set_policy(strategy="sliding_window", window_turns=2, system_text="The house.")
    messages = program.talk([f"question {n} of some words" for n in range(4)])
    chat = Chat.objects.get()
    tasks, before, said = len(sent), rows(), list_chat_messages(chat)
    asked = [*messages, user(SECRET)]
    known = ask(program, asked, DRY, stream=True)
    assert known.headers["Content-Type"].startswith("application/json")
    told = known.json
    assert (told["object"], told["decision"], told["chat"]) == (
        "context.dry_run", "continue", str(chat.pk),
    )  # fmt: skip
    # Compare with the real request.
    assert (rows(), list_chat_messages(chat), len(sent)) == (before, said, tasks)
    real = program.ask(asked)
    receipt = Receipt.objects.get(turn=real.turn)
    assert told["prompt_tokens"] == receipt.prompt_tokens
    assert [[part["part"], part["seq"], part["tokens"]] for part in told["sent"]] == [
        [segment[0], segment[2], segment[3]] for segment in receipt.segments
    ]
    left = [[out["from_seq"], out["to_seq"], out["reason"]] for out in told["left_out"]]
    assert left == receipt.left_out
    assert all(out["tokens"] > 0 for out in told["left_out"])
    new = ask(program, [user("Something else")], DRY).json
    assert (new["decision"], new["chat"], new["left_out"]) == ("new", None, [])
    edited = ask(program, [*messages[:3], user("another way")], DRY).json
    assert (edited["decision"], edited["chat"]) == ("branch", str(chat.pk))
    assert SECRET not in json.dumps(told)


def test_a_dry_run_of_what_is_passed_on_says_so(program: GatewayClient, model: ScriptModel) -> None:
    provider = model()
    keeping_nothing(program)
    told = ask(program, [user(SECRET)], DRY).json
    assert (told["decision"], told["off"]) == ("off", "key")
    assert told["prompt_tokens"] > 0
    assert (provider.requests, PassedOn.objects.exists()) == ([], False)


def test_a_silence_is_noticed_each_time_and_begins_anew_with_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "SILENCE_SECONDS", 0.05)

    async def watched() -> list[bool]:
        watch, found = watches.Watch(uuid.uuid4()), []
        for _ in range(2):
            await asyncio.sleep(0.06)
            found += [await watch.is_silent(), await watch.is_silent()]
        await asyncio.sleep(0.03)
        watch.note_words()
        await asyncio.sleep(0.03)
        return [*found, await watch.is_silent()]

    assert async_to_sync(watched)() == [True, False, True, False, False]

"""Chat completions: formats, streams, tools, parameters, policy and receipts."""

import asyncio
import io
import uuid
from typing import Any
from urllib.parse import quote

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from chats.actions import erasure
from chats.gateway import place_choices, relay
from chats.models import Chat, IdempotencyRecord, Message, Receipt, Turn
from chats.prompt import model_choice, policy_explanation
from chats.prompt.stored_messages import MATCHED
from chats.providers.base import Finished, ProviderError, ReasoningDelta, TextDelta
from chats.record import message_commitments
from chats.streams import connection
from contextpolicy.models import (
    AuditEvent,
    ContextPolicy,
    ModelSpec,
    PolicyAssignment,
    PolicyVersion,
)
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import (
    TOOLS,
    USAGE,
    Answer,
    GatewayClient,
    SilentBus,
    assistant,
    call,
    calling,
    list_chat_messages,
    result,
    system,
    user,
)

pytestmark = pytest.mark.django_db


def test_a_whole_reply_and_its_prompt(program: GatewayClient) -> None:
    sent = [system("Be brief."), user([{"type": "text", "text": "Hello"}])]
    answer = program.ask(
        sent, TextDelta("reply 1"), USAGE, Finished("stop"),
        temperature=0.2, max_tokens=50, response_format={"type": "json_object"},
        tools=TOOLS, tool_choice="none", seed=7, metadata={"a": "b"}, store=True,
    )  # fmt: skip
    ChatCompletion.model_validate(answer.json, strict=True)
    assert (answer.status, answer.text) == (200, "reply 1")
    assert answer.json["usage"] == {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    assert program.prompt == [("system", "Be brief."), ("user", "Hello")]
    request = program.requests[-1]
    assert request.parameters == {
        "temperature": 0.2,
        "response_format": {"type": "json_object"},
        "tool_choice": "none",
        "seed": 7,
    }
    assert request.max_output_tokens == 50
    assert [(tool.name, tool.strict) for tool in request.tools] == [("weather", True)]
    assert list_chat_messages(answer.chat) == [(1, "user", "Hello"), (2, "assistant", "reply 1")]
    receipt = Receipt.objects.get()
    assert [part[:2] for part in receipt.segments if part[0] in ("system", "tools")] == [
        ["system", "chat"],
        ["tools", "client"],
    ]
    turn = answer.turn
    # The request fields are deleted at the end of the turn. The receipt has the request as sent.
    assert (turn.client, turn.api_key is not None) == ({}, True)
    assert answer.headers["X-Context-Status"] == "full"
    assert answer.headers["X-Context-Report"].endswith(f"/turns/{turn.pk}")


def test_a_stream_of_words_and_calls_with_its_usage(program: GatewayClient) -> None:
    answer = program.ask(
        [user("The weather?")],
        USAGE,
        *calling("a", "b", text="Let me see. "),
        tools=TOOLS,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    chunks = [ChatCompletionChunk.model_validate(chunk) for chunk in answer.chunks]
    assert answer.text == "Let me see. "
    calls = [c for chunk in chunks[:-1] for c in chunk.choices[0].delta.tool_calls or ()]
    assert [(c.index, c.id, c.function and c.function.name) for c in calls] == [
        (0, "a", "weather"), (1, "b", "weather"),
    ]  # fmt: skip
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert (chunks[-1].choices, chunks[-1].usage and chunks[-1].usage.total_tokens) == ([], 29)
    assert answer.body.endswith("data: [DONE]\n\n")
    assert Turn.objects.get().status == "completed"
    # None of the product's own tools was offered or called.
    assert Message.objects.get(role="assistant").parts[-1]["type"] == "tool_call"


@pytest.mark.parametrize("bad", ["berth 4\0\0free", "cut \ud83d", "\udd8a rest", "\ud83d\0"])
def test_characters_that_cannot_be_stored_are_replaced_and_the_session_goes_on(
    program: GatewayClient, bad: str
) -> None:
    good = bad.replace("\0", "\ufffd").replace("\ud83d", "\ufffd").replace("\udd8a", "\ufffd")
    name, call_id = f"read{bad[-1]}", f"call{bad[-1]}"
    sent = [
        user("Show me the log."),
        assistant(None, call(call_id, name=name)),
        result(call_id, bad),
        user(f"What is that? {bad}"),
    ]
    answer = program.ask(sent, TextDelta("A cut."), Finished("stop"))
    assert (answer.status, answer.text) == (200, "A cut.")
    wires = program.requests[-1].messages
    assert [wire.content for wire in wires if wire.role == "tool"] == [good]
    assert wires[-1].content == f"What is that? {good}"
    (made,) = next(wire.tool_calls for wire in wires if wire.tool_calls)
    assert {made.call_id} == {wire.tool_call_id for wire in wires if wire.tool_call_id}
    again = program.ask([*sent, assistant("A cut."), user("Thanks.")])
    assert (again.status, again.headers["X-Context-Decision"]) == (200, "continue")
    assert again.chat == answer.chat


def streamed(program: GatewayClient, *changes: dict[str, Any], leaves: bool = False) -> str:
    """Return the streamed body while the turn goes through these changes, one chunk per change."""
    response = program.open({"model": "demo", "messages": [user("hi")], "stream": True})
    turn = Turn.objects.get()
    change = sync_to_async(Turn.objects.filter(pk=turn.pk).update)

    async def read() -> str:
        pieces = response.streaming_content
        text = ""
        for values in changes:
            await change(**values)
            text += (await anext(pieces)).decode()
        if leaves:
            # Cancel as the server does after a lost connection.
            reading = asyncio.create_task(anext(pieces))
            await asyncio.sleep(0.05)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            return text
        return text + "".join([piece.decode() async for piece in pieces])

    return str(async_to_sync(read)())


BEGUN = {"attempt": 1, "step": 1, "partial_text": "One"}


def test_words_are_passed_on_as_they_are_written_and_a_break_is_an_error(
    program: GatewayClient,
) -> None:
    """The bus has no frames, so the text comes from the row's checkpoints."""
    said = streamed(
        program,
        BEGUN,
        {"partial_text": "One, two"},
        {"status": "failed", "error_code": "worker_lost"},
    )
    assert '"content":"One"' in said
    assert '"content":", two"' in said
    assert '"code":"worker_lost"' in said
    assert "[DONE]" not in said
    assert '"finish_reason":"stop"' not in said


def test_a_program_that_leaves_stops_its_turn(program: GatewayClient) -> None:
    streamed(program, BEGUN, leaves=True)
    turn = Turn.objects.get()
    assert (turn.status, turn.client) == ("stopped", {})


def test_a_reply_that_began_anew_after_its_first_words_is_an_error(program: GatewayClient) -> None:
    said = streamed(program, BEGUN, {"attempt": 2, "partial_text": "Other"})
    assert '"code":"reply_restarted"' in said
    assert "Other" not in said
    assert Turn.objects.get().stop_requested_at is None


def key_answers(program: GatewayClient, body: Any, *, path: str = "chat/completions") -> Answer:
    """Repeat a request with its key. A worker replies if the turn is still open."""
    response = program.open(body, path=path, **KEY)
    if response.streaming:
        turn = Turn.objects.get(pk=response["X-Context-Report-Id"])
        if not turn.is_over:
            program.work(str(turn.pk), TextDelta("whole"), Finished("stop"))
    return program.close(response)


KEY = {"Idempotency-Key": "k2"}


def test_a_restart_of_the_server_stops_no_turn_and_the_key_gets_its_reply(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"model": "demo", "messages": [user("hi")]}
    waiting = program.open(body, **KEY)

    async def restart() -> None:
        closing = asyncio.Event()
        closing.set()
        monkeypatch.setattr(connection.STREAMS, "closing", closing)

    async_to_sync(restart)()
    cut = program.close(waiting)
    assert (cut.status, cut.json["error"]["code"]) == (503, "server_restarting")
    assert cut.headers["Retry-After"]
    turn = Turn.objects.get()
    assert (turn.status, turn.stop_requested_at) == ("queued", None)
    monkeypatch.undo()
    monkeypatch.setattr(connection.STREAMS, "hub", SilentBus)
    again = key_answers(program, body)
    assert (again.text, again.headers["X-Context-Decision"]) == ("whole", "repeat")
    assert Turn.objects.count() == 1


@pytest.mark.parametrize("said", ["", "Half a "])
@pytest.mark.parametrize("status", ["stopped", "failed"])
def test_a_key_whose_turn_was_stopped_or_failed_begins_it_again(
    program: GatewayClient, said: str, status: str
) -> None:
    sent = [*program.talk(["One"]), user("Two")]
    body = {"model": "demo", "messages": sent, "stream": True}
    first = program.open(body, **KEY)
    turn_id = first["X-Context-Report-Id"]
    script = [TextDelta(said)] if said else []
    if status == "failed":
        program.work(turn_id, *script, ProviderError("provider_rejected"))
    else:
        Turn.objects.filter(pk=turn_id).update(stop_requested_at=timezone.now())
        program.work(turn_id, *script, Finished("stop"))
    assert Turn.objects.get(pk=turn_id).status == status
    again = key_answers(program, body)
    assert (again.text, again.headers["X-Context-Decision"]) == ("whole", "retry")
    assert again.body.endswith("data: [DONE]\n\n")
    assert program.prompt == [("user", "One"), ("assistant", "reply 1"), ("user", "Two")]
    repeated = program.close(program.open(body, **KEY))
    assert (repeated.text, repeated.headers["X-Context-Decision"]) == ("whole", "repeat")
    assert repeated.turn == again.turn
    # The user message is stored once, and the continued conversation is recognised.
    assert Message.objects.filter(role="user").count() == 2
    third = program.ask([*sent, assistant("whole"), user("Three")])
    assert (third.chat, third.headers["X-Context-Decision"]) == (again.chat, "continue")


def test_a_key_whose_turn_is_being_stopped_begins_it_again(program: GatewayClient) -> None:
    body = {"model": "demo", "messages": [user("hi")]}
    first = program.open(body, **KEY)
    turn_id = first["X-Context-Report-Id"]
    Turn.objects.filter(pk=turn_id).update(
        status="running",
        stop_requested_at=timezone.now(),
        lease_until=timezone.now(),
        lease_token=uuid.uuid4(),
        worker="w",
    )
    again = key_answers(program, body)
    assert (again.text, again.headers["X-Context-Decision"]) == ("whole", "retry")
    assert again.turn.pk != turn_id


def test_a_tool_loop_under_a_key_begins_again_behind_its_results(program: GatewayClient) -> None:
    asked = [user("The weather?")]
    program.ask(asked, *calling("a"), tools=TOOLS)
    sent = [*asked, assistant(None, call("a")), result("a", "rain")]
    body = {"model": "demo", "messages": sent, "tools": TOOLS}
    first = program.open(body, **KEY)
    Turn.objects.filter(pk=first["X-Context-Report-Id"]).update(stop_requested_at=timezone.now())
    program.work(first["X-Context-Report-Id"], TextDelta("It r"), Finished("stop"))
    again = key_answers(program, body)
    assert (again.text, again.headers["X-Context-Decision"]) == ("whole", "retry")
    assert [wire.role for wire in program.requests[-1].messages] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "said"),
    [("chat/completions", {"messages": [user("hi")]}), ("responses", {"input": "hi"})],
)
def test_a_client_that_leaves_after_repeating_its_request_stops_nothing(
    program: GatewayClient, path: str, said: dict[str, Any], stream: bool
) -> None:
    body = {"model": "demo", "stream": stream, **said}
    first, again = (program.open(body, path=path, **KEY) for _ in range(2))

    async def leave(response: Any) -> None:
        reading = asyncio.create_task(anext(response.streaming_content))
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async_to_sync(leave)(first)
    assert Turn.objects.get().status == "queued"
    program.work(first["X-Context-Report-Id"], TextDelta("whole"), Finished("stop"))
    assert "whole" in program.close(again).body
    first, again = (program.open(body, path=path, **{"Idempotency-Key": "k3"}) for _ in range(2))
    async_to_sync(leave)(again)
    assert Turn.objects.get(pk=first["X-Context-Report-Id"]).status == "stopped"


@pytest.mark.parametrize("stream", [False, True])
def test_a_database_that_is_away_is_an_error_in_openais_form(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    response = program.open({"model": "demo", "messages": [user("hi")], "stream": stream})

    def away(_turn_id: Any) -> Any:
        raise OperationalError("no route to the database")

    for name in ("read_row", "read_row_with_thoughts"):
        monkeypatch.setattr(relay, name, away)
    answer = program.close(response)
    assert (answer.status, answer.json["error"]["code"]) == (503, "database_busy")
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}
    assert Turn.objects.get().stop_requested_at is None


def test_a_request_while_the_database_is_away_is_refused_in_openais_form(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_given: Any, **_named: Any) -> Any:
        raise OperationalError("no route to the database")

    monkeypatch.setattr(place_choices, "place_request", away)
    answer = program.close(program.open({"model": "demo", "messages": [user("hi")]}))
    assert (answer.status, answer.json["error"]["code"]) == (503, "database_busy")
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ProviderError("provider_auth", status=401), 502, "provider_auth"),
        (ProviderError("provider_rejected", status=400), 400, "provider_rejected"),
        (ProviderError("content_filtered"), 400, "content_filter"),
        (
            ProviderError("provider_rate_limited", retryable=False, status=429),
            429,
            "rate_limit_exceeded",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_words_has_its_own_status(
    program: GatewayClient, error: ProviderError, status: int, code: str, stream: bool
) -> None:
    answer = program.ask([user("hi")], error, stream=stream)
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/json")
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}
    assert answer.json["error"]["code"] == code
    assert ("Retry-After" in answer.headers) == (status == 429)


def test_one_word_too_many_for_the_provider_is_tried_again_smaller(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(strategy="simple", token_budget=4000, reserve_tokens=400, window_size=50)
    said = program.talk([f"Question {n} " + "word " * 60 for n in range(6)])
    response = program.open({"model": "demo", "messages": [*said, user("Go on")]})
    overflow = ProviderError("context_overflow", status=400, limit=500, actual=900)
    # The first call overflows. The second one is smaller and succeeds.
    program.work(response["X-Context-Report-Id"], overflow)
    answer = program.close(response)
    assert (answer.status, answer.text) == (200, "ok")
    first, second = program.requests[-2:]
    assert len(second.messages) < len(first.messages) == len(said) + 1
    assert second.messages[-1].content == "Go on"


@pytest.mark.parametrize(
    ("changes", "param", "code"),
    [
        ({"model": ""}, "model", "missing_field"),
        ({"messages": []}, "messages", "missing_field"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"messages": [user("x"), result("a", "y")]}, "messages[1].tool_call_id", "invalid_value"),
        ({"messages": [user("x"), assistant(None, call("a")), user("y")]}, "messages[2]",
         "invalid_value"),
        ({"messages": [user("x"), assistant("y")]}, "messages", "unsupported_content"),
        ({"messages": [system("")]}, "messages", "invalid_value"),
        ({"messages": [user([{"type": "input_audio", "input_audio": {"data": ""}}])]},
         "messages[0].content[0]", "unsupported_content"),
        ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
        ({"function_call": "auto"}, "function_call", "unsupported_parameter"),
        ({"stream": "yes"}, "stream", "invalid_value"),
        ({"max_tokens": -1}, "max_tokens", "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "unsupported_content"),
        *(({name: "x"}, name, "unsupported_parameter") for name in (
            "api_key", "api_base", "base_url", "extra_headers", "extra_body", "aws_region_name",
            "API_KEY", "custom_llm_provider", "fallbacks",
        )),
    ],
)  # fmt: skip
def test_S17_what_is_not_done_here_is_refused_by_name(
    program: GatewayClient, changes: dict[str, Any], param: str, code: str
) -> None:
    answer = program.close(program.open({"model": "demo", "messages": [user("hi")], **changes}))
    error = answer.json["error"]
    assert (answer.status, error["param"], error["code"]) == (400, param, code)
    assert error["type"] == "invalid_request_error"
    assert not Chat.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'{"model": NaN}', b'{"n": 1e999}',
        b'{"model": "a", "model": "b"}', b"\xff\xfe",
        b'{"a":' * 100 + b"1" + b"}" * 100, b"[" * 100_000,
    ],
)  # fmt: skip
def test_S17_a_body_that_cannot_be_read_is_an_error_in_openais_form(
    program: GatewayClient, body: bytes
) -> None:
    answer = program.close(program.open(body))
    assert answer.status == 400
    assert answer.json["error"].keys() == {"message", "type", "param", "code"}


def test_S17_who_may_not_is_told_so(
    program: GatewayClient, make: Any, alice: Any, settings: Any, charlie: Any
) -> None:
    def status(secret: str, **more: Any) -> tuple[int, str]:
        body = {"model": "demo", "messages": [user("hi")], **more}
        answer = GatewayClient(secret, []).close(GatewayClient(secret, []).open(body))
        return answer.status, str(answer.json["error"]["code"])

    chat = program.ask([user("hi")]).chat
    assert status("plm_wrong") == (401, "invalid_api_key")
    assert Client().post("/v1/chat/completions").status_code == 401
    others = make(alice, scopes=("chats:read", "chats:write")).secret
    assert status(others) == (403, "insufficient_scope")
    assert status(program.secret, model="nothing") == (404, "model_not_found")
    assert status(program.secret, model="policy:nothing") == (404, "model_not_found")
    assert status(make(charlie).secret, model=f"chat:{chat.pk}") == (404, "model_not_found")
    assert status(program.secret, model="chat:1") == (404, "model_not_found")
    too_long = [user("x" * 200_001)]
    assert status(program.secret, messages=too_long) == (422, "message_too_long")
    settings.GATEWAY_BYTES = 10
    assert status(program.secret) == (413, "request_too_large")
    large = program.ask([user("hi")]).json["error"]["message"]
    assert "/api/v1/files" in large
    settings.GATEWAY_BYTES, settings.GATEWAY_TURNS_PER_KEY = 10**6, 0
    assert status(program.secret) == (429, "too_many_runs")
    answer = Client(headers={"Authorization": f"Bearer {program.secret}"}).get(
        "/v1/chat/completions"
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert answer["Allow"] == "POST"
    assert Chat.objects.count() == 1


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/nothing/resp_1", "/v1/%00"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
def test_S17_what_is_not_there_is_an_error_in_openais_form_also_without_a_key(
    program: GatewayClient, path: str, method: str
) -> None:
    for headers in ({}, {"Authorization": f"Bearer {program.secret}"}, {"Accept": "text/html"}):
        answer = Client().generic(method, path, headers=headers)
        assert (answer.status_code, answer["Content-Type"]) == (404, "application/json")
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert (error["code"], error["param"]) == ("not_found", None)
        assert "/v1/chat/completions" in error["message"]


def test_a_model_of_any_name_is_found_by_it(program: GatewayClient, demo_model: ModelSpec) -> None:
    demo_model.name = "Qwen 3 (8B) 模型 100%"
    demo_model.save()
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    path = f"/v1/models/{quote(demo_model.name)}"
    assert client.get(path).json()["id"] == demo_model.name
    body = {"model": demo_model.name, "messages": [user("Hi")]}
    assert program.open(body).status_code == 200


def listed_by(program: GatewayClient) -> list[str]:
    """Return the names in the model list."""
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    return [entry["id"] for entry in client.get("/v1/models").json()["data"]]


def test_S17_the_models_of_a_person_and_their_policies(
    program: GatewayClient, alice: Any, set_policy: SetPolicy, now: Any
) -> None:
    ModelSpec.objects.create(slug="dear", provider="demo", name="dear")
    # A policy that is too large for every model does not break the list.
    broken = ContextPolicy.objects.create(slug="broken", name="Broken")
    broken.current = PolicyVersion.objects.create(
        policy=broken,
        number=1,
        values={"token_budget": 1100, "reserve_tokens": 100, "system_text": "long " * 500},
        locks=[],
        created_at=now,
    )
    broken.save()
    alice.user_permissions.add(Permission.objects.get(codename="change_contextpolicy"))
    assert "policy:broken" not in listed_by(program)
    alice.user_permissions.clear()
    set_policy(allowed_models=["demo"])
    named = ContextPolicy.objects.create(slug="other", name="Other")
    named.current = PolicyVersion.objects.create(
        policy=named, number=1, values={"system_text": "Be kind."}, locks=[], created_at=now
    )
    named.save()
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    found = client.get("/v1/models").json()["data"]
    assert [entry["id"] for entry in found] == ["demo", "policy:small"]
    assert Model.model_validate(found[0]).id == "demo"
    assert found[0]["context_window"] > 0
    assert client.get("/v1/models/policy:small").json() == found[1]
    assert client.get("/v1/models/dear").status_code == 404
    refused = program.close(program.open({"model": "dear", "messages": [user("hi")]}))
    assert (refused.status, refused.json["error"]["code"]) == (403, "model_not_allowed")
    # The user cannot select a policy that is not assigned to her.
    other = {"model": "policy:other", "messages": [user("hi")]}
    assert program.close(program.open(other)).status == 404
    PolicyAssignment.objects.create(policy=named, level="user", user=alice)
    answer = program.ask([user("hi")], model="policy:other")
    assert program.prompt[0] == ("system", "Be kind.")
    assert answer.chat.policy == named
    # The selected policy also applies to summaries and to the explanation.
    told = policy_explanation.explain_for(
        policy_explanation.resolve_viewpoint(alice, chat=answer.chat)
    )
    assert "other" in str(told)
    assert model_choice.choose_chat_model(chat=answer.chat).values.system_text == "Be kind."


def test_one_message_to_a_chat_that_is_named_continues_it(
    program: GatewayClient, chat: Chat
) -> None:
    answer = program.ask([user("First")], model=f"chat:{chat.pk}")
    assert (answer.chat, answer.headers["X-Context-Decision"]) == (chat, "continue")
    program.ask([user("Second")], model=f"chat:{chat.pk}")
    assert [text for _, text in program.prompt] == ["First", "reply 1", "Second"]
    # A request with the full history is recognised too, although single messages were sent before.
    said = [user("First"), assistant("reply 1"), user("Second"), assistant("reply 2")]
    whole = program.ask([*said, user("More")], model=f"chat:{chat.pk}")
    assert whole.headers["X-Context-Decision"] == "continue"
    assert [seq for seq, _, _ in list_chat_messages(chat)] == [1, 2, 3, 4, 5, 6]
    # While the reply is written, another message is refused.
    program.open({"model": f"chat:{chat.pk}", "messages": [user("Third")]})
    busy = program.close(program.open({"model": f"chat:{chat.pk}", "messages": [user("Fourth")]}))
    assert (busy.status, busy.json["error"]["code"]) == (409, "chat_busy")
    assert "Retry-After" in busy.headers


def test_a_request_that_is_repeated_under_its_key_gets_the_same_reply(
    program: GatewayClient, make: Any, charlie: Any
) -> None:
    header = {"Idempotency-Key": "k1"}
    body = {"model": "demo", "messages": [user("hi")]}
    first = program.open(body, **header)
    # The request is repeated while the reply is written.
    again = program.open(body, **header)
    program.work(first["X-Context-Report-Id"])
    answers = [
        program.close(first),
        program.close(again),
        program.close(program.open(body, **header)),
    ]
    assert {answer.text for answer in answers} == {"reply 1"}
    assert [a.headers["X-Context-Decision"] for a in answers] == ["new", "repeat", "repeat"]
    replayed = [a.headers.get("Idempotent-Replayed", "") for a in answers]
    assert replayed == ["", "true", "true"]
    assert (Turn.objects.count(), Message.objects.count()) == (1, 2)
    other = program.close(program.open({**body, "seed": 1}, **header))
    assert (other.status, other.json["error"]["code"]) == (422, "idempotency_key_reused")
    of_charlie = make(charlie).ask([user("hi")], headers=header)
    assert of_charlie.chat.owner == charlie
    # Erasure deletes the salt of the body's hash.
    message = Message.objects.filter(branch__chat=answers[0].chat).get(seq=1)
    erasure.erase_message(user=answers[0].chat.owner, message=message, now=timezone.now())
    assert IdempotencyRecord.objects.get(owner=answers[0].chat.owner).salt == ""
    assert program.close(program.open(body, **header)).status == 422


@pytest.mark.gateway_case(25)
def test_old_thoughts_are_kept_for_people_and_never_sent_back(program: GatewayClient) -> None:
    thinking = (ReasoningDelta("Hm, let me see."), TextDelta("Yes."), Finished("stop"))
    first = program.ask([user("Are you there?")], *thinking)
    assert first.text == "Yes."
    assert Message.objects.get(seq=2).parts[0] == {"type": "reasoning", "text": "Hm, let me see."}
    said = [user("Are you there?"), {**assistant("Yes."), "reasoning_content": "Hm, let me see."}]
    second = program.ask([*said, user("And now?")])
    assert second.headers["X-Context-Decision"] == "continue"
    assert [text for _, text in program.prompt] == ["Are you there?", "Yes.", "And now?"]


def test_cut_replies_say_so(program: GatewayClient) -> None:
    answer = program.ask([user("hi")], TextDelta("One"), USAGE, Finished("length"))
    assert answer.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.tampers
@pytest.mark.parametrize("how", ["", "text", "sealed again"])
def test_a_reply_that_was_changed_before_its_tool_results_came_is_found(
    program: GatewayClient, how: str
) -> None:
    asked = [user("The weather?")]
    program.ask(asked, *calling("a", text="Let me see."), tools=TOOLS)
    call_command("ledger_verify")
    row = Message.objects.get(role="assistant")
    if how:
        # The request would not match another text.
        row.parts = [{"type": "text", "text": "Let  me see."}, *row.parts[1:]]
        row.save()
    if how == "sealed again":
        message_commitments.seal_message(row).save()
    sent = [*asked, assistant("Let me see.", call("a")), result("a", "rain")]
    again = program.ask(sent, tools=TOOLS)
    assert again.headers["X-Context-Decision"] == "continue"
    assert len(Message.objects.get(pk=row.pk).parts) == 3
    if not how:
        call_command("ledger_verify")
        return
    with pytest.raises(CommandError):
        call_command("ledger_verify")


def test_a_long_history_from_a_client_is_committed_to(program: GatewayClient) -> None:
    said = [user(f"Q {n}") if n % 2 else assistant(f"A {n}") for n in range(1, 50)]
    program.ask(said)
    event = AuditEvent.objects.get(type="turn.started")
    assert "stored" not in event.data
    assert event.data["stored_digest"]["last"] - event.data["stored_digest"]["first"] == 48
    out = io.StringIO()
    call_command("ledger_verify", stdout=out)
    assert f"{MATCHED}: 50" in out.getvalue()


def test_a_chat_has_room_for_its_maximum_of_messages(program: GatewayClient, settings: Any) -> None:
    settings.MESSAGES_PER_CHAT = 4
    sent = program.talk(["One", "Two"])
    full = program.ask([*sent, user("Three")])
    assert (full.status, full.json["error"]["code"]) == (409, "chat_full")

"""Fields that a server does not know are removed, if the request means the same without them."""

import asyncio
import hashlib
import json
from typing import Any

import pytest

from chats.prompt.sent_request import serialise_request_forms
from chats.providers.base import ProviderError, ProviderEvent
from chats.providers.chunks import ReplyReader
from chats.providers.refused_fields import find_refused_fields, list_removals, remove_fields
from contextpolicy.engine.messages.extras import CallExtras
from contextpolicy.engine.messages.messages import ToolCallPart, WireMessage
from tests.fakes.calls import adapter_to, asked, call, collect, text_in
from tests.fakes.fake_server import FakeServer

CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
BODY: dict[str, Any] = {
    "model": "m",
    "temperature": 1,
    "prompt_cache_key": "x",
    "user": "ann",
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [{**CALL, "mark": 1}], "lane": "x"},
        {"role": "tool", "content": "ok", "tool_call_id": "a"},
    ],
}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        pytest.param(
            'Invalid JSON payload received. Unknown name "prompt_cache_key": Cannot find field.\n'
            'Invalid JSON payload received. Unknown name "user": Cannot find field.',
            {"prompt_cache_key", "user"},
            id="gemini",
        ),
        pytest.param("property 'prompt_cache_key' is unsupported", {"prompt_cache_key"}, id="groq"),
        pytest.param(
            "'messages.1' : for 'role:assistant' the following must be satisfied"
            "[('messages.1' : property 'lane' is unsupported)]",
            {"lane"},
            id="groq message",
        ),
        pytest.param("Unknown parameter: 'messages[1].lane'.", {"lane"}, id="openai"),
        pytest.param("Unsupported parameter: 'user'", {"user"}, id="azure"),
        pytest.param("Unrecognized request argument supplied: user", {"user"}, id="openai older"),
        pytest.param(
            {"detail": [{"type": "extra_forbidden", "loc": ["body", "user"], "msg": "Extra"}]},
            {"user"},
            id="fastapi",
        ),
        pytest.param(
            {"detail": [{"loc": ["body", "messages", 1, "assistant", "lane"],
                         "msg": "Extra inputs are not permitted"}]},
            {"lane"},
            id="fastapi message",
        ),
        pytest.param(
            "Extra inputs are not permitted, field: 'messages[1].tool_calls[0].mark', value: 1",
            {"mark"},
            id="fireworks",
        ),
        pytest.param('Unknown name "temperature": Cannot find field.', set(), id="no hint"),
        pytest.param('Unknown name "verbosity": Cannot find field.', set(), id="not sent"),
        pytest.param("user: property 'model' is unsupported", set(), id="other"),
        pytest.param("property 'role' is unsupported", set(), id="own field"),
    ],
)  # fmt: skip
def test_errors_about_unknown_fields(words: Any, found: set[str]) -> None:
    for error in (json.dumps({"error": {"message": words}}), words):
        said = error if isinstance(error, str) else json.dumps(error)
        assert find_refused_fields(said, body=BODY) == found


def test_only_named_fields_are_removed() -> None:
    body = remove_fields(BODY, names={"user", "lane", "mark", "role", "temperature"})
    assert body == {
        **{name: value for name, value in BODY.items() if name != "user"},
        "messages": [
            BODY["messages"][0],
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            BODY["messages"][2],
        ],
    }
    assert remove_fields(BODY, names=()) == BODY


@pytest.mark.parametrize("place", ["message", "call"])
@pytest.mark.parametrize("count", [8, 5000])
def test_each_combination_of_few_fields_is_tried(count: int, place: str) -> None:
    assert len(list_removals(BODY)) == 2**4
    fields: dict[str, Any] = {f"x{n}": 1 for n in range(count)}
    message = {"role": "assistant", "content": "", "tool_calls": [{**CALL, **fields}]}
    if place == "message":
        message = {"role": "user", "content": "", **fields}
    removals = list_removals({**BODY, "messages": [message]})
    assert len(removals) == 1 + min(2 + count, 16) + 1
    assert {frozenset({"prompt_cache_key"}), frozenset({"user"}), frozenset({"x0"})} < {*removals}
    assert (removals[0], len(removals[-1])) == (frozenset(), 2 + count)


def ask_both(server: FakeServer, *requests: Any) -> list[list[ProviderEvent]]:
    async def run() -> list[list[ProviderEvent]]:
        provider = adapter_to(server)
        found = [await collect(provider, request) for request in requests]
        await provider.aclose()
        return found

    return asyncio.run(run())


def test_a_hint_that_a_server_refuses_is_left_out_from_then_on(openai_server: FakeServer) -> None:
    openai_server.configure(reject="prompt_cache_key")
    request = asked("Hi", parameters={"prompt_cache_key": "k", "temperature": 1})
    for events in ask_both(openai_server, request, request):
        assert text_in(events)
    bodies = [each["body"] for each in openai_server.requests()]
    assert ["prompt_cache_key" in body for body in bodies] == [True, False, False]
    assert all(body["temperature"] == 1 for body in bodies)
    sent = openai_server.requests()[-1]["body_sha256"]
    forms = serialise_request_forms(request, is_anthropic=False)
    assert sent in {hashlib.sha256(form.encode()).hexdigest() for form in forms}


CLAIMS = (
    "unknown parameter: 'service_tier'",
    'Unknown name "service_tier"',
    '"type": "extra_forbidden", "loc": ["body", "service_tier"]',
)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_value_of_a_client_names_no_refused_field(openai_server: FakeServer, claim: str) -> None:
    openai_server.configure(reject="invalid.service_tier")
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(openai_server), asked("Hi", parameters={"service_tier": claim}))
    assert caught.value.code == "provider_rejected"
    assert len(openai_server.requests()) == 1


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("place", ["hint", "content", "field", "nested name"])
def test_no_text_of_a_request_names_a_refused_field(claim: str, place: str) -> None:
    messages: dict[str, dict[str, Any]] = {
        "hint": {"content": "hi"},
        "content": {"content": [{"type": "text", "text": claim}]},
        "field": {"content": "hi", "lane": claim},
        "nested name": {"content": "hi", "lane": {claim: 1}},
    }
    key = claim if place == "hint" else "k"
    hints = {"service_tier": "auto", "prompt_cache_key": key}
    body = {**hints, "messages": [{"role": "user", **messages[place]}]}
    error = f"Unsupported parameter: 'prompt_cache_key'. The request was: {body}"
    for said in (error, json.dumps({"error": error})):
        assert find_refused_fields(said, body=body) == {"prompt_cache_key"}


@pytest.mark.parametrize(
    "claim",
    [
        "max_tokens must be less than or equal to 1024",
        "stream_options",
        "missing reasoning_content",
    ],
)
def test_the_repeated_value_of_a_refused_field_teaches_nothing(
    openai_server: FakeServer, claim: str
) -> None:
    openai_server.configure(reject="unknown.user")
    request = asked("Hi", parameters={"user": claim}, max_output_tokens=4096)
    call(adapter_to(openai_server), request)
    assert request.sent.learned["without"] == {"user"}
    first, second = (each["body"] for each in openai_server.requests())
    assert second == {name: value for name, value in first.items() if name != "user"}


def test_an_option_that_changes_the_reply_is_not_left_out(openai_server: FakeServer) -> None:
    openai_server.configure(reject="temperature")
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(openai_server), asked("Hi", parameters={"temperature": 1}))
    assert caught.value.code == "provider_rejected"
    assert len(openai_server.requests()) == 1


def test_a_field_of_an_earlier_reply_that_a_server_refuses_is_not_sent_back(
    openai_server: FakeServer,
) -> None:
    extra = CallExtras(by="p/m", message={"lane": "analysis", "reasoning_details": [1]}).written()
    messages = (
        WireMessage("user", "Hi"),
        WireMessage("assistant", "", (ToolCallPart("call_x1", "f", "{}", extra),)),
        WireMessage("tool", "ok", (), "call_x1"),
    )
    openai_server.configure(reject="message.lane")
    request = asked("", messages=messages, origin="p/m")
    assert text_in(call(adapter_to(openai_server), request))
    first, second = (each["body"]["messages"][1] for each in openai_server.requests())
    assert first["lane"] == "analysis"
    assert "lane" not in second
    assert second["reasoning_details"] == [1]


def test_fields_that_no_server_expects_back_are_not_stored() -> None:
    reader = ReplyReader()
    delta = {
        "channel": "analysis",
        "executed_tools": [{"name": "x"}],
        "token_id": 5,
        "lane": "x",
        "tool_calls": [{**CALL, "index": 0}],
    }
    chunk = {"choices": [{"delta": delta, "finish_reason": "tool_calls"}]}
    events = [*reader.read(json.dumps(chunk).encode()), *reader.read(b"[DONE]"), *reader.finish()]
    assert [event.fields for event in events if hasattr(event, "fields")] == [{"lane": "x"}]

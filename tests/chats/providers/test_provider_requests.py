"""Requests to model servers: messages, tools, options, headers, and omitted fields."""

import asyncio
import json
import logging
from typing import Any

import pytest

from chats.prompt.sent_request import serialise_request_forms
from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.required_fields import FILLS, find_required_fill, list_effective_fills
from contextpolicy.engine.messages.images import Image
from contextpolicy.engine.messages.messages import FilePart, ToolCallPart, ToolSpec, WireMessage
from contextpolicy.engine.messages.segments import compute_text_ref
from tests.fakes.calls import QUICK, adapter_to, asked, call, collect
from tests.fakes.fake_server import FakeServer
from tests.fakes.replies import NO_SIGNATURE, NO_THOUGHTS

SEARCH = ToolSpec("search", "Search the archive.", {"type": "object", "properties": {}})


def _sent(server: FakeServer) -> dict[str, Any]:
    body: dict[str, Any] = server.requests()[-1]["body"]
    return body


@pytest.mark.requirement("S0.1")
def test_messages_and_tools_take_the_wire_form(openai_server: FakeServer) -> None:
    messages = (
        WireMessage("system", "Be brief."),
        WireMessage("user", "Find it."),
        WireMessage("assistant", "", (ToolCallPart("call_1", "search", '{"q":"x"}'),)),
        WireMessage("tool", "Nothing.", (), "call_1"),
    )
    call(adapter_to(openai_server), asked("", messages=messages, tools=(SEARCH,)))
    body = _sent(openai_server)
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Find it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "search", "arguments": '{"q":"x"}'},
                }
            ],
        },
        {"role": "tool", "content": "Nothing.", "tool_call_id": "call_1"},
    ]
    assert body["tools"][0]["function"] == {
        "name": "search",
        "description": "Search the archive.",
        "parameters": {"type": "object", "properties": {}},
    }


def test_parameters_pass_but_cannot_replace_the_request(openai_server: FakeServer) -> None:
    parameters = {"temperature": 0.2, "model": "other", "messages": [], "stream": False}
    call(adapter_to(openai_server), asked("Hello", parameters=parameters))
    body = _sent(openai_server)
    assert body["temperature"] == 0.2
    assert (body["model"], body["stream"]) == ("fake-chat", True)
    assert body["messages"][0]["content"] == "Hello"


def test_only_needed_headers_leave(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-canary")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-canary")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Canary: 1")
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Canary: 1\nanthropic-beta: canary")
    call(adapter_to(server), asked("Hello"))
    headers = server.requests()[-1]["headers"]
    assert not {name for name in headers if name.startswith(("x-", "openai-"))}
    assert "canary" not in str(headers)
    assert headers["host"] == server.host
    assert headers["authorization"] == "…6789"


def test_account_without_a_key_sends_none(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "sk-from-the-environment")
    call(adapter_to(server, api_key=""), asked("Hello"))
    assert "authorization" not in server.requests()[-1]["headers"]


def test_server_without_the_usage_option_is_asked_again_without_it_once(
    openai_server: FakeServer,
) -> None:
    openai_server.configure(reject="stream_options")

    async def twice() -> list[ProviderEvent]:
        provider = adapter_to(openai_server)
        await collect(provider, asked("First"))
        events = await collect(provider, asked("Second"))
        await provider.aclose()
        return events

    events = asyncio.run(twice())
    assert events[-1] == Finished("stop")
    assert not any(isinstance(event, UsageReport) for event in events)
    has_option = ["stream_options" in record["body"] for record in openai_server.requests()]
    assert has_option == [True, False, False]


def test_model_that_wants_the_newer_limit_gets_it(openai_server: FakeServer) -> None:
    openai_server.configure(reject="max_tokens")
    events = call(adapter_to(openai_server), asked("Hello", max_output_tokens=5))
    assert events[-1] == Finished("length")
    assert _sent(openai_server)["max_completion_tokens"] == 5
    assert "max_tokens" not in _sent(openai_server)


def test_a_server_without_images_in_tool_results_gets_them_below(
    openai_server: FakeServer,
) -> None:
    openai_server.configure(reject="result_images")
    image = FilePart("image/png", "0:c1", Image(1000, url="https://x.example/a.png").reference)
    messages = (
        WireMessage("user", "Find it."),
        WireMessage("assistant", "", (ToolCallPart("c1", "search", "{}"),)),
        WireMessage("tool", "Found.", (), "c1", ((6, image),)),
    )
    provider = adapter_to(openai_server)
    assert call(provider, asked("", messages=messages))[-1] == Finished("stop")
    first, second = (record["body"]["messages"] for record in openai_server.requests())
    assert [part["type"] for part in first[-1]["content"]] == ["text", "image_url"]
    assert [wire["role"] for wire in second] == ["user", "assistant", "tool", "user"]
    assert second[-1]["content"][1]["image_url"] == {"url": "https://x.example/a.png"}


@pytest.mark.parametrize("stored", [True, False])
def test_a_server_that_refuses_a_question_after_a_result_gets_a_reply_between(
    openai_server: FakeServer, *, stored: bool
) -> None:
    openai_server.configure(reject="user_after_tool")
    messages = (
        WireMessage("user", "Find it."),
        WireMessage("assistant", "", (ToolCallPart("c1", "search", "{}"),)),
        WireMessage("tool", "Found.", (), "c1"),
        *((WireMessage("assistant", "Here."),) if stored else ()),
        WireMessage("user", "And now?"),
    )
    request = asked("", messages=messages)
    assert call(adapter_to(openai_server), request)[-1] == Finished("stop")
    roles = [[wire["role"] for wire in r["body"]["messages"]] for r in openai_server.requests()]
    assert roles[-1] == ["user", "assistant", "tool", "assistant", "user"]
    assert len(roles) == (1 if stored else 2)
    forms = map(compute_text_ref, serialise_request_forms(request, is_anthropic=False))
    assert request.sent.sha256 in set(forms)


@pytest.mark.parametrize("rule", ["no_thoughts", "no_signatures"])
def test_a_server_that_requires_fields_of_another_model_gets_a_placeholder(
    openai_server: FakeServer, rule: str
) -> None:
    openai_server.configure(reject=rule)
    calls = (ToolCallPart("c1", "search", "{}"), ToolCallPart("c2", "search", "{}"))
    messages = (
        WireMessage("user", "Find it."),
        WireMessage("assistant", "", calls),
        WireMessage("tool", "Found.", (), "c1"),
        WireMessage("tool", "Found.", (), "c2"),
        WireMessage("assistant", "Here."),
        WireMessage("user", "And now?"),
    )
    request = asked("", messages=messages)
    provider = adapter_to(openai_server)
    assert call(provider, request)[-1] == Finished("stop")
    first, second = (record["body"]["messages"] for record in openai_server.requests())
    if rule == "no_thoughts":
        assert [wire.get("reasoning_content") for wire in second] == [
            None,
            " ",
            None,
            None,
            " ",
            None,
        ]
    else:
        assert ["extra_content" in each for each in second[1]["tool_calls"]] == [True, False]
    assert not any("reasoning_content" in wire for wire in first)
    forms = map(compute_text_ref, serialise_request_forms(request, is_anthropic=False))
    assert request.sent.sha256 in set(forms)


@pytest.mark.parametrize(
    ("error", "fill"),
    [
        ("Unexpected role 'user' after role 'tool'", "replies"),
        ("After the optional system message, conversation roles must alternate", "replies"),
        ("Missing `reasoning_content` field in the assistant message at index 2", "thoughts"),
        (NO_THOUGHTS, "thoughts"),
        ("thinking is enabled but reasoning_content is missing in assistant message", "thoughts"),
        (NO_SIGNATURE, "signatures"),
        ("Unsupported parameter: 'max_tokens'.", None),
    ],
)
def test_errors_for_missing_parts(error: str, fill: Any) -> None:
    assert find_required_fill(error, fills=()) == fill
    # A server that refuses the placeholder gets no other one.
    assert find_required_fill(error, fills=FILLS) is None


def test_placeholders_change_only_messages_that_need_them() -> None:
    question = {"role": "user", "content": "Find it."}
    assert list_effective_fills([question]) == []
    call = {"id": "c1", "extra_content": {"google": {}}}
    reply = {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "Found."}
    assert list_effective_fills([question, reply, result]) == []
    assert list_effective_fills([question, reply, result, question]) == ["replies"]


def test_other_rejections_are_not_repeated(server: FakeServer) -> None:
    server.configure(reject="messages")
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("Hello"))
    assert caught.value.code == "provider_rejected"
    assert len(server.requests()) == 1


def test_usage_has_the_cached_share(openai_server: FakeServer) -> None:
    events = call(adapter_to(openai_server), asked("x" * 400))
    assert UsageReport(104, 20, 26, 0) in events


@pytest.mark.requirement("S0.1")
@pytest.mark.parametrize("stream", [True, False])
def test_tool_calls_arrive_whole(server: FakeServer, stream: bool) -> None:
    calls = [
        {"name": "search", "arguments": {"q": "Grüße 🦊"}},
        {"name": "now", "arguments": {}, "id": "call_b"},
    ]
    server.configure(replies=[{"tool_calls": calls}])
    events = call(adapter_to(server), asked("Go", tools=(SEARCH,), stream=stream))
    found: dict[tuple[int, str], list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            texts = found.setdefault((event.index, event.call_id), ["", ""])
            texts[0] += event.name
            texts[1] += event.arguments
    names = {place: (name, json.loads(arguments)) for place, (name, arguments) in found.items()}
    assert names == {
        (0, "call_fake0"): ("search", {"q": "Grüße 🦊"}),
        (1, "call_b"): ("now", {}),
    }
    assert events[-1] == Finished("tool_calls")


def test_whole_reply_has_a_limit(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chats.providers.sse.MAX_WHOLE_REPLY", 100)
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("Hello", stream=False))
    assert caught.value.code == "provider_protocol"


def test_S24_neither_prompt_nor_key_is_logged(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    call(adapter_to(server), asked("canary question"))
    with pytest.raises(ProviderError):
        call(adapter_to(server), asked("canary [[fake fault=401]]"))
    assert "canary" not in caplog.text


def test_two_hundred_replies_run_at_once(server: FakeServer) -> None:
    async def all_at_once() -> list[list[ProviderEvent]]:
        provider = adapter_to(server)
        # Long enough for a busy machine to start the last call.
        request = asked("[[fake tokens=2 ttft=4000]]")
        replies = await asyncio.gather(*(collect(provider, request) for _ in range(200)))
        await provider.aclose()
        return replies

    replies = asyncio.run(all_at_once())
    assert all(events[-1] == Finished("stop") for events in replies)
    assert server.stats()["most_running"] == 200


def test_connection_is_used_again_for_the_next_step(server: FakeServer) -> None:
    before = server.stats()["connections"]

    async def steps() -> None:
        provider = adapter_to(server)
        for _ in range(3):
            await collect(provider, asked("Hello"))
        await provider.aclose()

    asyncio.run(steps())
    # The three steps share one connection. The two requests for counts opened the others.
    assert server.stats()["connections"] - before == 2


def test_a_request_knows_the_hash_of_the_bytes_that_left(server: FakeServer) -> None:
    tool = ToolSpec("search", "Søk.", {"type": "object", "properties": {"b": {}, "a": {}}})
    request = asked("Hva er en hegre? 🦆", tools=(tool,))
    assert request.sent.sha256 == ""
    call(adapter_to(server), request)
    assert request.sent.sha256 == server.requests()[-1]["body_sha256"]


def test_of_a_refused_body_the_hash_is_known_too(server: FakeServer) -> None:
    server.configure(fault="500")
    request = asked("Hello")
    with pytest.raises(ProviderError):
        call(adapter_to(server), request)
    assert request.sent.sha256 == server.requests()[-1]["body_sha256"]


def test_of_a_body_in_another_form_it_is_that_of_the_form_that_was_taken(
    openai_server: FakeServer,
) -> None:
    openai_server.configure(reject="max_tokens")
    request = asked("Hello", max_output_tokens=5)
    call(adapter_to(openai_server), request)
    first, second = openai_server.requests()
    assert first["body_sha256"] != second["body_sha256"] == request.sent.sha256


def test_where_nobody_answers_none_is_known(openai_server: FakeServer) -> None:
    openai_server.configure(fault="hang")
    request = asked("Hello")
    with pytest.raises(ProviderError):
        call(adapter_to(openai_server, timeouts=QUICK), request)
    assert request.sent.sha256 == ""

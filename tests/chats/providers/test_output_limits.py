"""Models that refuse a reply limit above their own get their limit."""

import asyncio
from typing import Any

import pytest

from chats.prompt import sent_request
from chats.providers.base import ErrorCode, Finished, ProviderError
from chats.providers.output_limits import find_lower_limit, find_output_limit
from contextpolicy.engine.messages.messages import ToolCallPart, WireMessage
from contextpolicy.engine.messages.segments import compute_text_ref
from tests.fakes.calls import adapter_to, asked, call, collect
from tests.fakes.fake_server import FakeServer

STATED = "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m"


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (
            "max_tokens is too large: 32768. This model supports at most 16384 completion tokens, "
            "whereas you provided 32768.",
            16384,
        ),
        (
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` "
            "is less than the `context_window` for this model",
            8192,
        ),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8192),
        ("<400> InternalError: Range of max_tokens should be [1, 8,192]", 8192),
        (STATED, 8192),
        ("The maximum tokens you requested exceeds the model limit of 4096. Try again.", 4096),
        (
            "Unable to submit request because it has a maxOutputTokens value of 70000 but the "
            "supported range is from 1 (inclusive) to 65537 (exclusive).",
            65536,
        ),
        ("max_tokens is too large: 200000", None),
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", None),
        ("This model's maximum context length is 8192 tokens.", None),
        ("The valid range of max_tokens is [1, 99999999999]", None),
        # Numbers that differ from the limits of models.
        ("The valid range of max_tokens is [1, 1]", None),
        ("The valid range of max_tokens is [1, 9000]", None),
    ],
)
def test_errors_of_servers(error: str, limit: int | None) -> None:
    assert find_output_limit(error) == limit


@pytest.mark.parametrize(
    ("status", "code", "asked_for", "limit"),
    [
        (400, "provider_rejected", 32_000, 8192),
        (422, "provider_rejected", 8193, 8192),
        (400, "provider_rejected", 8192, None),
        (400, "provider_rejected", None, None),
        (400, "content_filtered", 32_000, None),
        (404, "provider_rejected", 32_000, None),
        (500, "provider_unavailable", 32_000, None),
    ],
)
def test_only_refusals_of_larger_requests_lower_the_limit(
    status: int, code: ErrorCode, asked_for: int | None, limit: int | None
) -> None:
    failure = ProviderError(code, status=status)
    sent = asked("Hello", max_output_tokens=asked_for)
    assert find_lower_limit(failure, STATED, sent=sent) == limit


def list_limits(server: FakeServer) -> list[int]:
    return [record["body"]["max_tokens"] for record in server.requests()]


def test_a_model_gets_its_own_limit_at_once_after_one_refusal(server: FakeServer) -> None:
    server.configure(reject="long_replies")

    async def ask_twice() -> None:
        provider = adapter_to(server)
        for _ in range(2):
            request = asked("Hello", max_output_tokens=32_000)
            assert (await collect(provider, request))[-1] == Finished("stop")
            assert request.sent.sha256 == server.requests()[-1]["body_sha256"]
        await collect(provider, asked("Hello", max_output_tokens=100))
        await provider.aclose()

    asyncio.run(ask_twice())
    assert list_limits(server) == [32_000, 8192, 8192, 100]


def test_a_call_reports_what_is_not_stored_yet(server: FakeServer) -> None:
    server.configure(reject="long_replies")

    async def list_learned(*stored: Any) -> list[Any]:
        provider, found = adapter_to(server), []
        for most in stored:
            known = {"most_output": most} if most else {}
            request = asked("Hello", max_output_tokens=32_000, known=known)
            await collect(provider, request)
            found.append(request.sent.learned.get("most_output"))
        await provider.aclose()
        return found

    # Another process learned the limit 4,096.
    learned = asyncio.run(list_learned(None, None, 8192, 4096, 16_384))
    assert learned == [8192, 8192, None, None, 8192]
    assert list_limits(server) == [32_000, 8192, 8192, 8192, 4096, 8192]


def test_the_options_of_two_processes_are_merged(openai_server: FakeServer) -> None:
    openai_server.configure(reject="stream_options")
    known = {"limit_name": "max_completion_tokens", "fills": ("replies",)}

    async def list_sent() -> list[Any]:
        provider, found = adapter_to(openai_server), []
        for stored in ({}, known, known | {"takes_usage_option": False}):
            request = asked("Hello", max_output_tokens=100, known=stored)
            await collect(provider, request)
            found.append(request.sent)
        await provider.aclose()
        return found

    _, second, third = asyncio.run(list_sent())
    assert second.learned.items() >= (known | {"takes_usage_option": False}).items()
    assert third.learned == {}
    bodies = [record["body"] for record in openai_server.requests()]
    assert ["stream_options" in body for body in bodies] == [True, False, False, False]
    assert ["max_tokens" in body for body in bodies] == [True, True, False, False]


def test_a_refusal_that_stays_is_not_repeated_for_ever(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.configure(reject="long_replies")
    # The server names limits that it does not accept.
    limits = iter([16_384, 16_000, 10_000])
    monkeypatch.setattr(
        "chats.providers.output_limits.find_output_limit", lambda _error: next(limits)
    )
    with pytest.raises(ProviderError) as caught:
        call(adapter_to(server), asked("Hello", max_output_tokens=32_000))
    assert caught.value.code == "provider_rejected"
    assert list_limits(server) == [32_000, 16_384]


def ask_after_refusal(server: FakeServer, *, reject: str, refused: Any, later: Any) -> None:
    """Make a request that the server refuses each time, then another one without its rule."""

    async def ask_twice() -> None:
        provider = adapter_to(server)
        server.configure(reject=reject)
        with pytest.raises(ProviderError):
            await collect(provider, refused)
        server.configure(reject="")
        await collect(provider, later)
        await provider.aclose()

    asyncio.run(ask_twice())


def test_a_limit_that_did_not_help_is_not_stored(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chats.providers.output_limits.find_output_limit", lambda _error: 1024)
    request = asked("Hello", max_output_tokens=32_000)
    ask_after_refusal(server, reject="messages", refused=request, later=request)
    assert list_limits(server) == [32_000, 1024, 32_000]


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 9 > 1, which is the maximum allowed number of output tokens",
        "max_tokens: 9 > 1024, which is the maximum allowed number of output tokens",
        "tool_call_id",
        "missing reasoning_content",
        "stream_options are not supported",
        "max_completion_tokens instead",
    ],
)
def test_the_text_of_a_client_in_an_error_changes_no_later_request(
    openai_server: FakeServer, text: str
) -> None:
    messages = (
        WireMessage("user", "Find it."),
        WireMessage("assistant", "", (ToolCallPart("c:1", "search", "{}"),)),
        WireMessage("tool", "Found.", (), "c:1"),
    )
    request = asked("", messages=messages, max_output_tokens=32_000)
    # The server repeats the name of a parameter that it refuses.
    refused = asked("", messages=messages, max_output_tokens=32_000, parameters={text: 1})
    ask_after_refusal(openai_server, reject=text, refused=refused, later=request)
    first, *_, last = [record["body"] for record in openai_server.requests()]
    assert {key: value for key, value in first.items() if key != text} == last


@pytest.mark.parametrize("thinking", ["", "20000"])
def test_a_request_with_a_lowered_limit_can_be_rebuilt(server: FakeServer, thinking: str) -> None:
    server.configure(reject="long_replies")
    request = asked("Hello", max_output_tokens=32_000, thinking=thinking)
    assert call(adapter_to(server), request)[-1] == Finished("stop")
    forms = sent_request.serialise_request_forms(request, is_anthropic=server.kind == "anthropic")
    known = request.sent.sha256
    assert compute_text_ref(sent_request.select_sent_body(forms, known)) == known
    assert list_limits(server) == [32_000, 8192]

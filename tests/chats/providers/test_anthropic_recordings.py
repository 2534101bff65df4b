"""Recorded exchanges with Anthropic's Messages API: same requests sent, replies parsed.

A recording is a JSON file with `interactions`. Further recordings need the same format.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from chats.providers.anthropic import AnthropicProvider
from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    ProviderRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.failures import QUOTA_SENTENCE
from contextpolicy.engine.messages.messages import ToolCallPart, ToolSpec, WireMessage
from tests.fakes.calls import ROOMY, collect, text_in
from tests.fakes.recorded import Recording

FOLDER = Path(__file__).parents[2] / "recordings" / "anthropic"
STOCK = ToolSpec(
    "stock",
    "How many are left.",
    {"type": "object", "properties": {"product": {"type": "string"}}},
)
ASKED = (
    WireMessage("system", "Ask for each product."),
    WireMessage("user", "How many pens and pages are left?"),
)
PEN = ToolCallPart("toolu_rec1", "stock", '{"product": "pen"}')
PAGE = ToolCallPart("toolu_rec2", "stock", '{"product": "page"}')


def request(*messages: WireMessage, **changes: Any) -> ProviderRequest:
    """A request for the model of the recordings."""
    return ProviderRequest(model="claude-fake", messages=messages, **changes)


def question(text: str, **changes: Any) -> ProviderRequest:
    """A request with one message of the user."""
    return request(WireMessage("user", text), **changes)


def replayed(name: str, *requests: ProviderRequest) -> list[list[ProviderEvent] | ProviderError]:
    """Replay a recording and return the events. Sent bodies must equal the recorded ones."""
    recording = Recording(FOLDER / f"{name}.json")

    async def run() -> list[list[ProviderEvent] | ProviderError]:
        server = await asyncio.start_server(recording.serve, "127.0.0.1", 0)
        async with server:
            host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            provider = AnthropicProvider(
                base_url=f"http://{host}",
                api_key="sk-ant-canary",
                timeouts=ROOMY,
                allowed_private=[host],
            )
            found = [await heard(provider, one) for one in requests]
            await provider.aclose()
        return found

    found = asyncio.run(run())
    sent = [json.loads(received.body) for received in recording.received]
    assert sent == [one["request"]["body"] for one in recording.interactions]
    assert {received.path for received in recording.received} == {"/v1/messages"}
    return found


async def heard(
    provider: AnthropicProvider, asked: ProviderRequest
) -> list[ProviderEvent] | ProviderError:
    """Return the events of a call, or its error."""
    try:
        return await collect(provider, asked)
    except ProviderError as error:
        return error


def test_words_are_streamed() -> None:
    assert replayed("words", question("How high does a heron fly?")) == [
        [
            TextDelta("Mostly below"),
            TextDelta(" 500 metres — «läuft» 🦆."),
            UsageReport(14, 12, 0, 0),
            Finished("stop"),
        ]
    ]


def test_thoughts_are_reasoning() -> None:
    assert replayed("thoughts", question("Is 91 a prime?", thinking="1024")) == [
        [
            ReasoningDelta("91 is 7"),
            ReasoningDelta(" times 13."),
            TextDelta("No: 7 × 13."),
            UsageReport(40, 31, 0, 0),
            Finished("stop"),
        ]
    ]


def test_two_tools_are_called_at_once_and_the_prompt_is_read_from_the_cache() -> None:
    results = (
        WireMessage("tool", "3", (), PEN.call_id),
        WireMessage("tool", "40", (), PAGE.call_id),
    )
    first, second = replayed(
        "tools",
        request(*ASKED, tools=(STOCK,), cache_marks=(1,)),
        request(
            *ASKED,
            WireMessage("assistant", "I ask for both.", (PEN, PAGE)),
            *results,
            tools=(STOCK,),
            cache_marks=(1,),
        ),
    )
    assert isinstance(first, list)
    assert isinstance(second, list)
    texts = {"toolu_rec1": "", "toolu_rec2": ""}
    for event in first:
        if isinstance(event, ToolCallDelta):
            texts[event.call_id] += event.arguments
    assert texts == {"toolu_rec1": PEN.arguments, "toolu_rec2": PAGE.arguments}
    assert first[-2:] == [UsageReport(330, 60, 0, 310), Finished("tool_calls")]
    assert text_in(second) == "Three pens, forty pages."
    assert second[-2:] == [UsageReport(405, 9, 310, 0), Finished("stop")]


def test_a_whole_reply_is_one_piece() -> None:
    assert replayed("whole", question("Say yes.", stream=False)) == [
        [TextDelta("Yes."), UsageReport(10, 4, 0, 0), Finished("stop")]
    ]


ERRORS: dict[str, dict[str, Any]] = {
    "no_such_model": {"code": "provider_rejected", "status": 404, "retryable": False},
    "too_long": {"code": "context_overflow", "limit": 200_000, "actual": 208_310},
    "overloaded": {"code": "provider_unavailable", "status": 529, "retryable": True},
    "refused_key": {"code": "provider_auth", "status": 401, "retryable": False},
    "no_credit": {"code": "provider_rejected", "status": 400, "retryable": False},
    "overloaded_midway": {"code": "provider_unavailable", "retryable": True},
    "refusal": {"code": "content_filtered", "retryable": False},
}


@pytest.mark.parametrize("name", ERRORS)
def test_a_failure_has_its_code(name: str) -> None:
    (error,) = replayed(name, question("Hello"))
    assert isinstance(error, ProviderError)
    assert {key: getattr(error, key) for key in ERRORS[name]} == ERRORS[name]


def test_credit_that_is_used_up_is_said() -> None:
    (error,) = replayed("no_credit", question("Hello"))
    assert isinstance(error, ProviderError)
    assert error.sentence == QUOTA_SENTENCE


def test_every_recording_is_replayed() -> None:
    named = {"words", "thoughts", "tools", "whole", *ERRORS}
    assert {path.stem for path in FOLDER.iterdir()} == named

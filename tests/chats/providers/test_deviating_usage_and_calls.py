"""Usage and tool calls of servers that deviate from the interface that they name."""

import json
from typing import Any

import pytest

from chats.providers.anthropic_chunks import MessageReader
from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.chunks import ReplyReader

MARK = b"[DONE]"


def read(reader: ReplyReader | MessageReader, *chunks: Any) -> list[ProviderEvent]:
    """Return all events of a reply."""
    payloads = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in chunks)
    events = [event for payload in payloads for event in reader.read(payload)]
    return [*events, *reader.finish()]


def build_chunk(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def build_piece(arguments: str, **fields: str) -> dict[str, Any]:
    """Return a chunk with a piece of the first tool call."""
    given: dict[str, Any] = {"index": 0, "function": {"arguments": arguments}}
    if "name" in fields:
        given |= {"id": "call_abc", "type": "function"}
        given["function"]["name"] = fields["name"]
    return build_chunk(tool_calls=[given])


def join_arguments(events: list[ProviderEvent]) -> str:
    return "".join(each.arguments for each in events if isinstance(each, ToolCallDelta))


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        # LiteLLM before Anthropic's deltas.
        (["{}", '{"city"', ': "Oslo"}'], '{"city": "Oslo"}'),
        (["{}", '{"city": "Oslo"}'], '{"city": "Oslo"}'),
        (["", "{}", "", '{"city": "Oslo"}'], '{"city": "Oslo"}'),
        (["{}"], "{}"),
        (["{}", "{}"], "{}"),
        (["{}", ""], "{}"),
        (["{", "}"], "{}"),
        # A complete call that is sent again.
        (['{"city": "Oslo"}', '{"city": "Oslo"}'], '{"city": "Oslo"}'),
    ],
)
def test_empty_arguments_before_the_arguments(pieces: list[str], arguments: str) -> None:
    first, *others = pieces
    chunks = [build_piece(first, name="look"), *map(build_piece, others)]
    events = read(ReplyReader(), *chunks, build_chunk("tool_calls"), MARK)
    assert join_arguments(events) == arguments
    assert events[-1] == Finished("tool_calls")


def test_two_calls_without_arguments() -> None:
    calls = [
        {"index": n, "id": f"call_{n}x", "function": {"name": "now", "arguments": "{}"}}
        for n in (0, 1)
    ]
    events = read(ReplyReader(), build_chunk("tool_calls", tool_calls=calls), MARK)
    deltas = [each for each in events if isinstance(each, ToolCallDelta)]
    for place in (0, 1):
        assert "".join(each.arguments for each in deltas if each.index == place) == "{}"


USAGE = {"prompt_tokens": 32, "completion_tokens": 9}


@pytest.mark.parametrize(
    ("more", "report"),
    [
        ({"total_tokens": 41}, UsageReport(32, 9, 0, 0)),
        # xAI's example, and Gemini without details.
        (
            {"total_tokens": 135, "completion_tokens_details": {"reasoning_tokens": 94}},
            UsageReport(32, 103, 0, 0, 94),
        ),
        ({"total_tokens": 135}, UsageReport(32, 103, 0, 0)),
        # OpenAI counts thoughts as output.
        (
            {"total_tokens": 41, "completion_tokens_details": {"reasoning_tokens": 5}},
            UsageReport(32, 9, 0, 0, 5),
        ),
        (
            {"total_tokens": 41, "completion_tokens_details": {"reasoning_tokens": 50}},
            UsageReport(32, 9, 0, 0, 9),
        ),
        (
            {"total_tokens": 41, "completion_tokens_details": {"reasoning_tokens": -1}},
            UsageReport(32, 9, 0, 0),
        ),
        # A proxy whose prompt tokens are without those of the cache.
        (
            {"total_tokens": 241, "prompt_tokens_details": {"cached_tokens": 200}},
            UsageReport(232, 9, 200, 0),
        ),
        # The difference is something else.
        (
            {"total_tokens": 60, "completion_tokens_details": {"reasoning_tokens": 5}},
            UsageReport(32, 9, 0, 0, 5),
        ),
        ({"total_tokens": "many"}, UsageReport(32, 9, 0, 0)),
        ({"total_tokens": 1}, UsageReport(32, 9, 0, 0)),
    ],
)
def test_tokens_that_only_the_total_contains(more: dict[str, Any], report: UsageReport) -> None:
    chunk = {**build_chunk("stop", content="x"), "usage": USAGE | more}
    assert report in read(ReplyReader(), chunk, MARK)


def test_moonshot_reports_the_usage_in_the_choice() -> None:
    chunk = build_chunk("stop", content="x")
    chunk["choices"][0]["usage"] = {**USAGE, "total_tokens": 41}
    assert UsageReport(32, 9, 0, 0) in read(ReplyReader(), chunk, MARK)


@pytest.mark.parametrize("text", ["", "Let me"])
def test_a_malformed_call_of_gemini_is_no_complete_reply(text: str) -> None:
    reason = "function_call_filter: MALFORMED_FUNCTION_CALL"
    events = read(ReplyReader(), build_chunk(reason, content=text), MARK)
    assert events == [*([TextDelta(text)] if text else []), Finished("none")]


@pytest.mark.parametrize("reason", ["IMAGE_SAFETY", "model_armor", "content_filter: SAFETY"])
def test_further_filters(reason: str) -> None:
    with pytest.raises(ProviderError) as caught:
        read(ReplyReader(), build_chunk(reason), MARK)
    assert caught.value.code == "content_filtered"


@pytest.mark.parametrize("begins", [{}, {"city": "Oslo"}])
def test_a_call_that_is_sent_whole_and_in_pieces(begins: dict[str, str]) -> None:
    block = {"type": "tool_use", "id": "toolu_1x", "name": "look", "input": begins}
    delta = {"type": "input_json_delta", "partial_json": '{"city": "Oslo"}'}
    events = read(
        MessageReader(),
        {"type": "message_start", "message": {"usage": {}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )
    assert join_arguments(events) == '{"city": "Oslo"}'

"""Parsing of events from Anthropic's Messages API."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from chats.providers.anthropic_chunks import MessageReader
from chats.providers.base import (
    ExtraFields,
    Finished,
    ProviderError,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.chunks import CUT_BY_FILTER

START = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
TEXT = {"type": "text", "text": ""}
STOP = {"type": "message_stop"}


def opened(block: Mapping[str, Any], *, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def said(text: str, *, index: int = 0) -> dict[str, Any]:
    return more({"type": "text_delta", "text": text}, index=index)


def more(delta: Mapping[str, Any], *, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def closed(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None, **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}


def read(*events: Mapping[str, Any]) -> list[ProviderEvent]:
    """Return the events that a reader parses from a stream."""
    reader = MessageReader()
    found = [e for event in events for e in reader.read(json.dumps(event).encode())]
    return [*found, *reader.finish()]


def test_thoughts_texts_and_calls_are_told_apart_by_their_blocks() -> None:
    tool = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    bare = {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}}
    pieces = ('{"q"', ': "x"}')
    events = read(
        START,
        {"type": "ping"},
        opened({"type": "thinking", "thinking": "", "signature": ""}),
        more({"type": "thinking_delta", "thinking": "Hm."}),
        more({"type": "signature_delta", "signature": "c2ln"}),
        closed(),
        opened({"type": "redacted_thinking", "data": "c2VjcmV0"}, index=1),
        closed(1),
        opened(TEXT, index=2),
        said("I look.", index=2),
        closed(2),
        opened(tool, index=3),
        *(more({"type": "input_json_delta", "partial_json": p}, index=3) for p in pieces),
        closed(3),
        opened(bare, index=4),
        more({"type": "input_json_delta", "partial_json": ""}, index=4),
        closed(4),
        opened({"type": "something_new", "text": "?"}, index=5),
        more({"type": "something_delta", "text": "?"}, index=5),
        closed(5),
        ended("tool_use", output_tokens=30),
        STOP,
        said("afterwards"),
    )
    assert events == [
        ReasoningDelta("Hm."),
        TextDelta("I look."),
        ToolCallDelta(0, "toolu_1", "search", ""),
        ToolCallDelta(0, "toolu_1", "", '{"q"'),
        ToolCallDelta(0, "toolu_1", "", ': "x"}'),
        ToolCallDelta(1, "toolu_2", "now", ""),
        ToolCallDelta(1, "toolu_2", "", "{}"),
        ExtraFields(
            None,
            {
                "thinking_blocks": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                    {"type": "redacted_thinking", "data": "c2VjcmV0"},
                ]
            },
            "",
        ),
        UsageReport(9, 30, 0, 0),
        Finished("tool_calls"),
    ]


def test_thoughts_are_kept_for_their_server_only_with_calls() -> None:
    thinks = opened({"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})
    events = read(START, thinks, closed(), opened(TEXT, index=1), said("So.", index=1), STOP)
    assert not any(isinstance(event, ExtraFields) for event in events)
    # Without a signature, the server would refuse the thinking blocks.
    tool = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    unsigned = opened({"type": "thinking", "thinking": "Hm.", "signature": ""})
    events = read(START, unsigned, closed(), opened(tool, index=1), closed(1), STOP)
    assert not any(isinstance(event, ExtraFields) for event in events)


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "none"),
        ("something_new", "stop"),
        (None, "stop"),
    ],
)
def test_reasons_are_ours_and_the_end_mark_stands_for_an_unknown_one(
    reason: str | None, ours: str
) -> None:
    events = read(START, opened(TEXT), said("So."), closed(), ended(reason), STOP)
    assert events[-1] == Finished(ours)  # type: ignore[arg-type]  # one of the reasons


@pytest.mark.parametrize("count", [-1, 10**9 + 1, 2**64 - 1, 1.5, True, "7"])
@pytest.mark.parametrize("name", ["input_tokens", "output_tokens", "cache_read_input_tokens"])
def test_an_impossible_count_is_no_report(name: str, count: Any) -> None:
    end = ended("end_turn", **{name: count})
    events = read(START, opened(TEXT), said("So."), closed(), end, STOP)
    assert events == [TextDelta("So."), Finished("stop")]


@pytest.mark.parametrize(("text", "sentence"), [("So far", CUT_BY_FILTER), ("", "")])
def test_a_refusal_is_the_filter_of_the_provider(text: str, sentence: str) -> None:
    with pytest.raises(ProviderError) as caught:
        read(START, opened(TEXT), said(text), closed(), ended("refusal"), STOP)
    assert caught.value.code == "content_filtered"
    assert not sentence or caught.value.sentence == sentence


def test_cached_and_written_tokens_are_input_by_our_convention() -> None:
    counts = {
        "input_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_5m_input_tokens": 20},
        "output_tokens": 1,
        "service_tier": "standard",
    }
    start = {"type": "message_start", "message": {"usage": counts}}
    # The later usage omits some fields, and null leaves a value unchanged.
    end = ended("end_turn", output_tokens=7, cache_read_input_tokens=None)
    events = read(start, opened(TEXT), said("So."), closed(), end, STOP)
    assert UsageReport(125, 7, 100, 20) in events


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, "provider_unavailable", True),
        ({"type": "api_error", "message": "Oh."}, "provider_unavailable", True),
        ({"type": "rate_limit_error", "message": "Slow"}, "provider_rate_limited", True),
        ({"type": "authentication_error", "message": "invalid"}, "provider_auth", False),
        (
            {
                "type": "invalid_request_error",
                "message": "prompt is too long: 200005 tokens > 200000 maximum",
            },
            "context_overflow",
            False,
        ),
        (
            {
                "type": "invalid_request_error",
                "message": "Output blocked by content filtering policy",
            },
            "content_filtered",
            False,
        ),
    ],
)
def test_an_error_in_the_stream_has_its_code(
    error: dict[str, str], code: str, retryable: bool
) -> None:
    with pytest.raises(ProviderError) as caught:
        read(START, opened(TEXT), said("So"), {"type": "error", "error": error})
    assert (caught.value.code, caught.value.retryable) == (code, retryable)
    assert error["message"] not in caught.value.sentence


def test_a_whole_reply_is_read_as_a_stream_is() -> None:
    body = {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "é"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 9, "output_tokens": 3},
    }
    assert read(body) == [
        ReasoningDelta("Hm."),
        TextDelta("I look."),
        ToolCallDelta(0, "toolu_1", "search", ""),
        ToolCallDelta(0, "toolu_1", "", '{"q": "é"}'),
        ExtraFields(
            None,
            {
                "thinking_blocks": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
                ]
            },
            "",
        ),
        UsageReport(9, 3, 0, 0),
        Finished("tool_calls"),
    ]


@pytest.mark.parametrize("content", [None, "text", {"type": "text"}])
def test_a_whole_reply_without_blocks_cannot_be_read(content: object) -> None:
    with pytest.raises(ProviderError, match="provider_protocol"):
        read({"type": "message", "content": content})


@pytest.mark.parametrize("payload", [b"[1]", b"{broken", b"\xff", b"[" * 100_000])
def test_what_is_no_object_cannot_be_read(payload: bytes) -> None:
    with pytest.raises(ProviderError, match="provider_protocol"):
        list(MessageReader().read(payload))


def test_objects_of_another_interface_are_no_reply() -> None:
    with pytest.raises(ProviderError, match="provider_protocol"):
        read({"object": "chat.completion.chunk", "choices": []})


def test_halves_of_a_character_are_joined_across_events() -> None:
    reader = MessageReader()
    halves = (b"\\ud83e", b"\\udd8a")
    events: list[ProviderEvent] = list(reader.read(json.dumps(START).encode()))
    for half in halves:
        payload = json.dumps(said("HALF")).encode().replace(b"HALF", half)
        events += reader.read(payload)
    assert events == [TextDelta("🦊")]


def test_a_block_of_thoughts_without_words_is_a_sign_of_life() -> None:
    reader = MessageReader()
    list(reader.read(json.dumps(START).encode()))
    list(reader.read(b'{"type": "ping"}'))
    assert not reader.end.has_output
    list(reader.read(json.dumps(opened({"type": "thinking", "thinking": ""})).encode()))
    assert reader.end.has_output


def test_calls_without_ids_or_with_the_same_one_get_their_own() -> None:
    tool = {"type": "tool_use", "name": "now", "input": {}}
    ids = ("", "a", "a")
    events = read(
        START,
        *(opened({**tool, "id": one}, index=place) for place, one in enumerate(ids)),
        ended("tool_use"),
        STOP,
    )
    found = [event.call_id for event in events if isinstance(event, ToolCallDelta)]
    assert len(set(found)) == 3
    assert all(found)


@pytest.mark.parametrize("bad", ["\x00", "\ud800"])
def test_names_and_signed_thoughts_can_be_stored(bad: str) -> None:
    events = read(
        START,
        opened({"type": "thinking", "thinking": f"Hm{bad}", "signature": f"c2ln{bad}"}),
        opened({"type": "redacted_thinking", "data": f"c2{bad}"}, index=1),
        opened({"type": "tool_use", "id": f"a{bad}", "name": f"f{bad}", "input": {}}, index=2),
        ended("tool_use"),
        STOP,
    )
    for event in events:
        assert bad not in repr(event).encode().decode("unicode_escape"), event


def test_index_that_is_no_number_tears_nothing() -> None:
    tool = {"type": "tool_use", "id": "a", "name": "now", "input": {}}
    index: Any = {"n": 0}
    events = read(
        START,
        opened(tool, index=index),
        more({"type": "input_json_delta", "partial_json": '{"a": 1}'}, index=index),
        closed(index),
        ended("tool_use"),
        STOP,
    )
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallDelta)) == '{"a": 1}'

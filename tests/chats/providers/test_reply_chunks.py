"""Replies of servers that deviate from the schema: tool calls, reasoning, usage, ends."""

import json
from typing import Any

import pytest

from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.providers.chunks import CUT_BY_FILTER, ReplyReader
from chats.providers.collector import ReplyCollector


def _read(*chunks: dict[str, Any] | bytes) -> list[ProviderEvent]:
    reader = ReplyReader()
    events: list[ProviderEvent] = []
    for chunk in chunks:
        payload = chunk if isinstance(chunk, bytes) else json.dumps(chunk).encode()
        events.extend(reader.read(payload))
    return [*events, *reader.finish()]


def _delta(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def _call(arguments: Any, **fields: Any) -> dict[str, Any]:
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return {**fields, "function": {**name, "arguments": arguments}}


def _calls(events: list[ProviderEvent]) -> list[tuple[str, str]]:
    """Return name and arguments of each call, by index."""
    deltas = [event for event in events if isinstance(event, ToolCallDelta)]
    ids = {delta.index: delta.call_id for delta in deltas}
    assert all(delta.call_id == ids[delta.index] for delta in deltas)
    assert len(set(ids.values())) == len(ids)
    assert all(ids.values())
    return [
        (
            "".join(delta.name for delta in deltas if delta.index == index),
            "".join(delta.arguments for delta in deltas if delta.index == index),
        )
        for index in sorted(ids)
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_has_two_names(name: str) -> None:
    events = _read(_delta(**{name: "Hm."}), _delta("stop", content="Yes."))
    assert events == [ReasoningDelta("Hm."), TextDelta("Yes."), Finished("stop")]


def test_reasoning_sent_under_both_names_counts_once() -> None:
    events = _read(_delta("stop", reasoning="Hm.", reasoning_content="Hm."))
    assert events == [ReasoningDelta("Hm."), Finished("stop")]


def test_content_may_come_as_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "thinking"}, {"type": "text", "text": "b"}]
    assert _read(_delta("stop", content=parts))[0] == TextDelta("ab")


def test_tool_calls_by_index() -> None:
    events = _read(
        _delta(tool_calls=[_call("", index=0, id="a", name="f")]),
        _delta(tool_calls=[_call("", index=1, id="b", name="g")]),
        _delta(tool_calls=[_call('{"x":', index=0)]),
        _delta(tool_calls=[_call("{}", index=1)]),
        _delta("tool_calls", tool_calls=[_call("1}", index=0)]),
    )
    assert _calls(events) == [("f", '{"x":1}'), ("g", "{}")]
    assert events[-1] == Finished("tool_calls")


def test_tool_calls_without_ids_get_some() -> None:
    events = _read(
        _delta(tool_calls=[_call('{"a"', index=0, name="f", id="")]),
        _delta("tool_calls", tool_calls=[_call(":1}", index=0)]),
    )
    assert _calls(events) == [("f", '{"a":1}')]


@pytest.mark.parametrize("given", ["0", "call_0", "tool-12", "call:3"])
def test_ids_that_return_in_the_next_reply_are_replaced(given: str) -> None:
    chunks = (
        _delta(tool_calls=[_call('{"a"', index=0, name="f", id=given)]),
        _delta("tool_calls", tool_calls=[_call(":1}", index=0, id=given)]),
    )
    ids = set()
    for _ in range(2):
        pieces = [event for event in _read(*chunks) if isinstance(event, ToolCallDelta)]
        assert len({piece.call_id for piece in pieces}) == 1
        ids.add(pieces[0].call_id)
    assert len(ids) == 2
    assert given not in ids


@pytest.mark.parametrize("given", ["functions.search:0", "hVnTkqr12", "123456789", "call_9fk2"])
def test_ids_of_a_server_are_kept(given: str) -> None:
    first = _read(_delta("tool_calls", tool_calls=[_call("{}", name="f", id=given)]))[0]
    assert isinstance(first, ToolCallDelta)
    assert first.call_id == given


def test_tool_calls_without_index_or_id_begin_with_a_name() -> None:
    events = _read(
        _delta("tool_calls", tool_calls=[_call("{}", name="f"), _call('{"b":2}', name="g")])
    )
    assert _calls(events) == [("f", "{}"), ("g", '{"b":2}')]


def test_tool_calls_that_share_an_index_are_told_apart_by_id() -> None:
    events = _read(
        _delta(tool_calls=[_call("{}", index=0, id="a", name="f")]),
        _delta("stop", tool_calls=[_call("{}", index=0, id="b", name="g")]),
    )
    assert _calls(events) == [("f", "{}"), ("g", "{}")]
    assert events[-1] == Finished("tool_calls")


def test_id_repeated_in_every_delta_is_one_call() -> None:
    events = _read(
        _delta(tool_calls=[_call('{"a"', index=0, id="a", name="f")]),
        _delta("tool_calls", tool_calls=[_call(":1}", index=0, id="a")]),
    )
    assert _calls(events) == [("f", '{"a":1}')]


def test_arguments_may_come_as_an_object_or_not_at_all() -> None:
    events = _read(
        _delta(tool_calls=[_call({"ü": 1}, index=0, id="a", name="f")]),
        _delta("tool_calls", tool_calls=[_call(None, index=1, id="b", name="g")]),
    )
    assert _calls(events) == [("f", '{"ü": 1}'), ("g", "")]


def test_call_in_the_older_form_is_a_call() -> None:
    pieces = ({"name": "f", "arguments": ""}, {"arguments": '{"a"'}, {"arguments": ":1}"})
    events = _read(*(_delta(function_call=one) for one in pieces), _delta("function_call"))
    assert _calls(events) == [("f", '{"a":1}')]
    both = _delta(
        "tool_calls",
        function_call={"name": "f", "arguments": "{}"},
        tool_calls=[_call("{}", index=0, id="a", name="f")],
    )
    assert _calls(_read(both)) == [("f", "{}")]


@pytest.mark.parametrize("bad", ["\x00", "\ud800"])
def test_name_and_id_of_a_call_can_be_stored(bad: str) -> None:
    call = _call('{"b":1}', id=f"a{bad}", name=f"f{bad}")
    first, _ = _read(_delta("tool_calls", tool_calls=[call]))
    assert first == ToolCallDelta(0, "a\ufffd", "f\ufffd", '{"b":1}')


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("STOP", "stop"),
        ("length", "length"),
        ("model_length", "length"),
        ("insufficient_system_resource", "none"),
        ("something_new", "none"),
        (None, "none"),
    ],
)
def test_finish_reason_is_translated(given: str | None, reason: str) -> None:
    assert _read(_delta(given, content="x"))[-1] == Finished(reason)  # type: ignore[arg-type] # a table of words


@pytest.mark.parametrize(
    "given",
    [
        "content_filter",
        "CONTENT_FILTER",
        "content_filter: RECITATION",
        "content_filtered",
        "sensitive",
        "SAFETY",
        "PROHIBITED_CONTENT",
        "guardrail_intervened",
        "ERROR_TOXIC",
        "refusal",
    ],
)
@pytest.mark.parametrize("words", ["", " ", "So far"])
def test_an_end_by_a_filter_is_an_error_behind_the_text_and_the_usage(
    given: str, words: str
) -> None:
    reader = ReplyReader()
    chunk = {**_delta(given, content=words), "usage": {"prompt_tokens": 9, "completion_tokens": 2}}
    events = list(reader.read(json.dumps(chunk).encode()))
    with pytest.raises(ProviderError) as caught:
        events.extend(reader.finish())
    assert events == [TextDelta(words)] * bool(words) + [UsageReport(9, 2, 0, 0)]
    assert (caught.value.code, caught.value.retryable) == ("content_filtered", False)
    is_cut = caught.value.sentence == CUT_BY_FILTER
    assert is_cut == bool(words.strip())


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [("stop", "refusal"), ("refusal", "refusal"), ("content_filter", "content_filtered")],
)
def test_a_model_that_declines_in_its_own_words_has_replied(ending: str, outcome: str) -> None:
    chunks = _delta(refusal="I cannot"), _delta(ending, refusal=" help.")
    if outcome == "content_filtered":
        with pytest.raises(ProviderError, match=outcome):
            _read(*chunks)
    else:
        said = [TextDelta("I cannot"), TextDelta(" help."), Finished("refusal")]
        assert _read(*chunks) == said


def test_usage_of_every_kind_is_read_and_reported_once() -> None:
    events = _read(
        {**_delta(content="x"), "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        _delta("stop"),
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
            },
        },
        b"[DONE]",
    )
    assert events == [TextDelta("x"), UsageReport(10, 5, 4, 3), Finished("stop")]


@pytest.mark.parametrize(
    ("usage", "report"),
    [
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 8}, UsageReport(9, 0, 8, 0)),
        ({"prompt_tokens": 9.0, "completion_tokens": 2}, UsageReport(9, 2, 0, 0)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 2**64}},
            UsageReport(9, 0, 0, 0),
        ),
    ],
)
def test_unusual_usage_is_read(usage: dict[str, Any], report: UsageReport) -> None:
    assert report in _read({**_delta("stop"), "usage": usage})


TEXT, CALL = TextDelta("x"), ToolCallDelta(0, "a", "look", "{}")


@pytest.mark.parametrize(
    ("event", "report", "is_whole"),
    [
        (TEXT, UsageReport(9, 2, 0, 0), True),
        (TEXT, UsageReport(9, 0, 0, 0), False),
        (ReasoningDelta("x"), UsageReport(9, 0, 0, 0), False),
        (CALL, UsageReport(9, 0, 0, 0), False),
        (TEXT, UsageReport(0, 2, 0, 0), False),
        # A reply without output.
        (TextDelta(""), UsageReport(9, 0, 0, 0), True),
    ],
)
def test_partly_reported_usage_is_no_report(
    event: Any, report: UsageReport, *, is_whole: bool
) -> None:
    collector = ReplyCollector()
    for each in (event, report, Finished("stop")):
        collector.hear(each)
    assert bool(collector.usage) == is_whole


IMPOSSIBLE = [-1, 10**9 + 1, 2**63 - 1, 2**64 - 1, 10**400, 1.5, 1e300, True, "7", [7], {}]


@pytest.mark.parametrize("count", IMPOSSIBLE, ids=str)
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_impossible_count_is_no_report(name: str, count: Any) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 2, name: count}
    assert _read({**_delta("stop", content="x"), "usage": usage}) == [
        TextDelta("x"),
        Finished("stop"),
    ]


def test_impossible_count_at_the_end_leaves_no_earlier_one() -> None:
    early = {**_delta(content="x"), "usage": {"prompt_tokens": 9, "completion_tokens": 1}}
    last = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2**64}}
    assert _read(early, _delta("stop"), last) == [TextDelta("x"), Finished("stop")]


def test_emoji_cut_between_two_chunks_is_whole_again() -> None:
    first, second = rb'"a\ud83e"', rb'"\udd8ab"'
    chunks = [b'{"choices":[{"delta":{"content":' + text + b"}}]}" for text in (first, second)]
    assert _read(*chunks)[:2] == [TextDelta("a"), TextDelta("🦊b")]


def test_half_an_emoji_at_the_end_is_replaced() -> None:
    events = _read(rb'{"choices":[{"delta":{"content":"a\ud83e"}}]}', _delta("stop"))
    assert events == [TextDelta("a"), TextDelta("�"), Finished("stop")]


@pytest.mark.parametrize(
    "payload",
    [
        b"{",
        b"nonsense",
        b"[]",
        b"null",
        b"1",
        b"\xff\xfe",
        b'{"choices":{"a":1}}',
        b"[" * 100_000,
    ],
)
def test_f18_unreadable_chunk_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        _read(payload)
    assert caught.value.code == "provider_protocol"


@pytest.mark.parametrize(
    "chunk",
    [
        {"error": {"message": "No.", "type": "server_error"}},
        {"object": "error", "message": "No."},
        {**_delta("stop"), "error": {"code": 400, "message": "Token limit reached"}},
        _delta("error"),
    ],
)
def test_f18_error_chunk_fails_even_after_the_finish(chunk: dict[str, Any]) -> None:
    with pytest.raises(ProviderError):
        _read(_delta("length", content="x"), chunk)


@pytest.mark.parametrize(
    "chunk",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": None, "tool_calls": None}}]},
        {"choices": [{"delta": {"content": 7, "refusal": None}}]},
        {"type": "ping"},
        {"choices": [], "prompt_filter_results": []},
    ],
)
def test_chunk_that_says_nothing_changes_nothing(chunk: dict[str, Any]) -> None:
    assert _read(chunk, _delta("stop", content="x")) == [TextDelta("x"), Finished("stop")]


def test_stream_without_a_single_chunk_is_no_reply() -> None:
    with pytest.raises(ProviderError) as caught:
        _read()
    assert caught.value.code == "provider_protocol"


def test_nothing_counts_after_the_end_mark() -> None:
    assert _read(_delta("stop", content="x"), b" [DONE] ", b"rubbish")[-1] == Finished("stop")

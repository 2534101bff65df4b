"""Parallel tool calls without indexes, with shared indexes, and with repeated names."""

import json
from typing import Any

import pytest

from chats.providers.base import Finished, ProviderEvent, ToolCallDelta
from chats.providers.chunks import ReplyReader


def read(*choices: dict[str, Any]) -> list[ProviderEvent]:
    """Return the events of a reply from its choices."""
    reader = ReplyReader()
    events: list[ProviderEvent] = []
    for choice in choices:
        events += reader.read(json.dumps({"choices": [choice]}).encode())
    return [*events, *reader.read(b"[DONE]"), *reader.finish()]


def piece(arguments: Any, name: str = "", **fields: Any) -> dict[str, Any]:
    named = {"name": name} if name else {}
    return {**fields, "function": {**named, "arguments": arguments}}


def stream(*pieces: dict[str, Any]) -> list[ProviderEvent]:
    """Return the events of a stream with one piece in each delta."""
    deltas = ({"delta": {"tool_calls": [each]}} for each in pieces)
    return read(*deltas, {"delta": {}, "finish_reason": "tool_calls"})


def list_calls(events: list[ProviderEvent]) -> list[tuple[str, str]]:
    """Return name and arguments of each call."""
    found: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallDelta):
            call = found.setdefault(event.index, ["", ""])
            call[0] += event.name
            call[1] += event.arguments
    assert events[-1] == Finished("tool_calls")
    return [(name, arguments) for name, arguments in found.values()]


@pytest.mark.parametrize(
    "calls",
    [
        [("f", ""), ("f", '{"x":1}')],
        [("f", '{"a":1'), ("g", '{"b":2}')],
        [("f", ""), ("f", "")],
        [("f", '{"a":1}'), ("f", '{"a":1}')],
        [("f", "{}"), ("f", "{}")],
    ],
)
@pytest.mark.parametrize("has_ids", [True, False])
def test_calls_of_a_whole_reply_stay_apart(calls: list[tuple[str, str]], has_ids: bool) -> None:
    sent = [
        {**piece(arguments, name), **({"id": f"tc_{n}x"} if has_ids else {})}
        for n, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": sent}
    events = read({"message": message, "finish_reason": "tool_calls"})
    assert list_calls(events) == calls


def test_a_message_that_grows_with_each_chunk() -> None:
    first, second = piece("{}", "f", id="tc_ax"), piece('{"b":2}', "g", id="tc_bx")
    events = read(
        {"message": {"tool_calls": [first]}},
        {"message": {"tool_calls": [first, second]}, "finish_reason": "tool_calls"},
    )
    assert list_calls(events) == [("f", "{}"), ("g", '{"b":2}')]


STREAMS = [
    pytest.param(
        [piece("", "f", id="tc_ax"), piece("", "f", id="tc_bx")],
        [("f", ""), ("f", "")],
        id="no arguments",
    ),
    pytest.param(
        [
            piece("", "f", id="tc_ax"),
            piece("", "f", id="tc_bx"),
            piece('{"x":', id="tc_ax"),
            piece('{"y":', id="tc_bx"),
            piece("1}", id="tc_ax"),
            piece("2}", id="tc_bx"),
        ],
        [("f", '{"x":1}'), ("f", '{"y":2}')],
        id="interleaved",
    ),
    pytest.param(
        [
            piece('{"x":', "f", id="tc_ax"),
            piece('{"y":', "g", id="tc_bx"),
            piece("1}", id="tc_ax"),
            piece("2}", id="tc_bx"),
        ],
        [("f", '{"x":1}'), ("g", '{"y":2}')],
        id="interleaved with another name",
    ),
    pytest.param(
        [piece('{"x":', "f"), piece("1}", "f"), piece("", "f")],
        [("f", '{"x":1}')],
        id="the name in each piece",
    ),
    pytest.param(
        [piece('{"x":', "f", id="tc_ax"), piece("1}", "f", id="tc_bx"), piece("", "f", id="tc_cx")],
        [("f", '{"x":1}')],
        id="a new id in each piece",
    ),
    pytest.param(
        [
            piece("", "f", id="tc_ax"),
            piece('{"x":1}'),
            piece("", "f", id="tc_bx"),
            piece('{"x":'),
            piece("1}"),
        ],
        [("f", '{"x":1}'), ("f", '{"x":1}')],
        id="two heads",
    ),
    pytest.param(
        [piece("{}", "f"), piece("", "g"), piece("{}")],
        [("f", "{}"), ("g", "{}")],
        id="another name",
    ),
]


@pytest.mark.parametrize(("pieces", "calls"), STREAMS)
@pytest.mark.parametrize("fields", [{}, {"index": 0}, {"index": "0"}])
def test_pieces_without_distinct_indexes(
    pieces: list[dict[str, Any]], calls: list[tuple[str, str]], fields: dict[str, Any]
) -> None:
    assert list_calls(stream(*({**each, **fields} for each in pieces))) == calls


def test_the_id_of_a_head_is_that_of_its_call() -> None:
    events = stream(
        piece('{"x":1}', "f", id="tc_ax", index=0),
        piece("", "f", id="tc_bx", index=0, extra_content={"a": 1}),
        piece('{"x":2}', index=0),
    )
    ids = {event.call_id for event in events if isinstance(event, ToolCallDelta)}
    assert ids == {"tc_ax", "tc_bx"}
    assert [event.fields for event in events if hasattr(event, "fields")] == [
        {"extra_content": {"a": 1}}
    ]


def test_indexes_may_be_texts() -> None:
    events = stream(
        piece('{"x":', "f", index="0"),
        piece('{"y":', "f", index="1"),
        piece("1}", index="0"),
        piece("2}", index="1"),
    )
    assert list_calls(events) == [("f", '{"x":1}'), ("f", '{"y":2}')]

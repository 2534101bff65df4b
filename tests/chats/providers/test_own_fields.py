"""Data sent back to a model server: valid calls, and server-specific fields."""

import json
from dataclasses import replace
from typing import Any

import pytest

from chats.prompt.sent_request import serialise_request_forms
from chats.providers.base import ExtraFields, Finished, ProviderEvent, ProviderRequest
from chats.providers.chunks import ReplyReader
from chats.providers.collector import ReplyCollector
from chats.providers.wire import build_openai_body, clean_call_arguments
from contextpolicy.engine.messages.extras import MOST, CallExtras, read_extras
from contextpolicy.engine.messages.messages import (
    ReasoningPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    WireMessage,
    convert_parts_to_wires,
    parse_parts,
    serialize_parts,
)

SIGNED = {"google": {"thought_signature": "c2ln"}}


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ('{"query": "lamp"}', '{"query": "lamp"}'),
        ('{"b":1,"a": {}}', '{"b":1,"a": {}}'),
        ('{"query": "la', "{}"),
        ("", "{}"),
        ("[1]", "{}"),
        ('"lamp"', "{}"),
        ("null", "{}"),
        ('{"n": NaN}', "{}"),
        ("{}{}", "{}"),
        ("{" * 100_000, "{}"),
        ('{"z": "\\u0000", "a": ' + "[" * 700 + "]" * 700 + "}", "{}"),
        (r'{"a": "cut \ud83d"}', '{"a": "cut �"}'),
        (r'{"a": "whole \ud83e\udd8a"}', r'{"a": "whole \ud83e\udd8a"}'),
    ],
)
def test_arguments_that_are_no_object_are_never_sent(written: str, sent: str) -> None:
    assert clean_call_arguments(written) == sent
    call = ToolCallPart("call_9fk2", "", written)
    body = build_openai_body(ProviderRequest("m", (WireMessage("assistant", "", (call,)),)))
    assert body["messages"][0]["tool_calls"][0]["function"] == {"name": "tool", "arguments": sent}


@pytest.mark.parametrize(
    ("called", "sent"),
    [
        ("search", "search"),
        ("browser.search", "browser_search"),
        ("查询", "__"),
        ("a" * 70, "a" * 64),
        ("offered.tool", "offered.tool"),
    ],
)
def test_the_name_of_a_called_tool_is_one_that_servers_accept(called: str, sent: str) -> None:
    message = WireMessage("assistant", "", (ToolCallPart("call_9fk2", called, "{}"),))
    tools = (ToolSpec("offered.tool", "", {}),)
    body = build_openai_body(ProviderRequest("m", (message,), tools=tools))
    assert body["messages"][0]["tool_calls"][0]["function"]["name"] == sent


def test_a_request_of_an_earlier_version_is_compared_with_its_own_names() -> None:
    def list_names(called: str) -> list[str]:
        message = WireMessage("assistant", "", (ToolCallPart("call_9fk2", called, "{}"),))
        request = ProviderRequest("m", (message,))
        bodies = map(json.loads, serialise_request_forms(request, is_anthropic=False))
        calls = [body["messages"][0]["tool_calls"][0]["function"]["name"] for body in bodies]
        return list(dict.fromkeys(calls))

    assert list_names("browser.search") == ["browser_search", "browser.search"]
    assert list_names("search") == ["search"]
    assert list_names("") == ["tool"]


def chunk(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return a chunk of a reply."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def call(arguments: str, **fields: Any) -> dict[str, Any]:
    """Return a fragment of a tool call."""
    named = {"name": fields.pop("name")} if "name" in fields else {}
    return {"index": 0, **fields, "function": {**named, "arguments": arguments}}


def read(*chunks: dict[str, Any]) -> list[ProviderEvent]:
    """Return the events of a reply."""
    reader = ReplyReader()
    events: list[ProviderEvent] = []
    for each in chunks:
        events.extend(reader.read(json.dumps(each).encode()))
    return [*events, *reader.finish()]


def collected(*chunks: dict[str, Any], origin: str = "deep/m") -> tuple[ToolCallPart, str]:
    """Return the first stored call of a reply, and its reasoning."""
    collector = ReplyCollector()
    collector.origin = origin
    for event in read(*chunks):
        collector.hear(event)
    return collector.asked[0].part(by=origin), str(collector.reasoning)


def sent(part: ToolCallPart, thoughts: str, *, origin: str, question: bool = False) -> Any:
    """Return the message of a call in the next request."""
    parts = (ReasoningPart(thoughts), part, ToolResultPart(part.call_id, part.name, "Found."))
    # Convert through the stored form, as for every message.
    kept = parse_parts(json.loads(json.dumps(serialize_parts(parts))))
    wires = [WireMessage("user", "Search."), *convert_parts_to_wires("assistant", kept)]
    wires += [WireMessage("user", "And?")] if question else []
    return build_openai_body(ProviderRequest("m", tuple(wires), origin=origin))["messages"][1]


DEEPSEEK = (
    chunk(reasoning_content="I should "),
    chunk(reasoning_content="search."),
    chunk(tool_calls=[call('{"q": 1}', id="call_9fk2", name="search")]),
    chunk("tool_calls"),
)
GEMINI = (
    chunk(tool_calls=[call('{"q": 1}', id="call_9fk2", name="search", extra_content=SIGNED)]),
    chunk("stop"),
)
OPENROUTER = (
    chunk(reasoning="Hm", reasoning_details=[{"type": "reasoning.text", "text": "H", "index": 0}]),
    chunk(reasoning_details=[{"type": "reasoning.text", "text": "m", "index": 0}]),
    chunk(
        reasoning_details=[
            {"type": "reasoning.text", "signature": "s", "index": 0},
            {"type": "reasoning.encrypted", "data": "x", "index": 1},
        ]
    ),
    chunk("tool_calls", tool_calls=[call('{"q": 1}', id="call_9fk2", name="search")]),
)


def test_thoughts_go_back_under_their_name() -> None:
    message = sent(*collected(*DEEPSEEK), origin="deep/m")
    assert message["reasoning_content"] == "I should search."
    assert set(message) == {"role", "content", "tool_calls", "reasoning_content"}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_thoughts_of_a_whole_reply_go_back_under_their_name(name: str) -> None:
    calls = [{"id": "call_9fk2", "function": {"name": "search", "arguments": "{}"}}]
    whole = {"role": "assistant", "content": "", name: "Hm.", "tool_calls": calls}
    reply = {"choices": [{"message": whole, "finish_reason": "tool_calls"}]}
    message = sent(*collected(reply), origin="deep/m")
    assert message[name] == "Hm."
    assert set(message) == {"role", "content", "tool_calls", name}


def test_signature_of_a_call_goes_back_with_it() -> None:
    message = sent(*collected(*GEMINI), origin="deep/m")
    assert message["tool_calls"] == [
        {
            "id": "call_9fk2",
            "type": "function",
            "function": {"name": "search", "arguments": '{"q": 1}'},
            "extra_content": SIGNED,
        }
    ]


def test_details_in_pieces_go_back_whole() -> None:
    message = sent(*collected(*OPENROUTER), origin="deep/m")
    assert message["reasoning"] == "Hm"
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Hm", "index": 0, "signature": "s"},
        {"type": "reasoning.encrypted", "data": "x", "index": 1},
    ]


def test_signature_of_the_whole_message_and_of_the_function_go_back() -> None:
    function = {"name": "search", "arguments": "{}", "thought_signature": "f"}
    whole = {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "extra_content": SIGNED,
        "tool_calls": [{"id": "", "type": "function", "function": function}],
    }
    message = sent(*collected({"choices": [{"message": whole, "finish_reason": "stop"}]}),
                   origin="deep/m")  # fmt: skip
    assert message["extra_content"] == SIGNED
    assert message["tool_calls"][0]["function"] == function
    assert "annotations" not in message


@pytest.mark.parametrize("reply", [DEEPSEEK, GEMINI, OPENROUTER])
def test_other_models_and_later_questions_get_none_of_it(reply: Any) -> None:
    part, thoughts = collected(*reply)
    plain = sent(replace(part, extra=""), "", origin="deep/m")
    assert sent(part, thoughts, origin="other/m") == plain
    assert sent(part, thoughts, origin="deep/other") == plain
    assert sent(part, thoughts, origin="deep/m", question=True) == plain


def test_reply_without_calls_keeps_nothing() -> None:
    events = read(
        chunk(reasoning_content="Hm."), chunk("stop", content="So.", extra_content=SIGNED)
    )
    assert not any(isinstance(event, ExtraFields) for event in events)
    assert events[-1] == Finished("stop")


def test_many_pieces_are_joined_and_too_many_are_not_kept() -> None:
    detail = {"type": "reasoning.text", "text": "word ", "index": 0}
    pieces = [chunk(reasoning_details=[detail])] * 2_000
    ending = chunk("stop", tool_calls=[call("{}", id="call_9fk2", name="search")])
    (extra,) = (event for event in read(*pieces, ending) if isinstance(event, ExtraFields))
    assert extra.fields == {"reasoning_details": [{**detail, "text": "word " * 2_000}]}
    big = chunk(reasoning_details=[{**detail, "text": "x" * MOST}])
    events = read(big, *pieces, ending)
    assert not any(isinstance(event, ExtraFields) for event in events)


def test_fields_of_an_absurd_size_are_not_kept() -> None:
    huge = CallExtras(call={"x": "y" * MOST})
    assert huge.written() == ""


@pytest.mark.parametrize("text", ["", "x", "[]", '{"by": 7, "call": [], "thoughts": "role"}'])
def test_stored_fields_of_another_form_are_none(text: str) -> None:
    assert read_extras(text) == CallExtras()


def test_fields_never_replace_what_is_ours() -> None:
    extras = CallExtras(call={"id": "x", "type": "y", "function": {"name": "z"}},
                        message={"role": "system", "content": "z"})  # fmt: skip
    part = ToolCallPart("call_9fk2", "search", "{}", extras.written())
    message = sent(part, "", origin="deep/m")
    assert (message["role"], message["content"]) == ("assistant", None)
    assert message["tool_calls"] == [
        {"id": "call_9fk2", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    ]

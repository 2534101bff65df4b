"""Messages, their JSON form, and their wire messages."""

import json
from dataclasses import replace

import pytest

from contextpolicy.engine.messages.messages import (
    MalformedParts,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    convert_parts_to_wires,
    extract_message_text,
    parse_parts,
    serialize_parts,
)
from contextpolicy.engine.messages.segments import format_tools_json
from tests.engine.engine_builders import message

ALL_KINDS: tuple[Part, ...] = (
    ReasoningPart("hm"),
    TextPart("let me look"),
    ToolCallPart("c1", "look_up", '{"q": "é"}'),
    ToolResultPart("c1", "look_up", ""),
    TextPart("found"),
)


@pytest.mark.requirement("S0.1")
def test_parts_survive_the_way_to_json_and_back() -> None:
    written = serialize_parts(ALL_KINDS)
    assert written[2] == {
        "type": "tool_call",
        "call_id": "c1",
        "name": "look_up",
        "arguments": '{"q": "é"}',
    }
    assert parse_parts(written) == ALL_KINDS


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("text", id="a text"),
        pytest.param(None, id="nothing"),
        pytest.param(["text"], id="a list of texts"),
        pytest.param([{}], id="no type"),
        pytest.param([{"type": ["text"]}], id="a type that is a list"),
        pytest.param([{"type": "image", "url": "x"}], id="an unknown type"),
        pytest.param([{"type": "text"}], id="no text"),
        pytest.param([{"type": "text", "text": 4}], id="a number as text"),
        pytest.param([{"type": "text", "text": "a", "role": "system"}], id="an extra field"),
    ],
)
def test_malformed_parts_are_refused_with_a_code(data: object) -> None:
    with pytest.raises(MalformedParts) as refusal:
        parse_parts(data)
    assert refusal.value.code == "malformed_parts"


def test_the_refusal_names_the_part_and_what_it_needs() -> None:
    with pytest.raises(MalformedParts, match=r"Part 2 .* 'tool_call' .* call_id, name, arguments"):
        parse_parts([{"type": "text", "text": "a"}, {"type": "tool_call"}])


def test_the_visible_text_is_the_text_parts_alone() -> None:
    assert extract_message_text(message(2, parts=ALL_KINDS)) == "let me look\n\nfound"


@pytest.mark.requirement("S4.2")
def test_calls_and_results_become_wire_messages_and_reasoning_stays_behind() -> None:
    wires = convert_parts_to_wires("assistant", ALL_KINDS)
    assert [(wire.role, wire.content) for wire in wires] == [
        ("assistant", "let me look"),
        ("tool", ""),
        ("assistant", "found"),
    ]
    assert wires[0].tool_calls == (ALL_KINDS[2],)
    assert wires[1].tool_call_id == "c1"


def test_parallel_calls_stand_in_one_message_before_their_results() -> None:
    calls = (ToolCallPart("a", "f", "{}"), ToolCallPart("b", "g", "{}"))
    results = (ToolResultPart("a", "f", "1"), ToolResultPart("b", "g", "2"))
    wires = convert_parts_to_wires("assistant", calls + results)
    assert [wire.role for wire in wires] == ["assistant", "tool", "tool"]
    assert wires[0].tool_calls == calls


def test_a_second_round_of_calls_starts_another_message() -> None:
    first = (ToolCallPart("a", "f", "{}"), ToolResultPart("a", "f", "1"))
    second = (ToolCallPart("b", "f", "{}"), ToolResultPart("b", "f", "2"))
    roles = [wire.role for wire in convert_parts_to_wires("assistant", first + second)]
    assert roles == ["assistant", "tool", "assistant", "tool"]


def test_parts_without_anything_to_send_give_no_wire_message() -> None:
    assert convert_parts_to_wires("assistant", (ReasoningPart("hm"),)) == []
    assert convert_parts_to_wires("user", (TextPart(""),)) == []


def test_a_tool_definition_states_only_what_its_owner_set() -> None:
    plain = ToolSpec("look", "Looks.", {"type": "object"})
    strict = replace(plain, strict=False)
    hosted = replace(plain, hosted=True)
    written = json.loads(format_tools_json([plain, strict, hosted]))
    own = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    assert written == [own, {**own, "strict": False}, {**own, "hosted": True}]
    assert [ToolSpec(**tool) for tool in written] == [plain, strict, hosted]

"""Fields that only one server understands: stored with the call, read back, limited."""

import json

import pytest

from contextpolicy.engine.messages.extras import (
    MOST,
    CallExtras,
    hash_origin,
    read_extras,
    select_unknown_call_fields,
    select_unknown_message_fields,
)
from contextpolicy.engine.messages.messages import (
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    convert_parts_to_wires,
    parse_parts,
    serialize_parts,
)

KEPT = CallExtras(
    by="a/model",
    call={"extra_content": {"signature": "c2ln"}},
    message={"reasoning_details": [{"text": "Hm."}]},
    thoughts="reasoning_content",
)


def test_what_is_written_is_read_back() -> None:
    assert read_extras(KEPT.written()) == KEPT
    assert CallExtras().written() == ""
    assert CallExtras(by="a/model").written() == ""


def test_too_much_is_not_kept() -> None:
    assert CallExtras(message={"blob": "x" * MOST}).written() == ""


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", "[" * 100_000, "null", '{"by": 1, "call": [], "thoughts": "other"}']
)
def test_extras_of_another_form_count_as_none(text: str) -> None:
    assert read_extras(text) == CallExtras()


def test_only_fields_without_a_place_are_unknown() -> None:
    message = {"role": "assistant", "content": "x", "reasoning_details": [1], "mood": ""}
    assert select_unknown_message_fields(message) == {"reasoning_details": [1]}
    call = {"id": "c", "type": "function", "extra_content": {"a": 1}, "index": 0}
    assert select_unknown_call_fields(call) == {"extra_content": {"a": 1}}
    function = {"name": "f", "arguments": "{}", "thought_signature": "s"}
    assert select_unknown_call_fields({**call, "function": function}) == {
        "extra_content": {"a": 1},
        "function": {"thought_signature": "s"},
    }


def test_a_calls_extras_survive_storage_and_bring_its_thoughts_along() -> None:
    call = ToolCallPart("c", "search", "{}", KEPT.written())
    parts = (ReasoningPart("Hm."), TextPart("I look."), call, ToolResultPart("c", "search", "x"))

    stored = json.loads(json.dumps(serialize_parts(parts)))

    assert parse_parts(stored) == parts
    with_extras = convert_parts_to_wires("assistant", parts)[0]
    assert with_extras.thoughts == "Hm."
    plain = (parts[0], parts[1], ToolCallPart("c", "search", "{}"), parts[3])
    assert convert_parts_to_wires("assistant", plain)[0].thoughts == ""


def test_a_mark_hides_the_provider_and_stays_the_same() -> None:
    mark = hash_origin("provider/model")
    assert "provider" not in mark
    assert hash_origin(mark) == mark != hash_origin("provider/other")
    assert hash_origin("") == ""

"""Rules and states as lines: parsed exactly, or refused with the number of the line."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chats.admin.policies.line_formats import (
    KINDS,
    LinesRefused,
    format_schema_lines,
    format_tool_rules,
    parse_schema_lines,
    parse_tool_rules,
)

WORDS = st.text(st.characters(categories=["L", "N"], include_characters="_-. "), min_size=1)
TOOLS = WORDS.map(str.strip).filter(bool) | st.just("*")
NUMBERS = st.integers(0, 100_000_000)
RULES = st.dictionaries(
    TOOLS, st.fixed_dictionaries({}, optional={"limit": NUMBERS, "keep_newest": NUMBERS})
)
FACTS = st.one_of(
    st.sampled_from(list(KINDS.values())),
    st.lists(WORDS, min_size=1).map(lambda choices: {"enum": choices}),
    st.builds(
        lambda kind, told: {**kind, "description": told},
        st.sampled_from(list(KINDS.values())),
        st.text(st.characters(categories=["L", "N", "P", "Zs"])),
    ),
    st.just({"type": "string", "minLength": 3}),
)
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
SCHEMAS = st.builds(
    lambda properties, others: {"type": "object", "properties": properties, **others},
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), FACTS
    ),
    st.sampled_from([{"additionalProperties": False}, {}, {"required": []}]),
)


@settings(max_examples=200, deadline=None)
@given(RULES)
def test_rules_come_back_exactly(rules: dict[str, dict[str, int]]) -> None:
    assert parse_tool_rules(format_tool_rules(rules)) == rules


@settings(max_examples=200, deadline=None)
@given(SCHEMAS)
# Its first line would be parsed as JSON.
@example({"type": "object", "properties": {"{": {"type": "string"}}, "additionalProperties": False})
def test_a_schema_comes_back_exactly(schema: dict[str, Any]) -> None:
    assert parse_schema_lines(format_schema_lines(schema)) == schema


def test_a_plain_state_needs_no_json() -> None:
    text = """destination (text): the town to visit

starts (date)
travellers (whole number)
class (one of economy, business)
wishes (List of  texts)
note"""

    schema = parse_schema_lines(text)

    assert schema["properties"] == {
        "destination": {"type": "string", "description": "the town to visit"},
        "starts": {"type": "string", "format": "date"},
        "travellers": {"type": "integer"},
        "class": {"enum": ["economy", "business"]},
        "wishes": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
    }
    assert format_schema_lines(schema).splitlines()[0] == "destination (text): the town to visit"
    assert "{" not in format_schema_lines(schema)


def test_what_lines_cannot_say_is_shown_as_json() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "object"}}}

    assert json.loads(format_schema_lines(schema)) == schema


@pytest.mark.parametrize(
    ("text", "reason", "named"),
    [
        ("look_up", "no_rule", "Line 1 "),
        ("a: limit 5\n\n: limit 5", "no_rule", "Line 3 "),
        ("a: limit 5\nb: cut 5", "unknown_rule", "Line 2: “cut 5” "),
        ("a: limit", "unknown_rule", "Line 1: “limit” "),
        ("a: limit -5", "unknown_rule", "Line 1: “limit -5” "),
        ("a: limit 5\na: keep newest 1", "same_tool", "Lines 1 and 2 "),
        ("a: limit 5, LIMIT 6", "word_twice", "Line 1 contains “LIMIT” "),
        ("a:", "unknown_rule", "Line 1: “” "),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused_by_its_line(
    text: str, reason: str, named: str
) -> None:
    with pytest.raises(LinesRefused) as refused:
        parse_tool_rules(text)
    assert refused.value.reason == reason
    assert str(refused.value).startswith(named)


@pytest.mark.parametrize(
    ("text", "reason", "named"),
    [
        ("a (text)\n(text)", "no_value", "Line 2 "),
        ("a (text)\na (date)", "value_twice", "Line 2: "),
        ("a (colour)", "unknown_kind", "Line 1: “colour” "),
        ("a (one of )", "unknown_kind", "Line 1: “one of” "),
        ("a (one of x, x)", "unknown_kind", "Line 1: “one of x, x” "),
        ('{\n"type": object}', "not_json", "Line 2 "),
        ('{"type": "array"}', "wrong_schema", ""),
        ('{"type": "object", "minProperties": 1}', "wrong_schema", "'minProperties' "),
        ('{"type": "object", "title": NaN}', "not_storable", ""),
        ('{"type": "object", "const": 1e999}', "not_storable", ""),
        ('{"type": "object", "title": "\\ud800"}', "not_storable", ""),
        ('{"type": "object", "title": "\\u0000"}', "nul_character", ""),
    ],
)
def test_a_state_that_cannot_be_read_is_refused_by_its_line(
    text: str, reason: str, named: str
) -> None:
    with pytest.raises(LinesRefused) as refused:
        parse_schema_lines(text)
    assert refused.value.reason == reason
    assert str(refused.value).startswith(named)

"""Strict parsing of JSON refuses the values that parsers treat differently."""

import pytest

from contextpolicy.engine.strict_json import (
    AmbiguousJSON,
    build_unique_object,
    has_more_levels,
    has_more_values,
    load_strict_json,
    strip_json_strings,
)


@pytest.mark.parametrize(
    ("text", "kind", "cause"),
    [
        ("[NaN]", "constant", "NaN"),
        ("-Infinity", "constant", "-Infinity"),
        ('{"a": 1e999}', "float", "1e999"),
        ('{"a": {"b": 1, "b": 1}}', "key", "key"),
    ],
)
def test_an_ambiguous_value_is_refused(text: str, kind: str, cause: str) -> None:
    with pytest.raises(AmbiguousJSON, match=cause) as refused:
        load_strict_json(text, pairs=build_unique_object)
    assert refused.value.kind == kind


def test_other_values_are_those_of_json() -> None:
    text = b'{"a": [1, 2.5, null, true], "b": {"a": "x"}}'
    assert load_strict_json(text, pairs=build_unique_object) == {
        "a": [1, 2.5, None, True],
        "b": {"a": "x"},
    }


def test_callers_choose_how_numbers_are_parsed() -> None:
    found = load_strict_json("[1e999, 12]", floats=lambda _: None, ints=lambda _: None)
    assert found == [None, None]
    assert load_strict_json("1e999", floats=float) == float("inf")


def test_a_duplicate_key_is_accepted_without_the_function_for_pairs() -> None:
    assert load_strict_json('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"", 0),
        (b"7", 0),
        (b'{"a": [1, 2, {}], "b,[{": "x,\\",,"}', 6),
        (b"[,,", 3),
        (b'["cut, off', 1),
    ],
)
def test_values_are_counted_without_those_in_strings(text: bytes, values: int) -> None:
    assert has_more_values(text, limit=values - 1)
    assert not has_more_values(text, limit=values)
    assert not set(strip_json_strings(text)) & set(b'"x')


@pytest.mark.parametrize(
    ("value", "levels"),
    [
        ([], 1),
        ({"a": 1, "b": [2, {}]}, 3),
        ([[1], {"a": {"b": [0]}}, "[[[["], 4),
    ],
)
def test_levels_of_lists_and_objects_are_counted(value: object, levels: int) -> None:
    assert has_more_levels(value, limit=levels - 1)
    assert not has_more_levels(value, limit=levels)
    assert not has_more_levels("[[", limit=0)

"""Validating values against a schema, and refusing schemas that cannot be satisfied."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.text.schema import (
    DEEPEST,
    SchemaRefused,
    check_schema,
    find_schema_violations,
)

BOOKING: dict[str, Any] = {
    "type": "object",
    "title": "A booking",
    "properties": {
        "destination": {"type": "string", "minLength": 2, "maxLength": 20},
        "date": {"type": "string", "format": "date"},
        "guests": {"type": "integer", "minimum": 1, "exclusiveMaximum": 9},
        "tags": {"type": "array", "items": {"enum": ["sea", "city"]}, "maxItems": 2},
        "paid": {"type": ["boolean", "null"]},
        "kind": {"const": "trip"},
    },
    "required": ["destination"],
    "additionalProperties": False,
}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.requirement("S2.5")
def test_a_value_that_fits_violates_nothing() -> None:
    check_schema(BOOKING)
    value = {
        "destination": "Oslo",
        "date": "2026-05-03",
        "guests": 2.0,
        "tags": ["sea"],
        "paid": None,
        "kind": "trip",
    }
    assert find_schema_violations(BOOKING, value) == []


@pytest.mark.requirement("S2.5")
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([], "the value must be of type object"),
        ({}, "'destination' is missing in the value"),
        ({"destination": "O"}, "'destination' of the value must have at least 2 characters"),
        ({"destination": "O" * 21}, "must have at most 20 characters"),
        ({"destination": 5}, "must be of type string"),
        ({"destination": "Oslo", "date": "May 3"}, "'date' of the value must be a date"),
        ({"destination": "Oslo", "guests": 0}, "must be at least 1"),
        ({"destination": "Oslo", "guests": 9}, "must be less than 9"),
        ({"destination": "Oslo", "guests": True}, "must be of type integer"),
        ({"destination": "Oslo", "guests": 1.5}, "must be of type integer"),
        ({"destination": "Oslo", "tags": ["hill"]}, 'must be one of ["sea", "city"]'),
        ({"destination": "Oslo", "tags": ["sea"] * 3}, "must have at most 2 items"),
        ({"destination": "Oslo", "paid": "no"}, "must be of type boolean or null"),
        ({"destination": "Oslo", "kind": "x"}, 'must be one of ["trip"]'),
        ({"destination": "Oslo", "mood": "x"}, "'mood' of the value is not allowed"),
    ],
    ids=range(15),
)
def test_each_violation_is_named_with_its_place(value: object, fault: str) -> None:
    assert any(fault in found for found in find_schema_violations(BOOKING, value))


def test_true_is_not_one() -> None:
    schema = {"type": "object", "properties": {"a": {"enum": [1, "x"]}, "b": {"const": True}}}
    assert find_schema_violations(schema, {"a": True})
    assert find_schema_violations(schema, {"b": 1})
    assert find_schema_violations(schema, {"a": 1, "b": True}) == []


def test_a_value_has_to_meet_const_and_enum_where_both_stand() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1, "enum": [2]}}}
    assert find_schema_violations(schema, {"a": 1}) == ["'a' of the value must be one of [2]"]
    assert find_schema_violations(schema, {"a": 2})


def test_what_no_property_names_may_be_anything_or_has_a_schema_of_its_own() -> None:
    assert find_schema_violations({"type": "object"}, {"a": [1]}) == []
    typed = {"type": "object", "additionalProperties": {"type": "string"}}
    check_schema(typed)
    assert find_schema_violations(typed, {"a": 1}) == ["'a' of the value must be of type string"]


@pytest.mark.requirement("S2.5")
@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({}, "schema_not_an_object"),
        ({"type": "string"}, "schema_not_an_object"),
        ({"type": "object", "description": "x" * 70_000}, "schema_too_large"),
        (nested(DEEPEST), "schema_too_deep"),
        ({"type": "object", "pattern": "(a+)+"}, "schema_keyword_unsupported"),
        ({"type": "object", "$ref": "#/a"}, "schema_keyword_unsupported"),
        ({"type": "object", "properties": {"a": 5}}, "schema_malformed"),
        ({"type": "object", "properties": []}, "schema_malformed"),
        ({"type": "object", "required": "a"}, "schema_malformed"),
        ({"type": "object", "properties": {"a": {"type": "text"}}}, "schema_malformed"),
        ({"type": "object", "properties": {"a": {"type": []}}}, "schema_malformed"),
        ({"type": "object", "properties": {"a": {"minLength": -1}}}, "schema_malformed"),
        ({"type": "object", "properties": {"a": {"minimum": "1"}}}, "schema_malformed"),
        ({"type": "object", "properties": {"a": {"enum": []}}}, "schema_malformed"),
        ({"type": "object", "properties": {"a": {"format": "email"}}}, "schema_malformed"),
        ({"type": "object", "additionalProperties": 5}, "schema_malformed"),
    ],
    ids=range(16),
)
def test_a_schema_that_cannot_be_held_is_refused_by_name(schema: dict[str, Any], code: str) -> None:
    with pytest.raises(SchemaRefused) as refusal:
        check_schema(schema)
    assert refusal.value.code == code
    assert str(refusal.value)


def test_a_schema_at_the_depth_limit_is_held() -> None:
    check_schema(nested(DEEPEST - 1))


scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "ab"])
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    ),
    max_leaves=6,
)


def schemas() -> st.SearchStrategy[dict[str, Any]]:
    kinds = ["object", "array", "string", "integer", "number", "boolean", "null"]
    leaf = st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(kinds) | st.lists(st.sampled_from(kinds), min_size=1),
            "enum": st.lists(scalars, min_size=1, max_size=3),
            "const": scalars,
            "minLength": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "minimum": st.integers(-2, 2),
            "exclusiveMaximum": st.integers(-2, 2),
        },
    )
    return st.recursive(
        leaf,
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
                "required": st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
                "items": inner | st.booleans(),
                "additionalProperties": inner | st.booleans(),
            },
        ),
        max_leaves=5,
    )


@pytest.mark.requirement("S2.5")
@forall(schemas(), values)
def test_the_subset_judges_as_a_full_validator_does(schema: dict[str, Any], value: Any) -> None:
    whole = {"type": "object", "properties": {"v": schema}}
    check_schema(whole)
    validator = jsonschema.Draft202012Validator(whole)
    assert (find_schema_violations(whole, {"v": value}) == []) == validator.is_valid({"v": value})

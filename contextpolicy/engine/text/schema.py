"""Validates values against the subset of JSON Schema that forms and states need.

A schema with an unsupported keyword is rejected when it is saved, so that every keyword is
enforced. `pattern` is unsupported because a regular expression can take unbounded time.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time

from contextpolicy.engine.text.phrases import Phrase, gettext_noop

DEEPEST = 8
LARGEST = 65_536

_TYPES: Mapping[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list | tuple),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, float) and value.is_integer())
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
_FORMATS: Mapping[str, Callable[[str], object]] = {
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "date-time": datetime.fromisoformat,
}
# Annotations, which do not constrain a value.
_NOTES = frozenset({"$schema", "$id", "$comment", "title", "description", "default", "examples"})
_LIMITS: Mapping[str, tuple[str, Callable[[int, int], bool], str]] = {
    "minLength": ("string", lambda size, limit: size >= limit, "at least {} characters"),
    "maxLength": ("string", lambda size, limit: size <= limit, "at most {} characters"),
    "minItems": ("array", lambda size, limit: size >= limit, "at least {} items"),
    "maxItems": ("array", lambda size, limit: size <= limit, "at most {} items"),
}
_RANGES: Mapping[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda number, limit: number >= limit, "at least {}"),
    "maximum": (lambda number, limit: number <= limit, "at most {}"),
    "exclusiveMinimum": (lambda number, limit: number > limit, "more than {}"),
    "exclusiveMaximum": (lambda number, limit: number < limit, "less than {}"),
}


class SchemaRefused(ValueError):
    """A JSON Schema is malformed or uses an unsupported feature."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def check_schema(schema: Mapping[str, object]) -> None:
    """Check that a JSON Schema describes an object and has only supported keywords.

    Raises SchemaRefused with the code `schema_not_an_object`, `schema_too_large`,
    `schema_too_deep`, `schema_malformed` or `schema_keyword_unsupported`.
    """
    if schema.get("type") != "object":
        raise SchemaRefused(
            "schema_not_an_object",
            Phrase(
                gettext_noop('The schema must describe an object. Start it with "type": "object".')
            ),
        )
    if len(json.dumps(schema)) > LARGEST:
        raise SchemaRefused(
            "schema_too_large",
            Phrase(
                gettext_noop("The schema is longer than {largest:,} characters. Shorten it."),
                largest=LARGEST,
            ),
        )
    _check(schema, "the schema", DEEPEST)


def find_schema_violations(schema: Mapping[str, object], value: object) -> list[str]:
    """Return the violations of a value, one sentence each with its location; empty if it is valid.

    The schema must have passed `check_schema`.
    """
    return _violations(schema, value, "the value")


def _check(schema: object, place: str, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise _build_malformed(
            Phrase(
                gettext_noop("{place} is not an object. Replace it with an object."),
                place=_begin(place),
            )
        )
    if depth == 0:
        raise SchemaRefused(
            "schema_too_deep",
            Phrase(
                gettext_noop("The schema is nested more than {deepest} levels deep. Flatten it."),
                deepest=DEEPEST,
            ),
        )
    for keyword, demand in schema.items():
        if keyword not in _CHECKS and keyword not in _NOTES:
            raise SchemaRefused(
                "schema_keyword_unsupported",
                Phrase(
                    gettext_noop("{keyword!r} in {place} is not supported. Use {keywords}."),
                    keyword=keyword,
                    place=place,
                    keywords=", ".join(sorted(_CHECKS)),
                ),
            )
        if keyword in _CHECKS and not _CHECKS[keyword](demand):
            raise _build_malformed(
                Phrase(
                    gettext_noop("{place} has an invalid {keyword!r}. Correct its value."),
                    place=_begin(place),
                    keyword=keyword,
                )
            )
    for name, inner in _inner(schema):
        _check(inner, f"{name} of {place}", depth - 1)


def _inner(schema: Mapping[str, object]) -> list[tuple[str, object]]:
    properties = schema.get("properties", {})
    found = list(properties.items()) if isinstance(properties, Mapping) else []
    found += [(key, schema[key]) for key in ("items", "additionalProperties") if key in schema]
    return [(repr(name), inner) for name, inner in found]


def _build_malformed(sentence: Phrase) -> SchemaRefused:
    return SchemaRefused("schema_malformed", sentence)


def _begin(place: str) -> str:
    """Capitalise the first letter and keep the case of the rest, which may be a name."""
    return place[:1].upper() + place[1:]


def _is_type(demand: object) -> bool:
    named = demand if isinstance(demand, list) else [demand]
    return bool(named) and all(isinstance(name, str) and name in _TYPES for name in named)


def _is_names(demand: object) -> bool:
    return isinstance(demand, list) and all(isinstance(name, str) for name in demand)


def _is_size(demand: object) -> bool:
    return _TYPES["integer"](demand) and demand >= 0  # type: ignore[operator]  # a number by the check before


_CHECKS: Mapping[str, Callable[[object], bool]] = {
    "type": _is_type,
    "properties": _TYPES["object"],
    "required": _is_names,
    "additionalProperties": lambda demand: isinstance(demand, bool | Mapping),
    "items": lambda demand: isinstance(demand, bool | Mapping),
    "enum": lambda demand: isinstance(demand, list) and bool(demand),
    "const": lambda demand: True,
    "format": lambda demand: isinstance(demand, str) and demand in _FORMATS,
    **dict.fromkeys(_LIMITS, _is_size),
    **dict.fromkeys(_RANGES, _TYPES["number"]),
}


def _violations(schema: object, value: object, place: str) -> list[str]:
    if isinstance(schema, bool):
        return [] if schema else [f"{place} is not allowed"]
    demands = schema if isinstance(schema, Mapping) else {}
    found = _of_kind(demands, value, place)
    if found:
        return found
    found = _of_value(demands, value, place)
    if isinstance(value, Mapping):
        found += _of_object(demands, value, place)
    if isinstance(value, list | tuple) and "items" in demands:
        for number, item in enumerate(value, start=1):
            found += _violations(demands["items"], item, f"item {number} of {place}")
    return found


def _of_kind(demands: Mapping[str, object], value: object, place: str) -> list[str]:
    named = demands.get("type", [])
    types: Sequence[str] = [named] if isinstance(named, str) else named  # type: ignore[assignment]  # names by check_schema
    if types and not any(_TYPES[name](value) for name in types):
        return [f"{place} must be of type {' or '.join(types)}"]
    for choices in ([demands["const"]] if "const" in demands else None, demands.get("enum")):
        if isinstance(choices, list) and not any(_equal(value, choice) for choice in choices):
            return [f"{place} must be one of {json.dumps(choices, ensure_ascii=False)}"]
    return []


def _equal(one: object, other: object) -> bool:
    """Compare two values as JSON does: true is not equal to 1."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _of_value(demands: Mapping[str, object], value: object, place: str) -> list[str]:
    found = []
    for keyword, (kind, fits, words) in _LIMITS.items():
        if keyword in demands and _TYPES[kind](value) and not fits(len(value), demands[keyword]):  # type: ignore[arg-type]  # a text or a list, and a number, by the checks
            found.append(f"{place} must have {words.format(demands[keyword])}")
    for keyword, (inside, words) in _RANGES.items():
        if keyword in demands and _TYPES["number"](value) and not inside(value, demands[keyword]):  # type: ignore[arg-type]  # numbers by the checks
            found.append(f"{place} must be {words.format(demands[keyword])}")
    wanted = demands.get("format")
    if isinstance(wanted, str) and isinstance(value, str) and not _has_format(value, wanted):
        found.append(f"{place} must be a {wanted}")
    return found


def _has_format(value: str, wanted: str) -> bool:
    try:
        _FORMATS[wanted](value)
    except ValueError:
        return False
    return True


def _of_object(demands: Mapping[str, object], value: Mapping[str, object], place: str) -> list[str]:
    properties = demands.get("properties", {})
    known: Mapping[str, object] = properties if isinstance(properties, Mapping) else {}
    required = demands.get("required", [])
    names = required if isinstance(required, list) else []
    found = [f"{name!r} is missing in {place}" for name in names if name not in value]
    others = demands.get("additionalProperties", True)
    for name, item in value.items():
        found += _violations(known.get(name, others), item, f"{name!r} of {place}")
    return found

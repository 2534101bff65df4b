"""Strict parsing of JSON. Rejects values that parsers treat differently."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NoReturn

Pairs = list[tuple[str, Any]]
PROBLEMS = {
    "constant": "{value} is not a JSON number",
    "float": "{value} is too large for a number",
    "key": "an object has the same key twice",
}


_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
# Each value of a list or an object follows one of these characters.
_MARKS = (b",", b"[", b"{")


class AmbiguousJSON(ValueError):
    """A constant such as NaN, a number that is too large for a float, or a duplicate key."""

    def __init__(self, kind: Literal["constant", "float", "key"], value: str = "") -> None:
        super().__init__(PROBLEMS[kind].format(value=value[:40]))
        self.kind = kind
        self.value = value


def iter_json_strings(value: object) -> Iterator[str]:
    """Yield every string and key in a parsed JSON value, in no particular order."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            waiting += item


def load_strict_json(
    text: str | bytes,
    *,
    pairs: Callable[[Pairs], Any] | None = None,
    floats: Callable[[str], float | None] | None = None,
    ints: Callable[[str], int | None] | None = None,
) -> Any:
    """Parse a JSON text. Rejects NaN, Infinity and numbers too large for a float.

    Duplicate keys are rejected only with `build_unique_object` as `pairs`. `floats` and `ints`
    replace the functions that parse numbers. Raises `AmbiguousJSON` for a rejected value,
    ValueError for malformed JSON, and RecursionError if it is nested too deeply.
    """
    return json.loads(
        text,
        object_pairs_hook=pairs,
        parse_constant=_refuse_constant,
        parse_float=floats or parse_finite_float,
        parse_int=ints,
    )


def build_unique_object(pairs: Pairs) -> dict[str, Any]:
    """Return the object of these pairs. Raises `AmbiguousJSON` for a duplicate key."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise AmbiguousJSON("key")
    return made


def parse_finite_float(digits: str) -> float:
    """Return the number. Raises `AmbiguousJSON` if it is too large for a float."""
    number = float(digits)
    if not math.isfinite(number):
        raise AmbiguousJSON("float", digits)
    return number


def strip_json_strings(data: bytes | bytearray) -> bytes:
    """Return a JSON text without its strings and keys."""
    return _STRINGS.sub(b"", data)


def has_more_values(data: bytes | bytearray, *, limit: int) -> bool:
    """Return True if a JSON text has more than `limit` values.

    Does not parse the text, because each parsed value uses about 100 bytes of memory. Stops at the
    limit.
    """
    if sum(data.count(mark) for mark in _MARKS) <= limit:
        return False
    values = place = 0
    for string in _STRINGS.finditer(data):
        values += sum(data.count(mark, place, string.start()) for mark in _MARKS)
        if values > limit:
            return True
        place = string.end()
    return values + sum(data.count(mark, place) for mark in _MARKS) > limit


def has_more_levels(value: Any, *, limit: int) -> bool:
    """Return True if a parsed JSON value has more than `limit` nested lists and objects."""
    level, inner = 0, [value]
    while containers := [item for item in inner if isinstance(item, dict | list)]:
        level += 1
        if level > limit:
            return True
        inner = [
            item
            for each in containers
            for item in (each.values() if isinstance(each, dict) else each)
        ]
    return False


def _refuse_constant(name: str) -> NoReturn:
    raise AmbiguousJSON("constant", name)

"""Parses JSON strictly: a body that two parsers could understand differently is refused."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NoReturn, cast

from django.conf import settings
from rest_framework.parsers import BaseParser

from chats.api.errors import RequestTooLarge
from chats.ground.refusals import Refusal

DEPTH = 32
KEYS = 10_000
# In a snapshot of a team's chat; a message has seven.
SNAPSHOT_KEYS = 300_000
TOO_DEEP = f"it has more than {DEPTH} levels"


class InvalidJSON(Refusal):
    """The body is no JSON object, or one that parsers could understand differently."""

    code = "invalid_json"
    status = 400
    sentence = "The body is not valid JSON here: {problem}."


class StrictJSONParser(BaseParser):
    """Bytes → a JSON object. The name is fixed by the framework's settings."""

    media_type = "application/json"
    keys = KEYS
    mends = False

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the object. Raises `RequestTooLarge` and `InvalidJSON`."""
        limit = self.most()
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise RequestTooLarge(limit=limit)
        return parse(data, keys=self.keys, mends=self.mends)

    def most(self) -> int:
        """Return the most bytes of a body."""
        return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


class SnapshotParser(StrictJSONParser):
    """Bytes → a JSON object that may be a whole chat."""

    keys = SNAPSHOT_KEYS

    def most(self) -> int:
        """Return the most bytes of a snapshot."""
        return int(settings.SNAPSHOT_BYTES)


class MessageParser(StrictJSONParser):
    """Bytes → a JSON object whose lone surrogates became U+FFFD: words are never refused."""

    mends = True


def parse(data: bytes, *, keys: int = KEYS, mends: bool = False) -> dict[str, Any]:
    """Return the JSON object in the bytes; with `mends` lone surrogates become U+FFFD.

    Refuses bytes that are no UTF-8, duplicate keys, NaN and infinity, half surrogate pairs, more
    than 32 levels and more keys than are allowed. Raises `InvalidJSON`.
    """
    value = read(data, keys=keys)
    if not isinstance(value, dict):
        raise InvalidJSON(problem="it is not an object")
    has_halves = False
    for level, text in strings(value):
        if level > DEPTH:
            raise InvalidJSON(problem=TOO_DEEP)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            if not mends:
                raise InvalidJSON(problem="it has half of a surrogate pair")
            has_halves = True
    return cast(dict[str, Any], without_halves(value)) if has_halves else value


def without_halves(value: Any) -> Any:
    """Return a value without lone surrogates; NUL is left to the fields, which have their say."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_halves(inner) for inner in value]
    if isinstance(value, dict):
        return {without_halves(key): without_halves(inner) for key, inner in value.items()}
    return value


def read(data: bytes, *, keys: int) -> Any:
    """Return the value in the bytes, duplicate keys and impossible numbers refused.

    Raises `InvalidJSON`.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=unique_keys(keys),
            parse_constant=no_constant,
            parse_float=finite,
        )
    except UnicodeDecodeError:
        raise InvalidJSON(problem="it is not UTF-8") from None
    except RecursionError:
        raise InvalidJSON(problem=TOO_DEEP) from None
    except json.JSONDecodeError as error:
        raise InvalidJSON(problem=f"{error.msg}, at character {error.pos}") from None
    except ValueError:
        # Python refuses to convert whole numbers of thousands of digits.
        raise InvalidJSON(problem="a number is too long") from None


def unique_keys(most: int) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return a function that makes an object of its pairs, and counts the keys of the whole body.

    It raises `InvalidJSON` for a key that stands twice, and for too many.
    """
    seen = 0

    def make(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        seen += len(pairs)
        if seen > most:
            raise InvalidJSON(problem=f"it has more than {most:,} keys")
        made = dict(pairs)
        if len(made) < len(pairs):
            raise InvalidJSON(problem="a key stands twice in one object")
        return made

    return make


def no_constant(name: str) -> NoReturn:
    """Raise `InvalidJSON` for NaN and Infinity, which Python reads and JSON does not have."""
    raise InvalidJSON(problem=f"{name} is no JSON number")


def finite(text: str) -> float:
    """Return the number; raises `InvalidJSON` if no float can hold it."""
    number = float(text)
    if number in {float("inf"), float("-inf")}:
        raise InvalidJSON(problem="a number is too large")
    return number


def strings(value: Any) -> Iterator[tuple[int, str]]:
    """Yield every string and key with its level; an empty text stands for each container."""
    waiting = [(1, value)]
    while waiting:
        level, item = waiting.pop()
        if isinstance(item, str):
            yield level - 1, item
        elif isinstance(item, dict):
            yield level, ""
            waiting += [(level + 1, inner) for pair in item.items() for inner in pair]
        elif isinstance(item, list):
            yield level, ""
            waiting += [(level + 1, inner) for inner in item]

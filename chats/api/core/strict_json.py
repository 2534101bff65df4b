"""Strict JSON parsing. Refuses a body that two parsers could read differently."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, cast

from django.conf import settings
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy, gettext_noop
from rest_framework.parsers import BaseParser

from chats.api.core.errors import MessageBodyTooLarge, RequestTooLarge
from chats.ground.refusals import Refusal
from contextpolicy.engine.strict_json import (
    AmbiguousJSON,
    build_unique_object,
    has_more_values,
    load_strict_json,
)

# For views with a method named `list`, which hides the type.
Parsers = list[BaseParser]
DEPTH = 32
KEYS = 10_000
# The limit for the snapshot of a team chat, in which each message has seven keys.
SNAPSHOT_KEYS = 300_000
VALUES = 500_000
KEY_TWICE = gettext_lazy("an object contains the same key twice")
PROBLEMS = {
    "constant": gettext_lazy("{name} is not a JSON number"),
    "float": gettext_lazy("a number is too large"),
    "key": KEY_TWICE,
}
NOT_AN_OBJECT = gettext_lazy("the body is not an object")
TOO_DEEP = format_lazy(
    gettext_lazy("the body is nested more than {limit} levels deep"), limit=DEPTH
)


class InvalidJSON(Refusal):
    """The body is not a JSON object, or it is ambiguous: for example, a key is repeated."""

    code = "invalid_json"
    status = 400
    sentence = gettext_noop("Invalid JSON: {problem}.")


class StrictJSONParser(BaseParser):
    """Parses a request body into a JSON object. DRF's settings refer to this class by name."""

    media_type = "application/json"
    keys = KEYS
    repairs = False
    # The refusal of a body that is too large.
    refusal: type[RequestTooLarge] = RequestTooLarge

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the object.

        Raises `RequestTooLarge` for a body of more than `most()` bytes, and `InvalidJSON`.
        """
        limit = self.most()
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise self.refusal(limit=limit)
        return parse_json_object(data, keys=self.keys, repairs=self.repairs)

    def most(self) -> int:
        """Return the maximum size of a body in bytes."""
        return int(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)


class SnapshotParser(StrictJSONParser):
    """Parses a body that can contain a complete chat."""

    keys = SNAPSHOT_KEYS

    def most(self) -> int:
        """Return the maximum size of a snapshot in bytes."""
        return int(settings.SNAPSHOT_BYTES)


class MessageParser(StrictJSONParser):
    """Parses a body with lone surrogates as U+FFFD, so that a message is never refused for them."""

    repairs = True
    refusal = MessageBodyTooLarge


def parse_json_object(data: bytes, *, keys: int = KEYS, repairs: bool = False) -> dict[str, Any]:
    """Parse bytes into a JSON object.

    Refuses bytes that are not UTF-8, duplicate keys, NaN, infinity, numbers out of range, more than
    32 levels, more than 500,000 values, and more than `keys` keys. Lone surrogates are refused too;
    with `repairs`, they become U+FFFD. Raises `InvalidJSON`.
    """
    value = decode_json(data, keys=keys)
    if not isinstance(value, dict):
        raise InvalidJSON(problem=NOT_AN_OBJECT)
    has_halves = False
    for level, text in iter_strings_with_level(value):
        if level > DEPTH:
            raise InvalidJSON(problem=TOO_DEEP)
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            if not repairs:
                raise InvalidJSON(problem=gettext_lazy("a string contains an unpaired surrogate"))
            has_halves = True
    return cast(dict[str, Any], replace_lone_surrogates(value)) if has_halves else value


def replace_lone_surrogates(value: Any) -> Any:
    """Return a JSON value with U+FFFD for each lone surrogate. NUL is left to the fields."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [replace_lone_surrogates(inner) for inner in value]
    if isinstance(value, dict):
        return {
            replace_lone_surrogates(key): replace_lone_surrogates(inner)
            for key, inner in value.items()
        }
    return value


def decode_json(data: bytes, *, keys: int) -> Any:
    """Parse bytes into a JSON value, with the checks that `parse_json_object` describes.

    The number of levels and lone surrogates are left to that function. Raises `InvalidJSON`.
    """
    if has_more_values(data, limit=VALUES):
        problem = format_lazy(gettext_lazy("the body has more than {limit:,} values"), limit=VALUES)
        raise InvalidJSON(problem=problem)
    try:
        return load_strict_json(data.decode("utf-8"), pairs=build_unique_keys_hook(keys))
    except AmbiguousJSON as error:
        raise InvalidJSON(problem=format_lazy(PROBLEMS[error.kind], name=error.value)) from None
    except UnicodeDecodeError:
        raise InvalidJSON(problem=gettext_lazy("the body is not UTF-8")) from None
    except RecursionError:
        raise InvalidJSON(problem=TOO_DEEP) from None
    except json.JSONDecodeError as error:
        problem = format_lazy(
            gettext_lazy("{problem}, at character {position}"),
            problem=error.msg,
            position=error.pos,
        )
        raise InvalidJSON(problem=problem) from None
    except ValueError:
        # Python refuses to convert integers of thousands of digits.
        raise InvalidJSON(problem=gettext_lazy("a number is too long")) from None


def build_unique_keys_hook(most: int) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return an object hook that refuses duplicate keys and counts the keys of the body.

    The hook raises `AmbiguousJSON` for a duplicate key and `InvalidJSON` for too many keys.
    """
    seen = 0

    def make(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        seen += len(pairs)
        if seen > most:
            problem = format_lazy(gettext_lazy("the body has more than {limit:,} keys"), limit=most)
            raise InvalidJSON(problem=problem)
        return build_unique_object(pairs)

    return make


def iter_strings_with_level(value: Any) -> Iterator[tuple[int, str]]:
    """Yield every string and key with its nesting level; for each container, an empty string."""
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

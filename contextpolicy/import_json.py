"""Parses the JSON of imported policies and strategies within limits."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext, gettext_lazy

from contextpolicy.engine.strict_json import has_more_levels
from contextpolicy.plugins import MalformedImport
from contextpolicy.wording import join_items

# Maximum characters of the JSON. A strategy takes a page or two; a policy can contain skills.
LONGEST_IMPORT = 2_000_000

# Maximum nested lists and objects, as in a request body of the REST API.
MOST_LEVELS = 32


CANNOT_BE_STORED = gettext_lazy(
    "The JSON contains a value that cannot be stored. Use plain text and numbers."
)


def describe_level_limit(limit: int) -> str:
    """Return the sentence for JSON with more than `limit` levels."""
    return gettext("The JSON has more than {limit} levels. Use fewer levels.").format(limit=limit)


def parse_import_json(text: str) -> object:
    """Parse the JSON of a policy or a strategy.

    Raises `MalformedImport` if the text is too long or not JSON, has too many levels or a duplicate
    key, or contains a value that cannot be stored.
    """
    if len(text) > LONGEST_IMPORT:
        raise MalformedImport(
            gettext(
                "The text has {n:,} characters. The limit is {longest:,}. Shorten the text."
            ).format(n=len(text), longest=LONGEST_IMPORT),
            reason="too_long",
        )
    try:
        form = json.loads(text, object_pairs_hook=reject_import_duplicates)
        if has_more_levels(form, limit=MOST_LEVELS):
            raise RecursionError
        # Databases do not accept lone surrogates or infinite numbers.
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        sentence = gettext(
            "This is not valid JSON: {reason} in line {line}, column {column}."
        ).format(reason=error.msg, line=error.lineno, column=error.colno)
        raise MalformedImport(sentence, reason="not_json") from error
    except MalformedImport:
        raise
    except RecursionError as error:
        raise MalformedImport(describe_level_limit(MOST_LEVELS), reason="too_deep") from error
    except ValueError as error:
        raise MalformedImport(str(CANNOT_BE_STORED), reason="not_storable") from error
    if any("\0" in found for found in collect_json_strings(form)):
        raise MalformedImport(str(CANNOT_BE_STORED), reason="not_storable")
    return form


def reject_import_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object from its pairs. Raises `MalformedImport` for a duplicate key."""
    counts = Counter(name for name, _ in pairs)
    twice = [repr(name) for name, count in counts.items() if count > 1]
    if twice:
        raise MalformedImport(
            gettext(
                "These keys occur more than once in an object of the JSON: {keys}. Remove the "
                "duplicates."
            ).format(keys=join_items(twice)),
            reason="key_twice",
        )
    return dict(pairs)


def collect_json_strings(value: object) -> Iterator[str]:
    """Yield every string in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from collect_json_strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from collect_json_strings(inner)

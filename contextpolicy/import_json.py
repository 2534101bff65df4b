"""Parses the JSON of imported policies and strategies within limits."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.translation import gettext, gettext_lazy

from contextpolicy.plugins import MalformedImport

# Maximum characters of the JSON. A strategy takes a page or two; a policy can contain skills.
LONGEST_IMPORT = 2_000_000


CANNOT_BE_STORED = gettext_lazy(
    "The JSON contains a value that cannot be stored. Use plain text and numbers."
)


def parse_import_json(text: str) -> object:
    """Parse the JSON of a policy or a strategy.

    Raises `MalformedImport` if the text is too long or not JSON, has a duplicate key, or contains a
    value that cannot be stored.
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
        # Databases do not accept lone surrogates or infinite numbers.
        json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        sentence = gettext(
            "This is not valid JSON: {reason} in line {line}, column {column}."
        ).format(reason=error.msg, line=error.lineno, column=error.colno)
        raise MalformedImport(sentence, reason="not_json") from error
    except MalformedImport:
        raise
    except (ValueError, RecursionError) as error:
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
            ).format(keys=", ".join(twice)),
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

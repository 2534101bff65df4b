"""Replaces characters that databases cannot store: NUL and lone surrogates."""

import re
from typing import Any

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def sanitise_text(text: str) -> str:
    """Return a text with NULs and lone surrogates as U+FFFD.

    Surrogate pairs become one character.
    """
    if not UNSTORABLE.search(text):
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", REPLACEMENT)


def sanitise_value(value: Any) -> Any:
    """Return a JSON value with storable texts and object keys."""
    if isinstance(value, str):
        return sanitise_text(value)
    if isinstance(value, list):
        return [sanitise_value(inner) for inner in value]
    if isinstance(value, dict):
        return {sanitise_text(key): sanitise_value(inner) for key, inner in value.items()}
    return value

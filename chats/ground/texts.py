"""Replaces characters that no database keeps: NUL and lone halves of surrogate pairs."""

import re
from typing import Any

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def storable(text: str) -> str:
    """Return a text whose NULs and lone surrogates are U+FFFD; two halves become one character."""
    if not UNSTORABLE.search(text):
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\x00", REPLACEMENT)


def storable_value(value: Any) -> Any:
    """Return a JSON value whose texts are storable, the keys of its objects too."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_value(inner) for inner in value]
    if isinstance(value, dict):
        return {storable(key): storable_value(inner) for key, inner in value.items()}
    return value

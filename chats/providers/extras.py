"""Collects the unknown fields of a streamed reply: those of the message and of its tool calls."""

from collections.abc import Mapping
from typing import Any

from chats.ground.texts import storable_value

# Texts that arrive in pieces; every other value replaces the one before.
GROWING = ("text", "summary")


def merged(known: Any, piece: Any) -> Any:
    """Return a value with another piece of it."""
    if isinstance(known, dict) and isinstance(piece, dict):
        return {
            **known,
            **{
                name: grown(name, known.get(name), value)
                for name, value in piece.items()
                if value is not None or name not in known
            },
        }
    if isinstance(known, list) and isinstance(piece, list):
        return merged_lists(known, piece)
    return piece if piece not in (None, "") else known


def grown(name: str, known: Any, piece: Any) -> Any:
    """Return a field with another piece of it."""
    if name in GROWING and isinstance(known, str) and isinstance(piece, str):
        return known + piece
    return merged(known, piece)


def merged_lists(known: list[Any], pieces: list[Any]) -> list[Any]:
    """Return a list with more entries; one that goes on with the last one is merged into it."""
    found = list(known)
    for piece in pieces:
        if found and goes_on(found[-1], piece):
            found[-1] = merged(found[-1], piece)
        else:
            found.append(piece)
    return found


def goes_on(last: Any, piece: Any) -> bool:
    """Return True if an entry is another piece of the one before it (OpenRouter's details)."""
    if not (isinstance(last, dict) and isinstance(piece, dict)) or "index" not in piece:
        return False
    same = all(last.get(name) == piece.get(name) for name in ("index", "type"))
    return same and any(isinstance(piece.get(name), str) for name in (*GROWING, "signature"))


class FieldsSoFar:
    """Unknown fields as far as they have come."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}

    def add(self, fields: Mapping[str, Any]) -> None:
        """Take in more of them."""
        if fields:
            self.fields = merged(self.fields, storable_value(dict(fields)))

    def add_missing(self, fields: Mapping[str, Any]) -> None:
        """Take in those that did not come yet."""
        self.add({name: value for name, value in fields.items() if name not in self.fields})

"""Collects the unknown fields of a streamed message and of its tool calls."""

from collections.abc import Mapping
from typing import Any

from chats.ground.texts import sanitise_value
from contextpolicy.engine.messages.extras import MOST

# Texts that arrive in pieces. Other values replace earlier ones.
GROWING = ("text", "summary")


def merge_values(known: Any, piece: Any) -> Any:
    """Merge a streamed piece into a value.

    Objects are merged, with the strings in the fields of `GROWING` joined. Lists are appended. Any
    other value is replaced, unless the piece is None or empty.
    """
    if isinstance(known, dict) and isinstance(piece, dict):
        return {
            **known,
            **{
                name: extend_field(name, known.get(name), value)
                for name, value in piece.items()
                if value is not None or name not in known
            },
        }
    if isinstance(known, list) and isinstance(piece, list):
        return merge_lists(known, piece)
    return piece if piece not in (None, "") else known


class TextPieces(list[str]):
    """Text that arrives in many pieces, which are joined once at the end."""


def extend_field(name: str, known: Any, piece: Any) -> Any:
    """Return a provider field extended by a streamed piece, by the rules of `merge_values`."""
    if name in GROWING and isinstance(known, str | TextPieces) and isinstance(piece, str):
        found = known if isinstance(known, TextPieces) else TextPieces([known])
        found.append(piece)
        return found
    return merge_values(known, piece)


def join_text_pieces(value: Any) -> Any:
    if isinstance(value, TextPieces):
        return "".join(value)
    if isinstance(value, list):
        return [join_text_pieces(inner) for inner in value]
    if isinstance(value, dict):
        return {name: join_text_pieces(inner) for name, inner in value.items()}
    return value


def merge_lists(known: list[Any], pieces: list[Any]) -> list[Any]:
    """Append entries to a list. An entry that continues the last one is merged into it."""
    found = list(known)
    for piece in pieces:
        if found and is_continuation(found[-1], piece):
            found[-1] = merge_values(found[-1], piece)
        else:
            found.append(piece)
    return found


def is_continuation(last: Any, piece: Any) -> bool:
    """Return True if an entry continues the previous one (OpenRouter's reasoning details)."""
    if not (isinstance(last, dict) and isinstance(piece, dict)) or "index" not in piece:
        return False
    same = all(last.get(name) == piece.get(name) for name in ("index", "type"))
    return same and any(isinstance(piece.get(name), str) for name in (*GROWING, "signature"))


class FieldsSoFar:
    """The unknown fields received so far. Beyond the size limit, all are dropped."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._size = 0

    @property
    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = join_text_pieces(self._fields)
        return found

    def add(self, fields: Mapping[str, Any]) -> None:
        if not fields:
            return
        self._size += len(repr(fields))
        if self._size > MOST:
            self._fields = {}
        else:
            self._fields = merge_values(self._fields, sanitise_value(dict(fields)))

    def add_missing(self, fields: Mapping[str, Any]) -> None:
        """Add fields that were not received before."""
        self.add({name: value for name, value in fields.items() if name not in self._fields})

"""Moves the content of large chats to a temporary file during an import.

A chat of 200,000 messages then needs memory only for its ids, not for its text.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, cast

from chats.exchange.drafts import Node
from contextpolicy.engine.messages.messages import Part, parse_parts, serialize_parts

# Number of messages of a chat that stay in memory.
IN_MEMORY = 2_000
# Bytes that are buffered before they are written to disk.
BUFFERED = 1024 * 1024


class Shelf:
    """A temporary file of JSON values, addressed by position. Deleted with the object."""

    def __init__(self) -> None:
        self.file: IO[bytes] | None = None
        self.end = 0
        # Cache of the last value, because parts are often read twice in a row.
        self.last: tuple[int, Any] = (-1, None)

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()

    def put(self, value: object) -> int:
        if self.file is None:
            held = tempfile.SpooledTemporaryFile(max_size=BUFFERED)  # noqa: SIM115  # closed by __del__
            self.file = cast(IO[bytes], held)
        place = self.end
        self.file.seek(place)
        self.end += self.file.write(json.dumps(value).encode("ascii") + b"\n")
        return place

    def value(self, place: int) -> Any:
        if self.file is None:
            raise ValueError("nothing was written")
        if self.last[0] != place:
            self.file.seek(place)
            self.last = (place, json.loads(self.file.readline()))
        return self.last[1]

    def parts(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Write the parts of a message. Return a sequence that reads them on access."""
        return ShelvedParts(self, self.put(serialize_parts(parts)), len(parts)) if parts else ()

    def values(self, values: Sequence[Any]) -> Sequence[Any]:
        """Write JSON values. Return a sequence that reads them on access."""
        return ShelvedValues(self, self.put(list(values)), len(values)) if values else ()

    def metadata(self, metadata: Mapping[str, object]) -> Mapping[str, object]:
        """Write the metadata of a message. Return a mapping that reads it on access."""
        return ShelvedMetadata(self, self.put(dict(metadata)))


def shelve_node(node: Node, shelf: Shelf) -> Node:
    """Return a message with its parts and metadata moved to a shelf."""
    parts = node.parts if isinstance(node.parts, ShelvedParts) else shelf.parts(node.parts)
    return replace(node, parts=parts, metadata=shelf.metadata(node.metadata))


class ShelvedValues(Sequence[Any]):
    """JSON values, stored on a shelf."""

    __slots__ = ("length", "place", "shelf")

    def __init__(self, shelf: Shelf, place: int, length: int) -> None:
        self.shelf = shelf
        self.place = place
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: Any) -> Any:
        return self.read()[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.read())

    def read(self) -> Sequence[Any]:
        return cast(Sequence[Any], self.shelf.value(self.place))


class ShelvedParts(ShelvedValues):
    """The parts of a message, stored on a shelf."""

    __slots__ = ()

    def read(self) -> tuple[Part, ...]:
        return parse_parts(self.shelf.value(self.place))


def replace_node_parts(node: Node, parts: tuple[Part, ...]) -> Node:
    """Return a message with other parts, on the shelf of the earlier ones if they are on one."""
    before = node.parts
    return replace(
        node, parts=before.shelf.parts(parts) if isinstance(before, ShelvedParts) else parts
    )


class ShelvedMetadata(Mapping[str, object]):
    """The metadata of a message, stored on a shelf."""

    __slots__ = ("place", "shelf")

    def __init__(self, shelf: Shelf, place: int) -> None:
        self.shelf = shelf
        self.place = place

    def __getitem__(self, name: str) -> object:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())

    def read(self) -> dict[str, object]:
        return cast(dict[str, object], self.shelf.value(self.place))

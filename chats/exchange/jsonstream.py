"""Reads large JSON documents in pieces: one list value at a time, in bounded memory.

Values are delimited by their brackets; the caller parses them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import bounds
from chats.exchange.drafts import ImportRefused
from chats.ground.sentences import Sentence

CHUNK = 256 * 1024
# Minimum size of a document that is read entry by entry, and of a container in it.
WHOLE = 2 * 1024 * 1024
LARGE = 64 * 1024
# Number of bits of a position in a document.
SHIFT = 40
_BRACKET = re.compile(
    rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+(?:([\[{])|([\]}])|")', re.DOTALL
)
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"\[\]{},:\s]++', re.DOTALL)
_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")


class Reader:
    """A JSON document that is read forward. Consumed bytes are discarded.

    `tick` is called with each piece of the file. `offset` is the position in the file.
    """

    def __init__(
        self, file: IO[bytes], *, place: str | Promise, tick: Callable[[], None], offset: int = 0
    ) -> None:
        self.file = file
        self.place = place
        self.tick = tick
        self.buffer = bytearray()
        # Consumed bytes of the buffer, and its position in the file.
        self.at = 0
        self.base = offset
        if offset:
            file.seek(offset)
        elif file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        else:
            self.base = 3

    @property
    def offset(self) -> int:
        """The position in the file up to which the document is consumed."""
        return self.base + self.at

    def fill(self, size: int = CHUNK) -> bool:
        """Read another piece; return False at the end of the file."""
        self.tick()
        piece = self.file.read(size)
        self.buffer += piece
        return bool(piece)

    def forget(self) -> None:
        del self.buffer[: self.at]
        self.base += self.at
        self.at = 0

    def peek(self) -> bytes:
        """Return the next byte that is not whitespace; empty at the end of the file."""
        while True:
            found = _SPACE.match(self.buffer, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.buffer):
                return bytes(self.buffer[self.at : self.at + 1])
            self.forget()
            if not self.fill():
                return b""

    def take(self, mark: bytes) -> bool:
        """Consume a delimiter if it comes next; return True if it did."""
        if self.peek() != mark:
            return False
        self.at += 1
        return True

    def error(self, problem: str | Promise) -> ImportRefused:
        return bounds.build_invalid_json_error(self.place, problem)

    def value(self, *, most: int) -> bytearray | None:
        """Return the raw bytes of the next value; None for a list or object over `most` bytes.

        Raises `ImportRefused` for another value beyond `most`, and for invalid JSON.
        """
        self.forget()
        first = self.peek()
        if not first:
            raise self.error(gettext_lazy("the data ends too early"))
        self.forget()
        return self.scalar(most=most) if first not in b"[{" else self.container(most=most)

    def container(self, *, most: int) -> bytearray | None:
        """Return the raw bytes of the next list or object; None if they exceed `most`."""
        depth, at, dropped = 0, 0, 0
        while True:
            found = _BRACKET.match(self.buffer, at)
            if found is not None and found.lastindex is not None:
                at = found.end()
                depth += 1 if found.lastindex == 1 else -1
                if depth > bounds.SEARCHED_DEPTH:
                    raise build_search_depth_error(self.place)
                if not depth:
                    break
                continue
            at = found.end() - 1 if found is not None else len(self.buffer)
            if len(self.buffer) > most:
                # Over the limit, so nothing is kept.
                dropped += at + self.skip(at, is_text=found is not None)
                at = 0
            # A truncated text is read again together with the next piece.
            elif not self.fill(max(CHUNK, len(self.buffer) - at)):
                raise self.error(gettext_lazy("the data ends too early"))
        if dropped + at > most:
            self.at = at
            return None
        # Return the buffer itself, so that a large value is in memory only once.
        value, self.buffer = self.buffer, self.buffer[at:]
        del value[at:]
        self.base += at
        self.at = 0
        return value

    def skip(self, at: int, *, is_text: bool) -> int:
        """Discard everything before a position and, if `is_text`, the string that begins there.

        Return the string's size, or 0.
        """
        self.drop(at)
        if is_text:
            return self.skip_text()
        if not self.fill():
            raise self.error(gettext_lazy("the data ends too early"))
        return 0

    def drop(self, size: int) -> None:
        """Discard `size` bytes from the beginning of the buffer."""
        del self.buffer[:size]
        self.base += size

    def skip_text(self) -> int:
        """Discard the string at the beginning of the buffer, of any length. Return its size."""
        dropped, at = 0, 1
        while True:
            found = _REST.match(self.buffer, at)
            at = found.end() if found else at
            if self.buffer[at : at + 1] == b'"':
                self.drop(at + 1)
                return dropped + at + 1
            # The rest is empty, or half an escape sequence.
            dropped += at
            self.drop(at)
            at = 0
            if not self.fill():
                raise self.error(gettext_lazy("the data ends too early"))

    def scalar(self, *, most: int) -> bytearray:
        """Return the raw bytes of a string, number or literal.

        Raises `ImportRefused` beyond `most`.
        """
        while True:
            found = _SCALAR.match(self.buffer, self.at)
            if found is not None and found.end() < len(self.buffer):
                break
            if len(self.buffer) - self.at > most:
                problem = gettext_lazy(
                    "A string in {place} is larger than {limit} bytes. Shorten it."
                )
                raise ImportRefused(
                    "import_too_large", Sentence(problem, place=self.place, limit=most)
                )
            if not self.fill(max(CHUNK, len(self.buffer))):
                if found is None:
                    raise self.error(gettext_lazy("a value is invalid"))
                break
        start, self.at = self.at, found.end()
        return self.buffer[start : self.at]

    def elements(self, *, most: int, is_first: bool = True) -> Iterator[bytearray | None]:
        """Yield the raw values of a list whose bracket was read; None for one over `most` bytes.

        `is_first`: no value of the list has been read yet.
        """
        while not self.take(b"]"):
            if not is_first and not self.take(b","):
                raise self.error(gettext_lazy("a comma is missing"))
            is_first = False
            if self.peek() in b"]}":
                raise self.error(gettext_lazy("a value is missing"))
            yield self.value(most=most)

    def names(self) -> Iterator[str]:
        """Yield the names in an object whose bracket was read.

        The caller must read each value before the next name.
        """
        is_first = True
        while not self.take(b"}"):
            if not is_first and not self.take(b","):
                raise self.error(gettext_lazy("a comma is missing"))
            is_first = False
            if self.peek() != b'"':
                raise self.error(gettext_lazy("a property name is missing"))
            name = bounds.parse_bounded_json(self.scalar(most=bounds.CHUNK), place=self.place)
            if not self.take(b":"):
                raise self.error(gettext_lazy("a colon is missing"))
            yield str(name)

    def close(self) -> None:
        """Raise `ImportRefused` if anything follows the end of the document."""
        if self.peek():
            raise self.error(gettext_lazy("there is extra data after the end of the JSON"))


def build_search_depth_error(place: str | Promise) -> ImportRefused:
    return bounds.build_json_depth_error(place, limit=bounds.SEARCHED_DEPTH)


def parse_lazy_json(data: bytes | bytearray, *, place: str | Promise) -> Any:
    """Parse a JSON value. Entries of large lists and objects are parsed on access.

    Raises `ImportRefused`, also on access.
    """
    if len(data) <= WHOLE:
        return bounds.parse_bounded_json(data, place=place)
    return _value(data, 0, len(data), place)


def _value(data: bytes | bytearray, start: int, end: int, place: str | Promise) -> Any:
    if end - start <= LARGE:
        return bounds.parse_bounded_json(data[start:end], place=place)
    found = _SPACE.match(data, start)
    start = found.end() if found else start
    if data.startswith(b"{", start):
        return LazyObject(data, start, place)
    if data.startswith(b"[", start):
        return LazyList(data, start, place)
    return bounds.parse_bounded_json(data[start:end], place=place)


def _at(data: bytes | bytearray, place_of: int, place: str | Promise) -> Any:
    return _value(data, place_of >> SHIFT, place_of & (1 << SHIFT) - 1, place)


def build_json_entries_error(place: str | Promise) -> ImportRefused:
    """Return the error for a list or an object with too many entries."""
    problem = Sentence(
        gettext_noop("There are too many entries in {place}. Remove some of them."), place=place
    )
    return ImportRefused("import_too_many", problem)


def release_lazy_value(value: object) -> None:
    """Free the bytes of a value. Its entries cannot be read afterwards."""
    if isinstance(value, LazyObject | LazyList):
        if isinstance(value.data, bytearray):
            value.data.clear()
        value.places.clear()


class LazyObject(Mapping[str, Any]):
    """A JSON object that stores the positions of its values."""

    def __init__(self, data: bytes | bytearray, start: int, place: str | Promise) -> None:
        self.data = data
        self.start = start
        self.place = place
        # Start and end in one number, to save memory.
        self.places: dict[str, int] = {}
        at = start + 1
        while True:
            at = _spaces(data, at)
            if data.startswith(b"}", at):
                return
            found = _SCALAR.match(data, at)
            colon = _spaces(data, found.end()) if found is not None else len(data)
            if found is None or not data.startswith(b":", colon):
                raise bounds.build_invalid_json_error(
                    place, gettext_lazy("a property name is missing")
                )
            begin = _spaces(data, colon + 1)
            end = _end_of(data, begin, place)
            name = str(bounds.parse_bounded_json(found[0], place=place))
            self.places[name] = begin << SHIFT | end
            if len(self.places) > bounds.LINES * 2:
                raise build_json_entries_error(place)
            at = _after(data, end, b"}", place)

    def __getitem__(self, name: str) -> Any:
        return _at(self.data, self.places[name], self.place)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class LazyList(Sequence[Any]):
    """A JSON list that stores the positions of its values."""

    def __init__(self, data: bytes | bytearray, start: int, place: str | Promise) -> None:
        self.data = data
        self.start = start
        self.place = place
        self.places: list[int] = []
        at = start + 1
        while True:
            at = _spaces(data, at)
            if data.startswith(b"]", at):
                return
            end = _end_of(data, at, place)
            self.places.append(at << SHIFT | end)
            if len(self.places) > bounds.LINES * 2:
                raise build_json_entries_error(place)
            at = _after(data, end, b"]", place)

    def __getitem__(self, at: Any) -> Any:
        return _at(self.data, self.places[at], self.place)

    def __len__(self) -> int:
        return len(self.places)


def _spaces(data: bytes | bytearray, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _after(data: bytes | bytearray, end: int, closing: bytes, place: str | Promise) -> int:
    """Return the position of the next entry, or of the closing bracket."""
    at = _spaces(data, end)
    if data.startswith(b",", at):
        return at + 1
    if data.startswith(closing, at):
        return at
    raise bounds.build_invalid_json_error(place, gettext_lazy("a comma is missing"))


def _end_of(data: bytes | bytearray, start: int, place: str | Promise) -> int:
    """Return the end of the value that begins at a position."""
    if data[start : start + 1] not in (b"[", b"{"):
        found = _SCALAR.match(data, start)
        if found is None:
            raise bounds.build_invalid_json_error(place, gettext_lazy("a value is missing"))
        return found.end()
    depth, at = 0, start
    while (found := _BRACKET.match(data, at)) is not None and found.lastindex is not None:
        at = found.end()
        depth += 1 if found.lastindex == 1 else -1
        if depth > bounds.SEARCHED_DEPTH:
            raise build_search_depth_error(place)
        if not depth:
            return at
    raise bounds.build_invalid_json_error(place, gettext_lazy("the data ends too early"))


def parse_lazy_value(value: Any) -> Any:
    """Return a value, parsed completely if it is lazy. Raises `ImportRefused`."""
    if isinstance(value, LazyObject | LazyList):
        end = _end_of(value.data, value.start, value.place)
        return bounds.parse_bounded_json(value.data[value.start : end], place=value.place)
    return value


def is_json_list(value: object) -> bool:
    """Return True if a value is a JSON list, whether parsed or lazy."""
    return isinstance(value, list | LazyList)


def get_list_items(value: object) -> Sequence[Any]:
    """Return the values of a list; empty for any other value."""
    return value if isinstance(value, list | LazyList) else ()


def describe_object_names(value: object) -> str | Promise:
    """Return the first 8 names in an object, or the type of another value, for error messages."""
    if not isinstance(value, Mapping):
        return (
            gettext_lazy("a list")
            if is_json_list(value)
            else gettext_lazy("a value that is not an object")
        )
    names = [json.dumps(name[:40], ensure_ascii=True) for name in list(value)[:8]]
    return ", ".join(names) or gettext_lazy("an empty object")

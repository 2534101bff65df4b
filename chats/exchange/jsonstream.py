"""Reads large JSON documents piece by piece: one value of a list at a time, in bounded memory.

Values are found by their brackets, without being read as JSON; whoever gets one reads it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from chats.exchange import bounds
from chats.exchange.drafts import ImportRefused

CHUNK = 256 * 1024
# A document above the first size is read entry by entry, and so is each container in it above the
# second.
WHOLE = 2 * 1024 * 1024
LARGE = 64 * 1024
# Bits of a place in a document.
SHIFT = 40
_BRACKET = re.compile(
    rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+(?:([\[{])|([\]}])|")', re.DOTALL
)
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"\[\]{},:\s]++', re.DOTALL)
_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_SPACE = re.compile(rb"[ \t\r\n]*+")


class Reader:
    """A document that is read forward; what was read is forgotten.

    `tick` is called with each piece of the file. `offset` is the place in the file.
    """

    def __init__(
        self, file: IO[bytes], *, place: str, tick: Callable[[], None], offset: int = 0
    ) -> None:
        self.file = file
        self.place = place
        self.tick = tick
        self.buffer = bytearray()
        # Of the buffer: what was read of it, and its place in the file.
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
        """The place in the file up to which the document was read."""
        return self.base + self.at

    def fill(self, size: int = CHUNK) -> bool:
        """Read a further piece; return False at the end of the file."""
        self.tick()
        piece = self.file.read(size)
        self.buffer += piece
        return bool(piece)

    def forget(self) -> None:
        """Drop what was read."""
        del self.buffer[: self.at]
        self.base += self.at
        self.at = 0

    def peek(self) -> bytes:
        """Return the next byte that is no space; empty at the end of the file."""
        while True:
            found = _SPACE.match(self.buffer, self.at)
            self.at = found.end() if found else self.at
            if self.at < len(self.buffer):
                return bytes(self.buffer[self.at : self.at + 1])
            self.forget()
            if not self.fill():
                return b""

    def take(self, mark: bytes) -> bool:
        """Step over a mark if it stands next; return True if it did."""
        if self.peek() != mark:
            return False
        self.at += 1
        return True

    def error(self, problem: str) -> ImportRefused:
        """Return the refusal of the document."""
        return bounds.malformed(self.place, problem)

    def value(self, *, most: int) -> bytearray | None:
        """Return the bytes of the next value; None for one that has more than `most`."""
        self.forget()
        first = self.peek()
        if not first:
            raise self.error("it ends too early")
        self.forget()
        return self.scalar(most=most) if first not in b"[{" else self.container(most=most)

    def container(self, *, most: int) -> bytearray | None:
        """Return the bytes of a list or an object; None for one that has more than `most`."""
        depth, at, dropped = 0, 0, 0
        while True:
            found = _BRACKET.match(self.buffer, at)
            if found is not None and found.lastindex is not None:
                at = found.end()
                depth += 1 if found.lastindex == 1 else -1
                if depth > bounds.DEPTH:
                    raise bounds.too_deep(self.place)
                if not depth:
                    break
                continue
            at = found.end() - 1 if found is not None else len(self.buffer)
            if len(self.buffer) > most:
                # Nothing of it is kept any more.
                dropped += at + self.skip(at, is_text=found is not None)
                at = 0
            # A text that is cut is read again with as much more.
            elif not self.fill(max(CHUNK, len(self.buffer) - at)):
                raise self.error("it ends too early")
        if dropped + at > most:
            self.at = at
            return None
        # The buffer itself, so that a large value is in memory once.
        value, self.buffer = self.buffer, self.buffer[at:]
        del value[at:]
        self.base += at
        self.at = 0
        return value

    def skip(self, at: int, *, is_text: bool) -> int:
        """Drop what stands before a place, and the text that begins there; return its bytes."""
        self.drop(at)
        if is_text:
            return self.skip_text()
        if not self.fill():
            raise self.error("it ends too early")
        return 0

    def drop(self, size: int) -> None:
        """Drop so many bytes at the beginning of the buffer."""
        del self.buffer[:size]
        self.base += size

    def skip_text(self) -> int:
        """Drop the text that begins the buffer, however long it is; return its bytes."""
        dropped, at = 0, 1
        while True:
            found = _REST.match(self.buffer, at)
            at = found.end() if found else at
            if self.buffer[at : at + 1] == b'"':
                self.drop(at + 1)
                return dropped + at + 1
            # What is left is nothing, or half an escape.
            dropped += at
            self.drop(at)
            at = 0
            if not self.fill():
                raise self.error("it ends too early")

    def scalar(self, *, most: int) -> bytearray:
        """Return the bytes of a text, a number or a word; raises `ImportRefused` beyond `most`."""
        while True:
            found = _SCALAR.match(self.buffer, self.at)
            if found is not None and found.end() < len(self.buffer):
                break
            if len(self.buffer) - self.at > most:
                raise ImportRefused(
                    "import_too_large", f"A text in {self.place} has more than {most} bytes."
                )
            if not self.fill(max(CHUNK, len(self.buffer))):
                if found is None:
                    raise self.error("it has something that is no value")
                break
        start, self.at = self.at, found.end()
        return self.buffer[start : self.at]

    def elements(self, *, most: int, is_first: bool = True) -> Iterator[bytearray | None]:
        """Yield the values of a list whose bracket was taken; None for one over `most` bytes.

        `is_first`: no value of the list stands before.
        """
        while not self.take(b"]"):
            if not is_first and not self.take(b","):
                raise self.error("a comma is missing")
            is_first = False
            if self.peek() in b"]}":
                raise self.error("a value is missing")
            yield self.value(most=most)

    def names(self) -> Iterator[str]:
        """Yield the names in an object whose bracket was taken.

        Whoever asks for the next one has read the value of the one before.
        """
        is_first = True
        while not self.take(b"}"):
            if not is_first and not self.take(b","):
                raise self.error("a comma is missing")
            is_first = False
            if self.peek() != b'"':
                raise self.error("a name is missing")
            name = bounds.loaded(self.scalar(most=bounds.CHUNK), place=self.place)
            if not self.take(b":"):
                raise self.error("a colon is missing")
            yield str(name)

    def close(self) -> None:
        """Raise `ImportRefused` if something stands behind the document."""
        if self.peek():
            raise self.error("something stands behind its end")


def lazy(data: bytes | bytearray, *, place: str) -> Any:
    """Return a JSON value; large lists and objects read their entries when they are asked for.

    Raises `ImportRefused`, also later.
    """
    if len(data) <= WHOLE:
        return bounds.loaded(data, place=place)
    return _value(data, 0, len(data), place)


def _value(data: bytes | bytearray, start: int, end: int, place: str) -> Any:
    if end - start <= LARGE:
        return bounds.loaded(data[start:end], place=place)
    found = _SPACE.match(data, start)
    start = found.end() if found else start
    if data.startswith(b"{", start):
        return LazyObject(data, start, place)
    if data.startswith(b"[", start):
        return LazyList(data, start, place)
    return bounds.loaded(data[start:end], place=place)


def _at(data: bytes | bytearray, place_of: int, place: str) -> Any:
    return _value(data, place_of >> SHIFT, place_of & (1 << SHIFT) - 1, place)


def release(value: object) -> None:
    """Free the bytes of a value that was read; its entries cannot be read any more."""
    if isinstance(value, LazyObject | LazyList):
        if isinstance(value.data, bytearray):
            value.data.clear()
        value.places.clear()


class LazyObject(Mapping[str, Any]):
    """An object of JSON that keeps the places of its values."""

    def __init__(self, data: bytes | bytearray, start: int, place: str) -> None:
        self.data = data
        self.place = place
        # Begin and end in one number: there may be many.
        self.places: dict[str, int] = {}
        at = start + 1
        while True:
            at = _spaces(data, at)
            if data.startswith(b"}", at):
                return
            found = _SCALAR.match(data, at)
            colon = _spaces(data, found.end()) if found is not None else len(data)
            if found is None or not data.startswith(b":", colon):
                raise bounds.malformed(place, "a name is missing")
            begin = _spaces(data, colon + 1)
            end = _end_of(data, begin, place)
            name = str(bounds.loaded(found[0], place=place))
            self.places[name] = begin << SHIFT | end
            if len(self.places) > bounds.LINES * 2:
                raise ImportRefused("import_too_many", f"There are too many entries in {place}.")
            at = _after(data, end, b"}", place)

    def __getitem__(self, name: str) -> Any:
        return _at(self.data, self.places[name], self.place)

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


class LazyList(Sequence[Any]):
    """A list of JSON that keeps the places of its values."""

    def __init__(self, data: bytes | bytearray, start: int, place: str) -> None:
        self.data = data
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
                raise ImportRefused("import_too_many", f"There are too many entries in {place}.")
            at = _after(data, end, b"]", place)

    def __getitem__(self, at: Any) -> Any:
        return _at(self.data, self.places[at], self.place)

    def __len__(self) -> int:
        return len(self.places)


def _spaces(data: bytes | bytearray, at: int) -> int:
    found = _SPACE.match(data, at)
    return found.end() if found else at


def _after(data: bytes | bytearray, end: int, closing: bytes, place: str) -> int:
    """Return the place of the next entry, or of the bracket that closes the container."""
    at = _spaces(data, end)
    if data.startswith(b",", at):
        return at + 1
    if data.startswith(closing, at):
        return at
    raise bounds.malformed(place, "a comma is missing")


def _end_of(data: bytes | bytearray, start: int, place: str) -> int:
    """Return the end of the value that begins at a place."""
    if data[start : start + 1] not in (b"[", b"{"):
        found = _SCALAR.match(data, start)
        if found is None:
            raise bounds.malformed(place, "a value is missing")
        return found.end()
    depth, at = 0, start
    while (found := _BRACKET.match(data, at)) is not None and found.lastindex is not None:
        at = found.end()
        depth += 1 if found.lastindex == 1 else -1
        if depth > bounds.DEPTH:
            raise bounds.too_deep(place)
        if not depth:
            return at
    raise bounds.malformed(place, "it ends too early")


def is_list(value: object) -> bool:
    """Return True if a value is a list of JSON."""
    return isinstance(value, list | LazyList)


def items(value: object) -> Sequence[Any]:
    """Return the values of a list; of anything else none."""
    return value if isinstance(value, list | LazyList) else ()


def shown(value: object) -> str:
    """Return the names in an object, to tell people what a file has."""
    if not isinstance(value, Mapping):
        return "no object" if not is_list(value) else "a list"
    names = [json.dumps(name[:40], ensure_ascii=True) for name in list(value)[:8]]
    return ", ".join(names) or "an empty object"

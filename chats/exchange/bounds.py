"""Reads files within bounds: so many bytes, lines, levels and entries, whatever a file claims."""

import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from django.conf import settings

from chats.exchange.drafts import ImportRefused
from contextpolicy.engine import names

MIB = 1024 * 1024
# One line, and one message of a list.
LINE_BYTES = 16 * MIB
LINES = 200_000
DEPTH = 100
# The values of one JSON document that is read as a whole: each takes about 100 bytes of memory.
VALUES = 500_000
# A document below this size has few enough.
VALUES_FROM = 256 * 1024
# The list of chats in an archive of everything.
ACCOUNT_BYTES = 32 * MIB
WHOLE = "account.json"
# Text is packed to a tenth; far more is a bomb.
RATIO = 200
# Below this size no ratio does harm.
RATIO_FROM = MIB
CHUNK = 64 * 1024
# The bytes of a list of entries for each entry that is allowed.
ENTRY_BYTES = 1_024
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    NotImplementedError,
    ValueError,
)
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_LEVELS = re.compile(rb"[\[\]{}]")


def size_of(file: IO[bytes]) -> int:
    """Return the size of a file that can be read from its beginning."""
    size = file.seek(0, 2)
    file.seek(0)
    return size


def check_size(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for an empty file and for one over the limit."""
    size = size_of(file)
    if not size:
        raise ImportRefused("import_empty", "The file is empty.")
    if size > settings.IMPORT_FILE_BYTES:
        raise too_large(settings.IMPORT_FILE_BYTES)


def too_large(limit: int) -> ImportRefused:
    """Return the refusal of a file that has more bytes than it may."""
    return ImportRefused(
        "import_too_large",
        f"The file has more than {limit // MIB} MiB. Split it, or import fewer chats at once.",
    )


def chat_too_large() -> ImportRefused:
    """Return the refusal of a chat that has more bytes than it may."""
    limit = settings.IMPORT_CHAT_BYTES // MIB
    return ImportRefused("import_too_large", f"This chat has more than {limit} MiB in the file.")


def lines_in(file: IO[bytes], *, name: str = "") -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line of JSON; empty lines are passed over.

    Raises `ImportRefused`.
    """
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise line_too_large(number)
        if number > LINES:
            raise ImportRefused("import_too_many", f"The file has more than {LINES:,} lines.")
        if line.strip():
            yield number, loaded(line, place=f"{name}line {number}")


def line_too_large(number: int) -> ImportRefused:
    """Return the refusal of a line that has more bytes than it may."""
    problem = f"Line {number} has more than {LINE_BYTES // MIB} MiB."
    return ImportRefused("import_too_large", problem)


def loaded(data: bytes | bytearray, *, place: str) -> Any:
    """Return a JSON value of bounded depth, with texts that can be stored.

    Raises `ImportRefused`.
    """
    check_shape(data, place=place)
    try:
        text = data.decode("utf-8-sig")
        return json.loads(text, parse_constant=refuse_constant, parse_int=whole)
    except UnicodeDecodeError as error:
        raise ImportRefused("import_malformed", f"The text in {place} is no UTF-8.") from error
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise malformed(place, problem) from error


def check_shape(data: bytes | bytearray, *, place: str) -> None:
    """Raise `ImportRefused` for a document of too many levels or too many values."""
    if depth_of(data) > DEPTH:
        raise too_deep(place)
    if len(data) > VALUES_FROM:
        marks = _STRINGS.sub(b"", data)
        if sum(marks.count(mark) for mark in (b",", b"[", b"{")) > VALUES:
            problem = f"The JSON in {place} has more than {VALUES:,} values."
            raise ImportRefused("import_too_many", problem)


def too_deep(place: str) -> ImportRefused:
    """Return the refusal of JSON that has too many levels."""
    return ImportRefused("import_too_deep", f"The JSON in {place} has more than {DEPTH} levels.")


def malformed(place: str, problem: str) -> ImportRefused:
    """Return the refusal of what is no JSON."""
    sentence = f"There is no valid JSON in {place}: {problem}."
    return ImportRefused("import_malformed", sentence)


def refuse_constant(name: str) -> float:
    """Raise ValueError: NaN and Infinity are no JSON."""
    raise ValueError(f"{name} is no JSON")


def whole(digits: str) -> int:
    """Return a whole number of a bounded length. Raises ValueError."""
    if len(digits) > 30:
        raise ValueError("a number has too many digits")
    return int(digits)


def depth_of(data: bytes | bytearray) -> int:
    """Return the number of levels of a JSON text, without reading it as JSON."""
    depth = deepest = 0
    for found in _LEVELS.finditer(_STRINGS.sub(b"", data)):
        depth += 1 if found[0] in (b"[", b"{") else -1
        deepest = max(deepest, depth)
    return deepest


def opened(file: IO[bytes]) -> zipfile.ZipFile:
    """Open an archive whose list of entries was checked. Raises `ImportRefused`."""
    check_count(file)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise bad_archive("It is damaged, or no ZIP archive.") from error
    entries = archive.infolist()
    names = [entry.filename for entry in entries]
    if len(entries) > settings.IMPORT_ENTRIES:
        raise too_many_entries()
    if len(set(names)) < len(names):
        raise bad_archive("It has two entries of one name.")
    for entry in entries:
        check_entry(entry)
    if sum(entry.file_size for entry in entries) > settings.IMPORT_UNPACKED_BYTES:
        raise too_large(settings.IMPORT_UNPACKED_BYTES)
    return archive


def too_many_entries() -> ImportRefused:
    """Return the refusal of an archive that lists more than it may."""
    limit = settings.IMPORT_ENTRIES
    return ImportRefused("import_too_many", f"The archive has more than {limit:,} entries.")


def check_count(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for an archive that lists too many entries, before it is read.

    The entries themselves are counted: the numbers at the end of an archive can say anything.
    """
    for start, size in directories(file):
        if size > settings.IMPORT_ENTRIES * ENTRY_BYTES:
            raise too_many_entries()
        count, at = 0, start
        while at < start + size:
            file.seek(at)
            head = file.read(46)
            if len(head) < 46 or not head.startswith(b"PK\x01\x02"):
                break
            count += 1
            if count > settings.IMPORT_ENTRIES:
                raise too_many_entries()
            at += 46 + sum(struct.unpack("<3H", head[28:34]))
    file.seek(0)


def directories(file: IO[bytes]) -> list[tuple[int, int]]:
    """Return start and size of each list of entries that the end of an archive may stand for.

    The end record is found as `zipfile` finds it. Where a record of large archives stands before
    it, that one counts, so both lists are returned.
    """
    size = size_of(file)
    tail_at = max(size - 65_557, 0)
    file.seek(tail_at)
    tail = file.read()
    file.seek(0)
    at = len(tail) - 22
    if at < 0 or not (tail.startswith(b"PK\x05\x06", at) and tail.endswith(b"\0\0")):
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise bad_archive("It is damaged, or no ZIP archive.")
    end = tail_at + at
    listed = int.from_bytes(tail[at + 12 : at + 16], "little")
    found = [(max(end - listed, 0), listed)]
    file.seek(max(end - 20, 0))
    locator = file.read(20)
    if locator.startswith(b"PK\x06\x07"):
        for place in (int.from_bytes(locator[8:16], "little"), end - 76):
            file.seek(min(max(place, 0), size))
            record = file.read(56)
            if record.startswith(b"PK\x06\x06"):
                listed = int.from_bytes(record[40:48], "little")
                found.append((max(place - listed, 0), listed))
    file.seek(0)
    return found


def check_entry(entry: zipfile.ZipInfo) -> None:
    """Raise `ImportRefused` for a path that leads out, encrypted words, and a bomb."""
    name = entry.filename
    is_outside = name.startswith(("/", "\\")) or ":" in name or ".." in re.split(r"[/\\]", name)
    if is_outside or not names.is_sound(name) or len(name) > 300:
        raise bad_archive("The name of an entry leads out of the archive.")
    if entry.flag_bits & 1:
        raise bad_archive("It is encrypted.")
    if entry.file_size > max(entry.compress_size * RATIO, RATIO_FROM):
        raise bad_archive("An entry would be far larger than the archive.")


def read_entry(archive: zipfile.ZipFile, name: str, *, most: int) -> bytes:
    """Return the bytes of an entry, counted as they come. Raises `ImportRefused`."""
    pieces, size = [], 0
    try:
        with archive.open(name) as entry:
            while piece := entry.read(CHUNK):
                size += len(piece)
                if size > most:
                    raise too_large(most)
                pieces.append(piece)
    except UNREADABLE as error:
        raise bad_archive(f"The entry {name} is damaged.") from error
    return b"".join(pieces)


def bad_archive(problem: str) -> ImportRefused:
    """Return the refusal of an archive."""
    return ImportRefused("import_bad_archive", f"The archive cannot be read. {problem}")

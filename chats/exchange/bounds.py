"""Reads files within bounds: so many bytes, lines, levels and entries, whatever a file claims."""

import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from chats.exchange.drafts import ImportRefused

MIB = 1024 * 1024
# A file as it is sent, and all that it holds when it is unpacked.
FILE_BYTES = 32 * MIB
UNPACKED_BYTES = 128 * MIB
LINE_BYTES = 4 * MIB
LINES = 200_000
DEPTH = 100
ENTRIES = 1_000
# An archive of everything is read chat by chat: it may be longer, no chat of it may.
WHOLE = "account.json"
WHOLE_BYTES = 1024 * MIB
WHOLE_ENTRIES = 20_000
# Text is packed to a tenth; far more is a bomb.
RATIO = 200
# Below this size no ratio does harm.
RATIO_FROM = MIB
CHUNK = 64 * 1024
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    NotImplementedError,
    ValueError,
)
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
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
    if size > FILE_BYTES:
        raise too_large(FILE_BYTES)


def too_large(limit: int) -> ImportRefused:
    """Return the refusal of a file that has more bytes than it may."""
    return ImportRefused(
        "import_too_large",
        f"The file has more than {limit // MIB} MiB. Split it, or import fewer chats at once.",
    )


def lines_in(file: IO[bytes], *, name: str = "") -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line of JSON; empty lines are passed over.

    Raises `ImportRefused`.
    """
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise ImportRefused(
                "import_too_large", f"Line {number} has more than {LINE_BYTES // MIB} MiB."
            )
        if number > LINES:
            raise ImportRefused("import_too_many", f"The file has more than {LINES:,} lines.")
        if line.strip():
            yield number, loaded(line, place=f"{name}line {number}")


def loaded(data: bytes, *, place: str) -> Any:
    """Return a JSON value of bounded depth, with texts that can be stored.

    Raises `ImportRefused`.
    """
    if depth_of(data) > DEPTH:
        raise ImportRefused("import_too_deep", f"The JSON in {place} has more than {DEPTH} levels.")
    try:
        text = data.decode("utf-8-sig")
        return json.loads(text, parse_constant=refuse_constant, parse_int=whole)
    except UnicodeDecodeError as error:
        raise ImportRefused("import_malformed", f"The text in {place} is no UTF-8.") from error
    except (ValueError, RecursionError) as error:
        problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        raise ImportRefused(
            "import_malformed", f"There is no valid JSON in {place}: {problem}."
        ) from error


def refuse_constant(name: str) -> float:
    """Raise ValueError: NaN and Infinity are no JSON."""
    raise ValueError(f"{name} is no JSON")


def whole(digits: str) -> int:
    """Return a whole number of a bounded length. Raises ValueError."""
    if len(digits) > 30:
        raise ValueError("a number has too many digits")
    return int(digits)


def depth_of(data: bytes) -> int:
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
    is_whole = WHOLE in names
    if len(entries) > (WHOLE_ENTRIES if is_whole else ENTRIES):
        raise too_many_entries(WHOLE_ENTRIES if is_whole else ENTRIES)
    if len(set(names)) < len(names):
        raise bad_archive("It has two entries of one name.")
    for entry in entries:
        check_entry(entry)
    unpacked = WHOLE_BYTES if is_whole else UNPACKED_BYTES
    if sum(entry.file_size for entry in entries) > unpacked:
        raise too_large(unpacked)
    return archive


def too_many_entries(limit: int) -> ImportRefused:
    """Return the refusal of an archive that lists more than it may."""
    return ImportRefused("import_too_many", f"The archive has more than {limit:,} entries.")


def check_count(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for an archive that lists far too many entries, before it is read."""
    size = size_of(file)
    file.seek(max(size - 65_557, 0))
    tail = file.read()
    file.seek(0)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0:
        raise bad_archive("It is damaged, or no ZIP archive.")
    count = int.from_bytes(tail[at + 10 : at + 12], "little")
    listed = int.from_bytes(tail[at + 12 : at + 16], "little")
    # A list entry has 46 bytes at least; 65,535 stands for more than the old form can say.
    if count > WHOLE_ENTRIES or listed > WHOLE_ENTRIES * 1_024:
        raise too_many_entries(WHOLE_ENTRIES)


def check_entry(entry: zipfile.ZipInfo) -> None:
    """Raise `ImportRefused` for a path that leads out, encrypted words, and a bomb."""
    name = entry.filename
    is_outside = name.startswith(("/", "\\")) or ":" in name or ".." in re.split(r"[/\\]", name)
    if is_outside or not name.isprintable() or len(name) > 300:
        raise bad_archive("The name of an entry leads out of the archive.")
    if entry.flag_bits & 1:
        raise bad_archive("It is encrypted.")
    if entry.file_size > max(entry.compress_size * RATIO, RATIO_FROM):
        raise bad_archive("An entry would be far larger than the archive.")


def read_entry(archive: zipfile.ZipFile, name: str, *, most: int = UNPACKED_BYTES) -> bytes:
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

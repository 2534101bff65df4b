"""Limits for reading files: bytes, lines, levels and entries, whatever a file claims."""

import json
import lzma
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange.drafts import ImportRefused
from chats.exchange.repacked_archives import (
    SeveralAccounts,
    give_allowed_names,
    ignore_repacking,
    is_added,
    shorten_entry_name,
)
from chats.ground.sentences import Sentence
from contextpolicy.engine.strict_json import (
    AmbiguousJSON,
    has_more_values,
    load_strict_json,
    strip_json_strings,
)

MIB = 1024 * 1024
# Maximum size of a line, and of a message in a list.
LINE_BYTES = 16 * MIB
LINES = 200_000
# Maximum characters of a text in which reasoning and citations are searched. Longer texts are
# imported unchanged, because the search takes more time for each tag.
SEARCHED_TEXT = 2_000_000
# Maximum digits of an integer.
MOST_DIGITS = 30
# Maximum levels of a JSON value that is parsed, and of a document whose end is searched. Only the
# parser is recursive. The messages of a long chat can be nested (`deep_trees`).
DEPTH = 100
SEARCHED_DEPTH = 50_000
# Maximum values of a JSON document that is parsed at once; each uses about 100 bytes of memory.
VALUES = 500_000
# A smaller document cannot exceed the number of values.
VALUES_FROM = 256 * 1024
# Maximum size of the chat list in an account archive.
ACCOUNT_BYTES = 32 * MIB
WHOLE = "account.json"
# Entries of account archives that an import never opens, so most limits do not apply to them.
UNREAD = ("deleted_chats/", "skills/", "uploads/", "memory.json")
UNREAD_BYTES = tuple(name.encode() for name in UNREAD)
# Maximum number of all entries, as a multiple of the allowed number of entries that are opened.
# The list of entries is in memory.
ENTRIES_IN_ALL = 5
# Text compresses about ten to one. A much higher ratio indicates a zip bomb.
RATIO = 200
# Below this size any ratio is harmless.
RATIO_FROM = MIB
CHUNK = 64 * 1024
# Bytes of a directory per allowed entry.
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
# Positions in a file, for error messages.
LINE = gettext_lazy("line {number}")
LINE_OF = gettext_lazy("{name}, line {number}")
MESSAGE = gettext_lazy("message {number}")
MESSAGE_OF = gettext_lazy("{name}, message {number}")
CHAT_OF = gettext_lazy("{name}, chat {number}")
_LEVELS = re.compile(rb"[\[\]{}]")


def measure_file_size(file: IO[bytes]) -> int:
    """Return the size of a file in bytes, and rewind the file."""
    size = file.seek(0, 2)
    file.seek(0)
    return size


def check_size(file: IO[bytes]) -> None:
    """Raise `ImportRefused` if a file is empty or exceeds the size limit."""
    size = measure_file_size(file)
    if not size:
        raise ImportRefused("import_empty", gettext_lazy("The file is empty. Choose another file."))
    if size > settings.IMPORT_FILE_BYTES:
        raise build_file_size_error(settings.IMPORT_FILE_BYTES)


def build_file_size_error(limit: int) -> ImportRefused:
    problem = gettext_lazy(
        "The file is larger than {limit} MiB. Split it, or import fewer chats at once."
    )
    return ImportRefused("import_too_large", Sentence(problem, limit=limit // MIB))


def build_chat_size_error() -> ImportRefused:
    limit = settings.IMPORT_CHAT_BYTES // MIB
    problem = gettext_lazy(
        "This chat exceeds the limit of {limit} MiB. Remove some of its messages or images."
    )
    return ImportRefused("import_too_large", Sentence(problem, limit=limit))


def read_json_lines(file: IO[bytes], *, name: str = "") -> Iterator[tuple[int, Any]]:
    """Yield the number and value of each JSON line. Skips empty lines.

    `name`: the name of the archive entry, for error messages. Raises `ImportRefused`.
    """
    number = 0
    while line := file.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES:
            raise build_line_size_error(number)
        if number > LINES:
            problem = Sentence(
                gettext_noop("The file has more than {limit:,} lines. Split the file."), limit=LINES
            )
            raise ImportRefused("import_too_many", problem)
        if line.strip():
            yield number, parse_bounded_json(line, place=describe_line(number, name=name))


def describe_line(number: int, *, name: str = "") -> Promise:
    """Return "line 12", or "ENTRY, line 12" with a name. Translated when it is shown."""
    if name:
        return Sentence(LINE_OF, name=name, number=number)
    return Sentence(LINE, number=number)


def describe_message_position(number: int, *, name: str | Promise) -> Promise:
    """Return "ENTRY, message 12". Translated when it is shown."""
    return Sentence(MESSAGE_OF, name=name, number=number)


def build_line_size_error(number: int) -> ImportRefused:
    problem = gettext_lazy("Line {number} is larger than {limit} MiB. Shorten or remove it.")
    return ImportRefused(
        "import_too_large", Sentence(problem, number=number, limit=LINE_BYTES // MIB)
    )


def parse_bounded_json(data: bytes | bytearray, *, place: str | Promise) -> Any:
    """Parse JSON of limited depth whose strings can be stored.

    Raises `ImportRefused`.
    """
    check_shape(data, place=place)
    try:
        text = data.decode("utf-8-sig")
        return load_strict_json(text, floats=parse_storable_float, ints=parse_bounded_int)
    except UnicodeDecodeError as error:
        problem = Sentence(
            gettext_noop(
                "The text in {place} is not valid UTF-8. Save the file as UTF-8, then upload it "
                "again."
            ),
            place=place,
        )
        raise ImportRefused("import_malformed", problem) from error
    except AmbiguousJSON as error:
        problem = Sentence(gettext_noop("{name} is not valid JSON"), name=error.value)
        raise build_invalid_json_error(place, problem) from error
    except json.JSONDecodeError as error:
        raise build_invalid_json_error(place, error.msg) from error
    except (ValueError, RecursionError) as error:
        raise build_invalid_json_error(place, error.args[0] if error.args else "") from error


def check_shape(data: bytes | bytearray, *, place: str | Promise) -> None:
    """Raise `ImportRefused` for a document with too many levels or values."""
    if measure_json_depth(data) > DEPTH:
        raise build_json_depth_error(place)
    if len(data) > VALUES_FROM and has_more_values(data, limit=VALUES):
        problem = gettext_lazy("The JSON in {place} has more than {limit:,} values.")
        raise ImportRefused("import_too_many", Sentence(problem, place=place, limit=VALUES))


def build_json_depth_error(place: str | Promise, *, limit: int = DEPTH) -> ImportRefused:
    """Return the error for JSON with too many nesting levels."""
    problem = gettext_lazy("The JSON in {place} has more than {limit} levels.")
    return ImportRefused("import_too_deep", Sentence(problem, place=place, limit=limit))


def build_invalid_json_error(place: str | Promise, problem: str | Promise) -> ImportRefused:
    sentence = gettext_lazy("Invalid JSON in {place}: {problem}.")
    return ImportRefused("import_malformed", Sentence(sentence, place=place, problem=problem))


def parse_storable_float(digits: str) -> float | None:
    """Parse a number. None if it is too large for JSON in a database."""
    number = float(digits)
    return number if math.isfinite(number) else None


def parse_bounded_int(digits: str) -> int | None:
    """Parse an integer. None if it has too many digits."""
    return int(digits) if len(digits) <= MOST_DIGITS else None


def measure_json_depth(data: bytes | bytearray) -> int:
    """Return the nesting depth of a JSON text, without parsing it."""
    depth = deepest = 0
    for found in _LEVELS.finditer(strip_json_strings(data)):
        depth += 1 if found[0] in (b"[", b"{") else -1
        deepest = max(deepest, depth)
    return deepest


def open_archive(file: IO[bytes]) -> zipfile.ZipFile:
    """Open an archive after checking its directory. Raises `ImportRefused`."""
    check_entry_count(file)
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise build_archive_error(
            gettext_lazy("The file is damaged or not a ZIP archive. Export or download it again.")
        ) from error
    for entry in archive.infolist():
        check_entry_path(entry)
    hide_repacking(archive)
    opened = list_opened_entries(archive)
    if len(opened) > settings.IMPORT_ENTRIES:
        raise build_archive_entries_error()
    listed = archive.namelist()
    if len(set(listed)) < len(listed):
        raise build_archive_error(
            gettext_lazy(
                "The archive has two entries with the same name. Create the archive again."
            )
        )
    for entry in archive.infolist():
        check_entry(entry)
    give_allowed_names(archive)
    for entry in opened:
        check_entry_ratio(entry)
    if sum(entry.file_size for entry in opened) > settings.IMPORT_UNPACKED_BYTES:
        raise build_file_size_error(settings.IMPORT_UNPACKED_BYTES)
    return archive


def hide_repacking(archive: zipfile.ZipFile) -> None:
    """Ignore the entries that a file manager added to an archive. Raises `ImportRefused`."""
    try:
        ignore_repacking(archive)
    except SeveralAccounts:
        raise build_archive_error(
            gettext_lazy("It contains several archives of your data. Import each one separately.")
        ) from None


def list_opened_entries(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the entries that an import may open: all but those in `UNREAD` of account archives."""
    entries = archive.infolist()
    if WHOLE not in archive.namelist():
        return entries
    return [entry for entry in entries if not entry.filename.startswith(UNREAD)]


def build_archive_entries_error() -> ImportRefused:
    limit = settings.IMPORT_ENTRIES
    problem = gettext_lazy("The archive has more than {limit:,} entries. Split the archive.")
    return ImportRefused("import_too_many", Sentence(problem, limit=limit))


def check_entry_count(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for an archive with too many entries, before opening it.

    Counts the entries themselves, because the total at the end of an archive can be forged. Entries
    in `UNREAD` have a separate limit.
    """
    for start, size in find_archive_directories(file):
        if size > settings.IMPORT_ENTRIES * ENTRY_BYTES:
            raise build_archive_entries_error()
        opened, count, at = 0, 0, start
        while at < start + size:
            file.seek(at)
            head = file.read(46)
            if len(head) < 46 or not head.startswith(b"PK\x01\x02"):
                break
            lengths = struct.unpack("<3H", head[28:34])
            count += 1
            opened += not file.read(lengths[0]).startswith(UNREAD_BYTES)
            limit = settings.IMPORT_ENTRIES
            if opened > limit or count > limit * ENTRIES_IN_ALL:
                raise build_archive_entries_error()
            at += 46 + sum(lengths)
    file.seek(0)


def find_archive_directories(file: IO[bytes]) -> list[tuple[int, int]]:
    """Return start and size of each directory to which the end of an archive may refer.

    The end record is located as in `zipfile`. If a ZIP64 record precedes it, either may apply, so
    both directories are returned.
    """
    size = measure_file_size(file)
    tail_at = max(size - 65_557, 0)
    file.seek(tail_at)
    tail = file.read()
    file.seek(0)
    at = len(tail) - 22
    if at < 0 or not (tail.startswith(b"PK\x05\x06", at) and tail.endswith(b"\0\0")):
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise build_archive_error(
            gettext_lazy("The file is damaged or not a ZIP archive. Export or download it again.")
        )
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


def check_entry_path(entry: zipfile.ZipInfo) -> None:
    """Raise `ImportRefused` for a path that leads outside the archive.

    Entries that are ignored are never opened, so their paths do not matter.
    """
    name = entry.filename
    if is_added(name):
        return
    # A colon elsewhere is harmless: names of exported files can contain a time.
    is_absolute = name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name)
    if is_absolute or ".." in re.split(r"[/\\]", name):
        problem = gettext_noop(
            "The path of the entry {name} leads outside the archive. Create the archive again "
            "without this entry."
        )
        raise build_archive_error(Sentence(problem, name=shorten_entry_name(name)))


def check_entry(entry: zipfile.ZipInfo) -> None:
    """Raise `ImportRefused` for an encrypted entry."""
    if entry.flag_bits & 1:
        raise build_archive_error(
            gettext_lazy("The archive is encrypted. Upload an unencrypted archive.")
        )


def check_entry_ratio(entry: zipfile.ZipInfo) -> None:
    """Raise `ImportRefused` for a zip bomb."""
    if entry.file_size > max(entry.compress_size * RATIO, RATIO_FROM):
        raise build_archive_error(
            gettext_lazy(
                "An entry expands to more than 200 times its compressed size. Create the "
                "archive again without this entry."
            )
        )


def read_entry(archive: zipfile.ZipFile, name: str, *, most: int) -> bytes:
    """Return the bytes of an entry, limited while reading. Raises `ImportRefused`."""
    pieces, size = [], 0
    try:
        with archive.open(name) as entry:
            while piece := entry.read(CHUNK):
                size += len(piece)
                if size > most:
                    raise build_file_size_error(most)
                pieces.append(piece)
    except UNREADABLE as error:
        raise build_damaged_entry_error(name) from error
    return b"".join(pieces)


def build_damaged_entry_error(name: str) -> ImportRefused:
    return build_archive_error(
        Sentence(gettext_noop("The entry {name} is damaged. Create the archive again."), name=name)
    )


def build_archive_error(problem: str | Promise) -> ImportRefused:
    sentence = gettext_lazy("The archive cannot be read. {problem}")
    return ImportRefused("import_bad_archive", Sentence(sentence, problem=problem))

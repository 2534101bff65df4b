"""Detects the format of a file by its content, and reads its chats one by one."""

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import IO, Any, cast

from django.conf import settings
from django.utils.translation import gettext_lazy

from chats.exchange import aider, bounds, everything, foreign, reading
from chats.exchange.archive_assets import ArchiveAssets
from chats.exchange.document_parts import parse_session_chats, read_document_part
from chats.exchange.drafts import ImportRefused, NotTaken
from chats.exchange.import_sources import (
    BUNDLE,
    PARSED,
    PARSER_FAULTS,
    UI,
    ArchivePart,
    Draft,
    FileRead,
    Open,
    Source,
    Tick,
    Work,
    build_fault,
    build_parsed_part,
    build_sequential_part,
    sanitise_drafts,
)
from chats.exchange.repacked_archives import CHATS_NAME
from chats.ground.sentences import Sentence

EVERYTHING = "everything"


# Names of archive entries that are complete files.
READABLE = re.compile(r".*\.(?:json|jsonl|ndjson|aider\.chat\.history\.md)", re.DOTALL)


def check_import_file(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for errors that are visible without reading the messages."""
    bounds.check_size(file)
    if is_archive(file):
        bounds.open_archive(file)
        file.seek(0)


def is_archive(file: IO[bytes]) -> bool:
    """Return True if a file begins like a ZIP archive. Rewinds the file."""
    head = file.read(4)
    file.seek(0)
    return head.startswith(b"PK")


def ignore_tick() -> None:
    """Do nothing. The default callback between pieces of a file."""


def read_import_file(
    file: IO[bytes],
    *,
    kept: ExitStack,
    tick: Tick = ignore_tick,
    outline: dict[str, Any] | None = None,
) -> Source:
    """Open a file for import and detect its format. Raises `ImportRefused`.

    The whole file is scanned first, so that a damaged file is refused before any chat is imported.
    `tick` is called repeatedly. `kept` closes open files. `outline` receives the result of the
    scan; pass that of an earlier task to skip the scan.
    """
    bounds.check_size(file)
    work = Work(tick, kept, outline if outline is not None else {})
    if is_archive(file):
        return read_import_archive(file, work=work)
    size = bounds.measure_file_size(file)

    def again() -> IO[bytes]:
        file.seek(0)
        return file

    return join_archive_parts([read_archive_part(again, size=size, name="", work=work)])


def read_import_archive(file: IO[bytes], *, work: Work) -> Source:
    """Return the content of an archive. Raises `ImportRefused`."""
    archive = bounds.open_archive(file)
    if reading.is_bundle(archive):
        return build_single_source(BUNDLE, reading.read_bundle(archive, tick=work.tick))
    if everything.is_account_archive(archive):
        chats = everything.read_chat_list(archive)

        def behind(place: int, _mark: tuple[int, int]) -> Iterable[FileRead]:
            drafts = everything.read_drafts_after(archive, chats, place=place, tick=work.tick)
            return (FileRead(draft, UI) for draft in drafts)

        return Source(EVERYTHING, len(chats), behind)
    return read_product_archive(archive, work=work)


def read_product_archive(archive: zipfile.ZipFile, *, work: Work) -> Source:
    """Return the chats in the archive of another product. Raises `ImportRefused`."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    named = [e for e in entries if CHATS_NAME.fullmatch(e.filename.rpartition("/")[2])]
    readable = named or [e for e in entries if READABLE.fullmatch(e.filename)]
    parts: list[ArchivePart] = []
    strange: list[NotTaken] = []
    for entry in sorted(readable, key=lambda entry: entry.filename):
        name = entry.filename
        try:
            parts.append(
                read_archive_part(
                    build_entry_opener(archive, name), size=entry.file_size, name=name, work=work
                )
            )
        except ImportRefused as refusal:
            if named:
                raise
            strange.append(NotTaken(name, refusal.code, refusal.full))
        except PARSER_FAULTS as error:
            if named:
                raise
            strange.append(build_fault(error, title=name, what="an entry of an archive"))
    if not parts and any(e.filename.endswith("MyActivity.html") for e in entries):
        problem = gettext_lazy(
            "The activities are stored as HTML. In Takeout, choose JSON for My Activity, and "
            "export them again."
        )
        raise ImportRefused("import_unknown_form", problem)
    if not parts:
        sentence = gettext_lazy(
            "The archive contains none of the known files, such as `history.jsonl`, "
            "`account.json` or `conversations.json`. {known}"
        )
        raise ImportRefused("import_unknown_form", Sentence(sentence, known=foreign.KNOWN))
    source = join_archive_parts(parts, strange=strange)
    assets = ArchiveAssets(archive, tick=work.tick)
    return replace(source, behind=lambda *place: assets.attach_all(source.behind(*place)))


def build_entry_opener(archive: zipfile.ZipFile, name: str) -> Open:
    """Return a function that opens an archive entry. It refuses damaged entries."""
    return lambda: cast(IO[bytes], ArchiveEntry(archive, name))


class ArchiveEntry:
    """An archive entry as a forward-only file. Raises `ImportRefused` if it is damaged."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.name = name
        self.file = self.sound(archive.open, name)

    def sound(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return the result of a read call. Raises `ImportRefused` for a damaged entry."""
        try:
            return call(*given)
        except bounds.UNREADABLE as error:
            raise bounds.build_damaged_entry_error(self.name) from error

    def read(self, size: int) -> bytes:
        return cast(bytes, self.sound(self.file.read, size))

    def readline(self, size: int) -> bytes:
        """Return the next line, at most `size` bytes of it."""
        return cast(bytes, self.sound(self.file.readline, size))

    def seek(self, place: int) -> int:
        return cast(int, self.sound(self.file.seek, place))


def read_archive_part(again: Open, *, size: int, name: str, work: Work) -> ArchivePart:
    """Return the chats of one document. Raises `ImportRefused`.

    Entries of an archive are parsed again when their chats are needed, so that only one of them is
    in memory. `name` is empty outside of archives.
    """
    read = partial(parse_archive_part, again, size=size, name=name, work=work)
    known = work.outline.get(name)
    if known is None or known[0] != PARSED:
        part = read()
        if not name or not part.is_in_memory:
            return part
        known = work.outline[name] = [PARSED, part.total, part.form]
    _, total, form = known
    return ArchivePart(form, total, lambda place, offset: read().chats(place, offset))


def parse_archive_part(again: Open, *, size: int, name: str, work: Work) -> ArchivePart:
    """Detect the format of a document and parse it. Raises `ImportRefused`."""
    if aider.is_aider_history(again()):
        total = sum(1 for _ in aider.read_aider_chats(again()))
        return build_sequential_part(
            "aider", total, lambda: sanitise_drafts(aider.read_aider_chats(again()), tick=work.tick)
        )
    if foreign.is_json_document(again()):
        return read_document_part(again, size=size, name=name, work=work)
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    first = foreign.read_first_line(again())
    if form := foreign.detect_session_format(first):
        lines = (v for _, v in bounds.read_json_lines(again(), name=name))
        drafts = parse_session_chats(form, lines, tick=work.tick)
        return build_parsed_part(form, drafts)
    return build_parsed_part(UI, [reading.read_lines(again(), tick=work.tick)])


def join_archive_parts(parts: Sequence[ArchivePart], *, strange: Sequence[NotTaken] = ()) -> Source:
    """Combine the chats of several documents as if they were in one file."""
    form = parts[0].form
    total = sum(part.total for part in parts) + len(strange)

    def behind(place: int, mark: tuple[int, int]) -> Iterator[FileRead]:
        number, offset = mark
        before = sum(part.total for part in parts[:number])
        for index, part in enumerate(parts[number:], start=number):
            done = min(max(place - before, 0), part.total)
            if done < part.total:
                for draft, end in part.chats(done, offset if index == number else 0):
                    yield FileRead(draft, part.form, (index, end))
            before += part.total
        for missed in strange[max(place - before, 0) :]:
            yield FileRead(missed, form, (len(parts), 0))

    return Source(form, total, behind)


def build_single_source(form: str, draft: Draft) -> Source:
    """Return a source with one chat, for formats with one chat per file."""
    return join_archive_parts([build_parsed_part(form, [draft])])

"""Detects the format of a file by its content, and reads its chats one by one."""

import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from typing import IO, Any, cast

from django.conf import settings
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import aider, assistants, bounds, everything, foreign, jsonstream, reading
from chats.exchange.draft_builder import MOST_LOSSES, Unreadable
from chats.exchange.draft_messages import clean_draft
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken
from chats.ground.sentences import Sentence

UI = "ui"
BUNDLE = "bundle"
EVERYTHING = "everything"
# Formats with one chat; an error of the chat is then an error of the file.
OF_ONE_CHAT = (UI, BUNDLE)
MOST_CHATS = 20_000
# Names of archive entries from products, and of entries that are complete files.
CHATS_NAME = re.compile(r"(?:conversations(?:-\d{1,6})?|prod-grok-backend)\.json")
READABLE = re.compile(r".*\.(?:json|jsonl|ndjson|aider\.chat\.history\.md)", re.DOTALL)
# Name of the chat list in an object that is not a chat.
WRAPPED = "conversations"

Draft = ChatDraft | NotTaken
Tick = Callable[[], None]
Open = Callable[[], IO[bytes]]
# The place of an error in a file outside an archive.
THE_FILE = gettext_lazy("the file")


@dataclass(frozen=True, slots=True)
class Work:
    """A callback for each piece that is read, and the files to close at the end."""

    tick: Tick
    kept: ExitStack
    # Start, length and product of each chat list that was scanned before.
    outline: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileRead:
    """A chat in a file, and the position after it: the document, and the offset in it."""

    draft: Draft
    mark: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a file: its format, the number of its chats, and an iterator.

    `behind(place, mark)` yields the chats after `place`; with a mark, earlier ones are not read
    again. `kept_as` is the format by which imported chats are later recognised.
    """

    form: str
    total: int
    behind: Callable[[int, tuple[int, int]], Iterable[FileRead]]
    kept_as: str


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """A document with chats: a file, or an entry of an archive.

    `chats(place, offset)` yields the chats after a position, each with the offset after it.
    """

    form: str
    total: int
    chats: Callable[[int, int], Iterator[tuple[Draft, int]]]


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


def build_chat_limit_error() -> NotTaken:
    problem = gettext_noop(
        "The file has more than {limit:,} chats. Only the first {limit:,} were imported."
    )
    return NotTaken("", "import_too_many", Sentence(problem, limit=MOST_CHATS))


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
        return build_single_source(BUNDLE, reading.read_bundle(archive))
    if everything.is_account_archive(archive):
        chats = everything.read_chat_list(archive)

        def behind(place: int, _mark: tuple[int, int]) -> Iterable[FileRead]:
            return map(FileRead, everything.read_drafts_after(archive, chats, place=place))

        return Source(EVERYTHING, len(chats), behind, kept_as=UI)
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
    if not parts and any(e.filename.endswith("MyActivity.html") for e in entries):
        problem = gettext_lazy(
            "The activities are stored as HTML. In Takeout, choose JSON for My Activity, and "
            "export them again."
        )
        raise ImportRefused("import_unknown_form", problem)
    if not parts:
        sentence = gettext_lazy(
            "The archive has no file in a known format, such as `history.jsonl`, `account.json` "
            "or `conversations.json`. {known}"
        )
        raise ImportRefused("import_unknown_form", Sentence(sentence, known=foreign.KNOWN))
    return join_archive_parts(parts, strange=strange)


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
    """Return the chats of one document. Raises `ImportRefused`."""
    if aider.is_aider_history(again()):
        total = sum(1 for _ in aider.read_aider_chats(again()))
        return build_sequential_part(
            "aider", total, lambda: sanitise_drafts(aider.read_aider_chats(again()))
        )
    if foreign.is_json_document(again()):
        return read_document_part(again, size=size, name=name, work=work)
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    first = foreign.read_first_line(again())
    if form := foreign.detect_session_format(first):
        lines = (v for _, v in bounds.read_json_lines(again(), name=name))
        drafts = parse_session_chats(form, lines)
        return build_sequential_part(form, len(drafts), lambda: iter(drafts))
    draft = reading.read_lines(again())
    return build_sequential_part(UI, 1, lambda: iter([draft]))


def parse_session_chats(form: str, values: Iterable[Any]) -> list[Draft]:
    """Return the chats of a session. Values other than objects count as lost messages.

    Raises `ImportRefused`.
    """
    strays = 0

    def objects() -> Iterator[Mapping[str, Any]]:
        nonlocal strays
        for value in values:
            if isinstance(value, dict):
                yield value
            else:
                strays += 1

    first, *rest = sanitise_drafts(foreign.parse_session(form, objects()))
    if strays and isinstance(first, ChatDraft):
        losses = (*first.losses, *["message_dropped"] * min(strays, MOST_LOSSES))
        counted, lost = first.counted + strays, first.lost + strays
        first = replace(first, losses=losses, counted=counted, lost=lost)
    return [first, *rest]


def build_sequential_part(
    form: str, total: int, drafts: Callable[[], Iterator[Draft]]
) -> ArchivePart:
    """Return a part whose chats are always read from its beginning."""
    return ArchivePart(
        form, total, lambda place, _: ((one, 0) for one in islice(drafts(), place, None))
    )


def read_document_part(again: Open, *, size: int, name: str, work: Work) -> ArchivePart:
    """Return the chats of a JSON document. Raises `ImportRefused`.

    `name`: the name of the archive entry, for error messages.
    """
    place = name or THE_FILE
    key = name or "the file"
    if key in work.outline:
        start, total, product = work.outline[key]
        return build_list_part(product, again, start, total=total, place=place, work=work)
    found_list = locate_json_list(again, place=place, work=work)
    if found_list is None:
        return read_object_part(again, size=size, place=place)
    start, total = found_list
    value, product = inspect_list_head(again, start, place=place, work=work)
    form = foreign.detect_list_format(value)
    if form == "gemini":
        return read_gemini_part(again, start, place=place, work=work)
    if form:
        return read_messages_part(form, again, start, size=size, place=place, work=work)
    if not product:
        what = Sentence(
            gettext_noop("a list of {names}"), names=jsonstream.describe_object_names(value)
        )
        raise foreign.build_unknown_format_error(what)
    work.outline[key] = [start, total, product]
    return build_list_part(product, again, start, total=total, place=place, work=work)


def build_list_part(
    product: str, again: Open, start: int, *, total: int, place: str | Promise, work: Work
) -> ArchivePart:
    def chats(behind: int, offset: int) -> Iterator[tuple[Draft, int]]:
        found = read_list_values(
            again, offset or start, place=place, work=work, is_first=not offset
        )
        skipped = 0 if offset else behind
        for number, (data, end) in enumerate(islice(found, skipped, None), start=behind + 1):
            yield parse_product_chat(product, data, number=number, place=place), end

    return ArchivePart(product, total, chats)


def inspect_list_head(
    again: Open, start: int, *, place: str | Promise, work: Work
) -> tuple[Any, str]:
    """Return the first value of a list, and the application that exported its first known chat."""
    first, refused = None, None
    head = islice(read_list_values(again, start, place=place, work=work), foreign.LOOKED_AT)
    for number, (data, _) in enumerate(head):
        try:
            value = jsonstream.parse_lazy_json(data, place=place) if data is not None else None
            product = foreign.detect_product(value)
        except ImportRefused as refusal:
            refused = refused or refusal
            continue
        first = first if number else value
        if product or foreign.detect_list_format(first):
            return first, product
    if refused is not None:
        raise refused
    return first, ""


def parse_product_chat(
    product: str, data: bytearray | None, *, number: int, place: str | Promise
) -> Draft:
    title = f"Chat {number}"
    if data is None:
        refusal = bounds.build_chat_size_error()
        return NotTaken(title, refusal.code, refusal.full)
    try:
        chat = jsonstream.parse_lazy_json(
            data, place=Sentence(bounds.CHAT_OF, name=place, number=number)
        )
        if foreign.detect_product(chat) != product:
            found: foreign.Found = foreign.build_format_mismatch(chat, place=number, form=product)
        else:
            found = foreign.READERS[product](chat)
        (draft,) = sanitise_drafts([found])
    except ImportRefused as refusal:
        return NotTaken(title, refusal.code, refusal.full)
    return draft


def locate_json_list(again: Open, *, place: str | Promise, work: Work) -> tuple[int, int] | None:
    """Return the position of the first value in a document's list, and the number of values.

    None: the document is a single chat. Concatenated objects count as a list. Raises
    `ImportRefused` for an incomplete document.
    """
    reader = jsonstream.Reader(again(), place=place, tick=work.tick)
    if reader.take(b"["):
        start = reader.offset
        total = sum(1 for _ in reader.elements(most=0))
        reader.close()
        return start, total
    begin = reader.offset
    if not reader.take(b"{"):
        raise reader.error("it is neither a list nor an object")
    for name in reader.names():
        if name == WRAPPED and reader.peek() == b"[":
            reader.take(b"[")
            start = reader.offset
            return start, sum(1 for _ in reader.elements(most=0))
        reader.value(most=0)
    if reader.peek():
        total = 1
        while reader.peek():
            reader.value(most=0)
            total += 1
        return -begin - 1, total
    reader.close()
    return None


def read_list_values(
    again: Open,
    start: int,
    *,
    place: str | Promise,
    work: Work,
    is_first: bool = True,
) -> Iterator[tuple[bytearray | None, int]]:
    """Yield the values of a list, each with the position after it; None for one that is too large.

    A negative `start` means concatenated objects.
    """
    most = settings.IMPORT_CHAT_BYTES
    if start < 0:
        reader = jsonstream.Reader(again(), place=place, tick=work.tick, offset=-start - 1)
        while reader.peek():
            data = reader.value(most=most)
            yield data, -reader.offset - 1
        return
    reader = jsonstream.Reader(again(), place=place, tick=work.tick, offset=start)
    for data in reader.elements(most=most, is_first=is_first):
        yield data, reader.offset


def read_object_part(again: Open, *, size: int, place: str | Promise) -> ArchivePart:
    """Return the chat in a document. Raises `ImportRefused`."""
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    document = jsonstream.parse_lazy_json(again().read(size + 1), place=place)
    if product := foreign.detect_product(document):
        draft = next(iter(sanitise_drafts([foreign.READERS[product](document)])))
        return build_sequential_part(product, 1, lambda: iter([draft]))
    listed = foreign.find_body_messages(document)
    if listed is None:
        names = jsonstream.describe_object_names(document)
        raise foreign.build_unknown_format_error(
            Sentence(gettext_noop("an object with {names}"), names=names)
        )
    values = cast(Sequence[Any], listed)
    form = foreign.detect_list_format(values[0])
    if form == UI:
        ui = reading.read_values(values, chat_id=document.get("id"))
        return build_sequential_part(UI, 1, lambda: iter([ui]))
    drafts = parse_session_chats(form, values)
    return build_sequential_part(form, len(drafts), lambda: iter(drafts))


def read_messages_part(
    form: str, again: Open, start: int, *, size: int, place: str | Promise, work: Work
) -> ArchivePart:
    """Return the chat in a list of messages. Raises `ImportRefused`."""
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    values = parse_list_messages(again, start, place=place, work=work)
    if form == UI:
        draft: Draft = reading.read_values(values)
    else:
        (draft,) = parse_session_chats(form, values)
    return build_sequential_part(form, 1, lambda: iter([draft]))


def parse_list_messages(
    again: Open, start: int, *, place: str | Promise, work: Work
) -> Iterator[Any]:
    """Yield the messages of a list. Raises `ImportRefused`, also for too many."""
    for number, (data, _) in enumerate(
        read_list_values(again, start, place=place, work=work), start=1
    ):
        if number > bounds.LINES:
            problem = gettext_lazy("The list has more than {limit:,} messages.")
            raise ImportRefused("import_too_many", Sentence(problem, limit=bounds.LINES))
        yield bounds.parse_bounded_json(
            data or b"null", place=bounds.describe_message_position(number, name=place)
        )


def read_gemini_part(again: Open, start: int, *, place: str | Promise, work: Work) -> ArchivePart:
    """Return the conversations in a list of activities. Raises `ImportRefused`."""
    held = work.kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # closed with the work
    groups: dict[str, list[tuple[int, int]]] = {}
    too_large: list[NotTaken] = []
    at = 0
    for number, (data, _) in enumerate(
        read_list_values(again, start, place=place, work=work), start=1
    ):
        if data is None:
            refusal = bounds.build_chat_size_error()
            too_large.append(NotTaken(f"Activity {number}", refusal.code, refusal.full))
            continue
        value = bounds.parse_bounded_json(data, place=place)
        if assistants.is_gemini_activity(value):
            held.write(data)
            groups.setdefault(assistants.get_gemini_conversation(value), []).append((at, len(data)))
            at += len(data)
    named = sorted(groups)

    def chats(behind: int, _offset: int) -> Iterator[tuple[Draft, int]]:
        for name in named[behind:]:
            activities = []
            for begin, length in groups[name]:
                held.seek(begin)
                activities.append(bounds.parse_bounded_json(held.read(length), place=place))
            yield next(iter(sanitise_drafts([assistants.parse_gemini_activities(activities)]))), 0
        yield from ((missed, 0) for missed in too_large[max(behind - len(named), 0) :])

    return ArchivePart("gemini", len(named) + len(too_large), chats)


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
                    yield FileRead(draft, (index, end))
            before += part.total
        for missed in strange[max(place - before, 0) :]:
            yield FileRead(missed, (len(parts), 0))

    return Source(form, total, behind, kept_as=form)


def build_single_source(form: str, draft: Draft) -> Source:
    """Return a source with one chat, for formats with one chat per file."""
    return join_archive_parts([build_sequential_part(form, 1, lambda: iter([draft]))])


def sanitise_drafts(drafts: Iterable[ChatDraft | Unreadable]) -> Iterator[Draft]:
    """Yield drafts of another product in a form that can be stored."""
    for draft in drafts:
        if isinstance(draft, Unreadable):
            yield NotTaken(draft.title, "import_malformed", draft.reason)
        else:
            yield clean_draft(draft)

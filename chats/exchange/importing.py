"""Tells the form of a file by its content, and reads the chats in it one by one."""

import re
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any, cast

from django.conf import settings

from chats.exchange import aider, assistants, bounds, everything, foreign, jsonstream, reading
from chats.exchange.building import Unreadable
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken
from chats.exchange.storing import without_unstorable

UI = "ui"
BUNDLE = "bundle"
EVERYTHING = "everything"
# A file of these is one chat; what keeps that out is said of the file.
OF_ONE_CHAT = (UI, BUNDLE)
MOST_CHATS = 20_000
# The entries of an archive that a product sends, and those that may each be a file of their own.
CHATS_NAME = re.compile(r"(?:conversations(?:-\d{1,6})?|prod-grok-backend)\.json")
READABLE = re.compile(r".*\.(?:json|jsonl|ndjson|aider\.chat\.history\.md)", re.DOTALL)
# The list of chats in an object that is not a chat itself.
WRAPPED = "conversations"

Draft = ChatDraft | NotTaken
Tick = Callable[[], None]
Open = Callable[[], IO[bytes]]


@dataclass(frozen=True, slots=True)
class Work:
    """A call between two pieces, and the files that stay open until its end."""

    tick: Tick
    kept: ExitStack
    # Begin, length and product of each list of chats that was looked through before.
    outline: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FileRead:
    """A chat of a file, and the mark behind it: its part of the file, and the place there."""

    draft: Draft
    mark: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a file: its form, the number of its chats, and these, read one by one.

    `behind(place, mark)` are the chats after so many; a mark spares reading those before once more.
    `kept_as` is the form that chats are known by when they come again.
    """

    form: str
    total: int
    behind: Callable[[int, tuple[int, int]], Iterable[FileRead]]
    kept_as: str


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """A document with chats: a file, or an entry of an archive.

    `chats(place, offset)` are the chats behind a place, each with the offset behind it.
    """

    form: str
    total: int
    chats: Callable[[int, int], Iterator[tuple[Draft, int]]]


def check_at_once(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for what is wrong with a file before its words are read."""
    bounds.check_size(file)
    if is_archive(file):
        bounds.opened(file)
        file.seek(0)


def is_archive(file: IO[bytes]) -> bool:
    """Return True if a file is an archive."""
    head = file.read(4)
    file.seek(0)
    return head.startswith(b"PK")


def too_many() -> NotTaken:
    """Return what is told of the chats of a file beyond the limit."""
    problem = f"The file has more than {MOST_CHATS:,} chats. The first of them are here."
    return NotTaken("", "import_too_many", problem)


def no_tick() -> None:
    """Do nothing between two pieces of a file."""


def read(
    file: IO[bytes],
    *,
    kept: ExitStack,
    tick: Tick = no_tick,
    outline: dict[str, Any] | None = None,
) -> Source:
    """Read a file, whose form is told by its content. Raises `ImportRefused`.

    The whole file is looked through once, so that a damaged one is refused before any of it is
    taken. `tick` is called again and again meanwhile. `kept` closes what stays open. `outline` is
    filled; with that of an earlier task, the file is not looked through again.
    """
    bounds.check_size(file)
    work = Work(tick, kept, outline if outline is not None else {})
    if is_archive(file):
        return in_archive(file, work=work)
    size = bounds.size_of(file)

    def again() -> IO[bytes]:
        file.seek(0)
        return file

    return joined([part_of(again, size=size, name="", work=work)])


def in_archive(file: IO[bytes], *, work: Work) -> Source:
    """Return what an archive holds. Raises `ImportRefused`."""
    archive = bounds.opened(file)
    if reading.is_bundle(archive):
        return single(BUNDLE, reading.read_bundle(archive))
    if everything.is_whole(archive):
        chats = everything.listed_in(archive)

        def behind(place: int, _mark: tuple[int, int]) -> Iterable[FileRead]:
            return map(FileRead, everything.drafts_behind(archive, chats, place=place))

        return Source(EVERYTHING, len(chats), behind, kept_as=UI)
    return of_entries(archive, work=work)


def of_entries(archive: zipfile.ZipFile, *, work: Work) -> Source:
    """Return the chats in the entries of an archive of another product. Raises `ImportRefused`."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    named = [e for e in entries if CHATS_NAME.fullmatch(e.filename.rpartition("/")[2])]
    readable = named or [e for e in entries if READABLE.fullmatch(e.filename)]
    parts: list[ArchivePart] = []
    strange: list[NotTaken] = []
    for entry in sorted(readable, key=lambda entry: entry.filename):
        name = entry.filename
        try:
            parts.append(part_of(opener(archive, name), size=entry.file_size, name=name, work=work))
        except ImportRefused as refusal:
            if named:
                raise
            strange.append(NotTaken(name, refusal.code, refusal.sentence))
    if not parts and any(e.filename.endswith("MyActivity.html") for e in entries):
        problem = "Google wrote the activities as HTML. Choose JSON for My Activity in Takeout."
        raise ImportRefused("import_unknown_form", problem)
    if not parts:
        raise ImportRefused(
            "import_unknown_form",
            "No file in the archive has a known form: it holds neither `history.jsonl` nor"
            f" `account.json` nor `conversations.json`. {foreign.KNOWN}",
        )
    return joined(parts, strange=strange)


def opener(archive: zipfile.ZipFile, name: str) -> Open:
    """Return what opens an entry of an archive. What is damaged in it is refused."""
    return lambda: cast(IO[bytes], ArchiveEntry(archive, name))


class ArchiveEntry:
    """An entry of an archive as a file that is read forward; a damaged one is refused."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.name = name
        self.file = self.sound(archive.open, name)

    def sound(self, call: Callable[..., Any], *given: Any) -> Any:
        """Return what a call returns. Raises `ImportRefused` for a damaged entry."""
        try:
            return call(*given)
        except bounds.UNREADABLE as error:
            raise bounds.bad_archive(f"The entry {self.name} is damaged.") from error

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        return cast(bytes, self.sound(self.file.read, size))

    def readline(self, size: int) -> bytes:
        """Return the next line, or so many bytes of it."""
        return cast(bytes, self.sound(self.file.readline, size))

    def seek(self, place: int) -> int:
        """Go to a place."""
        return cast(int, self.sound(self.file.seek, place))


def part_of(again: Open, *, size: int, name: str, work: Work) -> ArchivePart:
    """Return the chats of one document. Raises `ImportRefused`."""
    if aider.is_history(again()):
        total = sum(1 for _ in aider.chats_in(again()))
        return in_turn("aider", total, lambda: taken(aider.chats_in(again())))
    if foreign.is_one_document(again()):
        return in_document(again, size=size, place=name or "the file", work=work)
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.chat_too_large()
    first = foreign.first_line(again())
    if form := foreign.session_form(first):
        lines = (v for _, v in bounds.lines_in(again(), name=name and f"{name}, "))
        values = (value for value in lines if isinstance(value, dict))
        drafts = list(taken(foreign.session(form, values)))
        return in_turn(form, len(drafts), lambda: iter(drafts))
    draft = reading.read_lines(again())
    return in_turn(UI, 1, lambda: iter([draft]))


def in_turn(form: str, total: int, drafts: Callable[[], Iterator[Draft]]) -> ArchivePart:
    """Return a part whose chats are read from its beginning."""
    return ArchivePart(
        form, total, lambda place, _: ((one, 0) for one in islice(drafts(), place, None))
    )


def in_document(again: Open, *, size: int, place: str, work: Work) -> ArchivePart:
    """Return the chats of a JSON document. Raises `ImportRefused`."""
    if place in work.outline:
        start, total, product = work.outline[place]
        return of_chats(product, again, start, total=total, place=place, work=work)
    found_list = list_in(again, place=place, work=work)
    if found_list is None:
        return in_object(again, size=size, place=place)
    start, total = found_list
    value, product = head_of(again, start, place=place, work=work)
    form = foreign.list_form(value)
    if form == "gemini":
        return of_gemini(again, start, place=place, work=work)
    if form:
        return of_messages(form, again, start, size=size, place=place, work=work)
    if not product:
        raise foreign.unknown(f"a list of {jsonstream.shown(value)}")
    work.outline[place] = [start, total, product]
    return of_chats(product, again, start, total=total, place=place, work=work)


def of_chats(
    product: str, again: Open, start: int, *, total: int, place: str, work: Work
) -> ArchivePart:
    """Return the chats of a list."""

    def chats(behind: int, offset: int) -> Iterator[tuple[Draft, int]]:
        found = elements(again, offset or start, place=place, work=work, is_first=not offset)
        skipped = 0 if offset else behind
        for number, (data, end) in enumerate(islice(found, skipped, None), start=behind + 1):
            yield of_product(product, data, number=number, place=place), end

    return ArchivePart(product, total, chats)


def head_of(again: Open, start: int, *, place: str, work: Work) -> tuple[Any, str]:
    """Return the first value of a list, and the product of the first chat that is known."""
    first, refused = None, None
    head = islice(elements(again, start, place=place, work=work), foreign.LOOKED_AT)
    for number, (data, _) in enumerate(head):
        try:
            value = jsonstream.lazy(data, place=place) if data is not None else None
            product = foreign.product_of(value)
        except ImportRefused as refusal:
            refused = refused or refusal
            continue
        first = first if number else value
        if product or foreign.list_form(first):
            return first, product
    if refused is not None:
        raise refused
    return first, ""


def of_product(product: str, data: bytearray | None, *, number: int, place: str) -> Draft:
    """Return one chat of a list."""
    title = f"Chat {number}"
    if data is None:
        refusal = bounds.chat_too_large()
        return NotTaken(title, refusal.code, refusal.sentence)
    try:
        chat = jsonstream.lazy(data, place=f"{place}, chat {number}")
        if foreign.product_of(chat) != product:
            found: foreign.Found = foreign.other_form(chat, place=number, form=product)
        else:
            found = foreign.READERS[product](chat)
        (draft,) = taken([found])
    except ImportRefused as refusal:
        return NotTaken(title, refusal.code, refusal.sentence)
    return draft


def list_in(again: Open, *, place: str, work: Work) -> tuple[int, int] | None:
    """Return where the values of a document's list begin, and how many there are.

    None: the document is one chat.

    A row of objects, one behind the other, counts as a list. Raises `ImportRefused` for a document
    that is not whole.
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


def elements(
    again: Open,
    start: int,
    *,
    place: str,
    work: Work,
    is_first: bool = True,
) -> Iterator[tuple[bytearray | None, int]]:
    """Yield the values of a list, each with the place behind it; None for one that is too large.

    A negative start stands for objects one behind the other.
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


def in_object(again: Open, *, size: int, place: str) -> ArchivePart:
    """Return the chat that a whole document is. Raises `ImportRefused`."""
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.chat_too_large()
    document = jsonstream.lazy(again().read(size + 1), place=place)
    if product := foreign.product_of(document):
        draft = next(iter(taken([foreign.READERS[product](document)])))
        return in_turn(product, 1, lambda: iter([draft]))
    listed = foreign.body_messages(document)
    if listed is None:
        raise foreign.unknown(f"an object with {jsonstream.shown(document)}")
    values = cast(Sequence[Any], listed)
    form = foreign.list_form(values[0])
    if form == UI:
        ui = reading.read_values(values, chat_id=document.get("id"))
        return in_turn(UI, 1, lambda: iter([ui]))
    drafts = list(taken(foreign.session(form, (v for v in values if isinstance(v, dict)))))
    return in_turn(form, len(drafts), lambda: iter(drafts))


def of_messages(
    form: str, again: Open, start: int, *, size: int, place: str, work: Work
) -> ArchivePart:
    """Return the chat that a list of messages is. Raises `ImportRefused`."""
    if size > settings.IMPORT_CHAT_BYTES:
        raise bounds.chat_too_large()
    values = loaded_messages(again, start, place=place, work=work)
    if form == UI:
        draft: Draft = reading.read_values(values)
    else:
        (draft,) = taken(foreign.session(form, (v for v in values if isinstance(v, dict))))
    return in_turn(form, 1, lambda: iter([draft]))


def loaded_messages(again: Open, start: int, *, place: str, work: Work) -> Iterator[Any]:
    """Yield the messages of a list. Raises `ImportRefused`, also where there are too many."""
    for number, (data, _) in enumerate(elements(again, start, place=place, work=work), start=1):
        if number > bounds.LINES:
            problem = f"The list has more than {bounds.LINES:,} messages."
            raise ImportRefused("import_too_many", problem)
        yield bounds.loaded(data or b"null", place=f"{place}, message {number}")


def of_gemini(again: Open, start: int, *, place: str, work: Work) -> ArchivePart:
    """Return the conversations of a list of activities. Raises `ImportRefused`."""
    held = work.kept.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # closed with the work
    groups: dict[str, list[tuple[int, int]]] = {}
    at = 0
    for data, _ in elements(again, start, place=place, work=work):
        if data is None:
            continue
        value = bounds.loaded(data, place=place)
        if assistants.is_of_gemini(value):
            held.write(data)
            groups.setdefault(assistants.gemini_group(value), []).append((at, len(data)))
            at += len(data)
    named = sorted(groups)

    def chats(behind: int, _offset: int) -> Iterator[tuple[Draft, int]]:
        for name in named[behind:]:
            activities = []
            for begin, length in groups[name]:
                held.seek(begin)
                activities.append(bounds.loaded(held.read(length), place=place))
            yield next(iter(taken([assistants.gemini(activities)]))), 0

    return ArchivePart("gemini", len(named), chats)


def joined(parts: Sequence[ArchivePart], *, strange: Sequence[NotTaken] = ()) -> Source:
    """Return the chats of several documents as those of one file."""
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


def single(form: str, draft: Draft) -> Source:
    """Return the content of a file that is one chat."""
    return joined([in_turn(form, 1, lambda: iter([draft]))])


def taken(drafts: Iterable[ChatDraft | Unreadable]) -> Iterator[Draft]:
    """Yield drafts of another product as they can be stored."""
    for draft in drafts:
        if isinstance(draft, Unreadable):
            yield NotTaken(draft.title, "import_malformed", draft.reason)
        else:
            yield without_unstorable(draft)

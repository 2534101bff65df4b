"""Tells the form of a file by its content, and reads the chats in it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO

from chats.exchange import bounds, everything, foreign, reading
from chats.exchange.building import Unreadable
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken
from chats.exchange.storing import without_unstorable

UI = "ui"
BUNDLE = "bundle"
EVERYTHING = "everything"
# A file of these is one chat; what keeps that out is said of the file.
OF_ONE_CHAT = (UI, BUNDLE)
MOST_CHATS = 5_000


@dataclass(frozen=True, slots=True)
class Source:
    """The content of a file: its form, the number of its chats, and these, read one by one.

    `behind(place)` are the chats after so many. `kept_as` is the form that chats are known by when
    they come again.
    """

    form: str
    total: int
    behind: Callable[[int], Iterable[ChatDraft | NotTaken]]
    kept_as: str


def check_at_once(file: IO[bytes]) -> None:
    """Raise `ImportRefused` for what is wrong with a file before its words are read."""
    bounds.check_size(file)
    if is_archive(file):
        bounds.opened(file)
        file.seek(0)


def is_archive(file: IO[bytes]) -> bool:
    """Tell whether a file is an archive."""
    head = file.read(4)
    file.seek(0)
    return head.startswith(b"PK")


def too_many() -> NotTaken:
    """Return what is told of the chats of a file beyond the limit."""
    problem = f"The file has more than {MOST_CHATS:,} chats. The first of them are here."
    return NotTaken("", "import_too_many", problem)


def read(file: IO[bytes]) -> Source:
    """Read a file, whose form is told by its content. Raises `ImportRefused`."""
    bounds.check_size(file)
    if is_archive(file):
        return in_archive(file)
    if not foreign.is_one_document(file):
        first = foreign.first_line(file)
        if foreign.is_session(first):
            return each(foreign.session_form(first), 1, taken(foreign.session(file)))
        return each(UI, 1, [reading.read_lines(file)])
    return in_document(file.read(), place="the file")


def in_archive(file: IO[bytes]) -> Source:
    """Return what an archive holds. Raises `ImportRefused`."""
    archive = bounds.opened(file)
    if reading.is_bundle(archive):
        return each(BUNDLE, 1, [reading.read_bundle(archive)])
    if everything.is_whole(archive):
        chats = everything.listed_in(archive)

        def behind(place: int) -> Iterable[ChatDraft | NotTaken]:
            return everything.drafts_behind(archive, chats, place=place)

        return Source(EVERYTHING, len(chats), behind, kept_as=UI)
    names = [n for n in archive.namelist() if n.rpartition("/")[2] == "conversations.json"]
    if len(names) != 1:
        raise ImportRefused(
            "import_unknown_form",
            "The archive holds neither `history.jsonl` nor `account.json` nor"
            " `conversations.json`. Import a bundle, an export of everything, or the archive of"
            " ChatGPT or Claude as it came.",
        )
    data = bounds.read_entry(archive, names[0], most=bounds.FILE_BYTES)
    return in_document(data, place=names[0])


def in_document(data: bytes, *, place: str) -> Source:
    """Return what a JSON document holds. Raises `ImportRefused`."""
    form, total, chats = foreign.chats_in(bounds.loaded(data, place=place))
    return each(form, total, taken(chats))


def each(form: str, total: int, drafts: Iterable[ChatDraft | NotTaken]) -> Source:
    """Return what a file holds whose chats are read from its beginning."""
    return Source(form, total, lambda place: islice(drafts, place, None), kept_as=form)


def taken(drafts: Iterable[ChatDraft | Unreadable]) -> Iterator[ChatDraft | NotTaken]:
    """Yield drafts of another product as they can be stored."""
    for draft in drafts:
        if isinstance(draft, Unreadable):
            yield NotTaken(draft.title, "import_malformed", draft.reason)
        else:
            yield without_unstorable(draft)

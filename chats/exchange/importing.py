"""Imports a file: tells its form by its content, reads it, and makes its chats one by one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO

from django.contrib.auth.models import AbstractBaseUser

from chats.exchange import bounds, foreign, reading
from chats.exchange.building import Unreadable
from chats.exchange.drafts import Draft, ImportRefused
from chats.exchange.storing import Imported, store, without_unstorable
from chats.ground.refusals import Refusal
from chats.memory import archive as index
from contextpolicy.engine.tokens import TokenCounter

UI = "ui"
BUNDLE = "bundle"
MOST_CHATS = 5_000


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A chat of a file that could not be taken, and why."""

    title: str
    code: str
    reason: str


@dataclass(slots=True)
class Report:
    """The outcome of an import: chats that are here now, and those that are not."""

    form: str
    chats: list[Imported] = field(default_factory=list)
    not_taken: list[NotTaken] = field(default_factory=list)

    @property
    def added(self) -> int:
        """The number of messages that were added."""
        return sum(made.added for made in self.chats)


def import_file(
    file: IO[bytes], *, owner: AbstractBaseUser, counter: TokenCounter, now: datetime
) -> Report:
    """Make chats of a file. Each is taken whole or not at all; one that was here stays as it is.

    Raises `ImportRefused` for a file that cannot be read, and for a file of one chat what
    `storing.store` raises.
    """
    form, drafts = drafts_in(file)
    report = Report(form)
    for count, draft in enumerate(drafts, start=1):
        if count > MOST_CHATS:
            problem = f"The file has more than {MOST_CHATS:,} chats. The first of them are here."
            report.not_taken.append(NotTaken("", "import_too_many", problem))
            break
        if isinstance(draft, NotTaken):
            report.not_taken.append(draft)
            continue
        try:
            report.chats.append(store(draft, owner=owner, form=form, counter=counter, now=now))
        except Refusal as refusal:
            if form in (UI, BUNDLE):
                raise
            report.not_taken.append(NotTaken(draft.title[:200], refusal.code, str(refusal)))
    if len(report.chats) == 1 and report.added and report.chats[0].chat.active_branch:
        # One is searched soon; the sweep finds many, some at a time.
        index.catch_up(report.chats[0].chat.active_branch)
    return report


def drafts_in(file: IO[bytes]) -> tuple[str, Iterable[Draft | NotTaken]]:
    """Return the form of a file and the chats in it. Raises `ImportRefused`."""
    bounds.check_size(file)
    head = file.read(4)
    file.seek(0)
    if head.startswith(b"PK"):
        return in_archive(file)
    if not foreign.is_one_document(file):
        first = foreign.first_line(file)
        if foreign.is_session(first):
            return foreign.session_form(first), taken(foreign.session(file))
        return UI, [reading.read_lines(file)]
    return in_document(file.read(), place="the file")


def in_archive(file: IO[bytes]) -> tuple[str, Iterable[Draft | NotTaken]]:
    """Return the form of an archive and the chats in it. Raises `ImportRefused`."""
    archive = bounds.opened(file)
    if reading.is_bundle(archive):
        return BUNDLE, [reading.read_bundle(archive)]
    names = [n for n in archive.namelist() if n.rpartition("/")[2] == "conversations.json"]
    if len(names) != 1:
        raise ImportRefused(
            "import_unknown_form",
            "The archive holds neither `history.jsonl` nor `conversations.json`. Import a bundle,"
            " or the archive of ChatGPT or Claude as it came.",
        )
    data = bounds.read_entry(archive, names[0], most=bounds.FILE_BYTES)
    return in_document(data, place=names[0])


def in_document(data: bytes, *, place: str) -> tuple[str, Iterable[Draft | NotTaken]]:
    """Return the form of a JSON document and the chats in it. Raises `ImportRefused`."""
    found = bounds.loaded(data, place=place)
    form, chats = foreign.chats_in(found)
    return form, taken(chats)


def taken(drafts: Iterable[Draft | Unreadable]) -> Sequence[Draft | NotTaken]:
    """Return drafts of another product as they can be stored."""
    listed: list[Draft | NotTaken] = []
    for draft in drafts:
        if isinstance(draft, Unreadable):
            listed.append(NotTaken(draft.title[:200], "import_malformed", draft.reason))
        else:
            listed.append(without_unstorable(draft))
    return listed

"""Reads the archive of everything that a person exported, chat by chat, as each one is come to."""

import uuid
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings

from chats.exchange import bounds, jsonstream, pictures, reading
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken

ACCOUNT = bounds.WHOLE
CHATS = "chats/"
READABLE = ".jsonl"
TEMPORARY = "It was a temporary chat; those are not kept, so it stays out."


@dataclass(frozen=True, slots=True)
class ListedChat:
    """A chat as the archive lists it: its file, and what is known of it beside its messages."""

    file: str
    chat_id: str
    title: str
    system_text: str
    folder: str
    pinned: bool
    archived: bool
    temporary: bool


def is_whole(archive: zipfile.ZipFile) -> bool:
    """Tell whether an archive has what every archive of everything has."""
    return ACCOUNT in archive.namelist()


def listed_in(archive: zipfile.ZipFile) -> list[ListedChat]:
    """Return the chats of an archive in their order. Raises `ImportRefused`."""
    data = bounds.read_entry(archive, ACCOUNT, most=bounds.ACCOUNT_BYTES)
    account = jsonstream.lazy(data, place=ACCOUNT)
    chats = account.get("chats") if isinstance(account, Mapping) else None
    if not jsonstream.is_list(chats):
        raise ImportRefused("import_malformed", f"There is no list of chats in {ACCOUNT}.")
    found = [
        listed(chat, place=place) for place, chat in enumerate(jsonstream.items(chats), start=1)
    ]
    if not found:
        raise ImportRefused("import_empty", "There is no chat in the archive.")
    if not any(chat.file.endswith(READABLE) for chat in found):
        raise ImportRefused(
            "import_unknown_form",
            "The chats of this archive are there to be read. The one to import again is the"
            " export of everything as JSONL.",
        )
    return found


def listed(value: object, *, place: int) -> ListedChat:
    """Return a chat of the list. Raises `ImportRefused` where it names no file and no id."""
    said: Mapping[str, Any] = value if isinstance(value, dict) else {}
    try:
        chat_id = str(uuid.UUID(text_in(said, "id")))
    except ValueError:
        chat_id = ""
    file = text_in(said, "file")
    if not chat_id or not file.startswith(CHATS):
        problem = f"Chat {place} of {ACCOUNT} has no id, or names no file of the archive."
        raise ImportRefused("import_malformed", problem)
    return ListedChat(
        file=file,
        chat_id=chat_id,
        title=text_in(said, "title"),
        system_text=text_in(said, "system_text"),
        folder=text_in(said, "folder"),
        pinned=said.get("pinned") is True,
        archived=said.get("archived") is True,
        temporary=said.get("temporary") is True,
    )


def text_in(said: Mapping[str, Any], name: str) -> str:
    """Return a text; empty where there is none."""
    value = said.get(name)
    return value if isinstance(value, str) else ""


def drafts_behind(
    archive: zipfile.ZipFile, chats: list[ListedChat], *, place: int
) -> Iterator[ChatDraft | NotTaken]:
    """Yield the chats behind a place; those before it are not read."""
    images = pictures.entries_of(archive)
    for chat in chats[place:]:
        try:
            yield draft_of(archive, chat, images=images)
        except ImportRefused as refusal:
            yield NotTaken(chat.title, refusal.code, refusal.sentence)


def draft_of(
    archive: zipfile.ZipFile, chat: ListedChat, *, images: Mapping[str, zipfile.ZipInfo]
) -> ChatDraft:
    """Read a chat of an archive with its images. Raises `ImportRefused`."""
    if chat.temporary:
        raise ImportRefused("import_temporary", TEMPORARY)
    try:
        entry = archive.getinfo(chat.file)
    except KeyError:
        raise ImportRefused("import_bad_archive", "Its file is missing from the archive.") from None
    if entry.file_size > settings.IMPORT_CHAT_BYTES:
        raise bounds.chat_too_large()
    try:
        with archive.open(entry) as file:
            draft = reading.read_lines(file)
    except bounds.UNREADABLE as error:
        raise bounds.bad_archive("The file of this chat is damaged.") from error
    found, losses = pictures.read(archive, images, wanted=pictures.wanted_by(draft.nodes))
    return replace(
        draft,
        source=chat.chat_id,
        here=chat.chat_id,
        title=chat.title,
        system_text=chat.system_text,
        folder=chat.folder,
        pinned=chat.pinned,
        archived=chat.archived,
        images=found,
        losses=(*draft.losses, *losses),
    )

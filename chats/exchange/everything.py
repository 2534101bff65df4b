"""Reads a user's account archive chat by chat."""

import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.utils.translation import gettext_lazy, gettext_noop

from chats.exchange import bounds, jsonstream, originals, pictures, reading
from chats.exchange.drafts import ChatDraft, ImportRefused, NotTaken, OriginalFile
from chats.ground.sentences import Sentence

ACCOUNT = bounds.WHOLE
CHATS = "chats/"
DELETED_CHATS = "deleted_chats/"
READABLE = ".jsonl"
TEMPORARY = gettext_lazy("Temporary chats are not imported.")
DELETED = gettext_lazy(
    "Deleted chats are not imported. To import this chat, restore it before you export your data."
)


@dataclass(frozen=True, slots=True)
class ListedChat:
    """A chat on the archive's list: its file and metadata."""

    file: str
    chat_id: str
    title: str
    system_text: str
    folder: str
    pinned: bool
    archived: bool
    temporary: bool
    deleted: bool = False


def is_account_archive(archive: zipfile.ZipFile) -> bool:
    """Return True if an archive has the entry that only account archives have."""
    return ACCOUNT in archive.namelist()


def read_chat_list(archive: zipfile.ZipFile) -> list[ListedChat]:
    """Return the listed chats of an archive in order, deleted ones last. Raises `ImportRefused`.

    Archives of older versions have no list of deleted chats.
    """
    data = bounds.read_entry(archive, ACCOUNT, most=bounds.ACCOUNT_BYTES)
    account = jsonstream.parse_lazy_json(data, place=ACCOUNT)
    chats = account.get("chats") if isinstance(account, Mapping) else None
    if not jsonstream.is_json_list(chats):
        problem = Sentence(
            gettext_noop("{name} does not contain a list of chats. Export your chats again."),
            name=ACCOUNT,
        )
        raise ImportRefused("import_malformed", problem)
    found = [
        parse_listed_chat(chat, place=place)
        for place, chat in enumerate(jsonstream.get_list_items(chats), start=1)
    ]
    deleted = jsonstream.get_list_items(account.get("deleted_chats"))
    found += [
        parse_listed_chat(chat, place=place, deleted=True)
        for place, chat in enumerate(deleted, start=len(found) + 1)
    ]
    if not found:
        raise ImportRefused(
            "import_empty", gettext_lazy("The archive contains no chat. Choose another archive.")
        )
    if not any(chat.file.endswith(READABLE) for chat in found):
        raise ImportRefused(
            "import_unknown_form",
            gettext_lazy(
                "The chats in this archive are in a format that cannot be imported. Import an "
                "export of all chats in the JSONL format instead."
            ),
        )
    return found


def parse_listed_chat(value: object, *, place: int, deleted: bool = False) -> ListedChat:
    """Return a chat from the list. Raises `ImportRefused` if it has no file or no id."""
    fields: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    try:
        chat_id = str(uuid.UUID(get_text_value(fields, "id")))
    except ValueError:
        chat_id = ""
    file = get_text_value(fields, "file")
    if not chat_id or not file.startswith(DELETED_CHATS if deleted else CHATS):
        problem = Sentence(
            gettext_noop(
                "Chat {number} in {name} has no ID, or does not refer to a file in the archive."
            ),
            number=place,
            name=ACCOUNT,
        )
        raise ImportRefused("import_malformed", problem)
    return ListedChat(
        file=file,
        chat_id=chat_id,
        title=get_text_value(fields, "title"),
        system_text=get_text_value(fields, "system_text"),
        folder=get_text_value(fields, "folder"),
        pinned=fields.get("pinned") is True,
        archived=fields.get("archived") is True,
        temporary=fields.get("temporary") is True,
        deleted=deleted,
    )


def get_text_value(said: Mapping[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""


def read_drafts_after(
    archive: zipfile.ZipFile, chats: list[ListedChat], *, place: int, tick: Callable[[], None]
) -> Iterator[ChatDraft | NotTaken]:
    """Yield the chats after a position, without reading earlier chats.

    `tick` is called for each image.
    """
    images = pictures.index_archive_images(archive)
    data = bounds.read_entry(archive, ACCOUNT, most=bounds.ACCOUNT_BYTES)
    files = originals.index_originals(archive, jsonstream.parse_lazy_json(data, place=ACCOUNT))
    for chat in chats[place:]:
        try:
            yield read_archived_chat(archive, chat, images=images, files=files, tick=tick)
        except ImportRefused as refusal:
            yield NotTaken(chat.title, refusal.code, refusal.full)


def read_archived_chat(
    archive: zipfile.ZipFile,
    chat: ListedChat,
    *,
    images: Mapping[str, zipfile.ZipInfo],
    files: Mapping[str, OriginalFile],
    tick: Callable[[], None],
) -> ChatDraft:
    """Read a chat from an archive with its images and files. Raises `ImportRefused`."""
    if chat.temporary:
        raise ImportRefused("import_temporary", TEMPORARY)
    if chat.deleted:
        raise ImportRefused("import_deleted", DELETED)
    try:
        entry = archive.getinfo(chat.file)
    except KeyError:
        problem = gettext_lazy(
            "The file of this chat is missing from the archive. Export the chat again."
        )
        raise ImportRefused("import_bad_archive", problem) from None
    if entry.file_size > settings.IMPORT_CHAT_BYTES:
        raise bounds.build_chat_size_error()
    try:
        with archive.open(entry) as file:
            draft = reading.read_lines(file, tick=tick)
    except bounds.UNREADABLE as error:
        raise bounds.build_archive_error(
            gettext_lazy("The file of this chat is damaged. Export the chat again.")
        ) from error
    found, losses = pictures.read_wanted_images(
        archive, images, wanted=pictures.collect_image_hashes(draft.nodes), tick=tick
    )
    return replace(
        draft,
        source=chat.chat_id,
        has_id=True,
        here=chat.chat_id,
        title=chat.title,
        system_text=chat.system_text,
        folder=chat.folder,
        pinned=chat.pinned,
        archived=chat.archived,
        images=pictures.join_images(found, draft.images),
        originals=originals.select_originals(files, draft.nodes),
        losses=(*draft.losses, *losses),
    )

"""Organises a user's chats: pinned, archived, in folders.

These actions do not change prompts or messages, so the ledger does not record them.
"""

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.actions import memory
from chats.ground.refusals import Refusal
from chats.models import Chat, Folder
from chats.record import kept_texts, notices
from contextpolicy.engine.text import names

NAME_LENGTH = 100


class InvalidFolderName(Refusal):
    """The name is empty, or contains a line break, a control character or a direction override."""

    code = "invalid_name"
    status = 422
    sentence = gettext_noop(
        "The folder name is not valid. Enter 1 to {limit} characters, without line breaks, "
        "control characters or direction overrides."
    )
    param = "name"


class FolderNameTooLong(Refusal):
    """The name has more than 100 characters. Names are never truncated."""

    code = "too_long"
    status = 422
    sentence = gettext_noop(
        "The folder name has {length} characters. The limit is {limit}. Shorten the name."
    )
    param = "name"


class FolderExists(Refusal):
    """You have another folder with this name, ignoring case."""

    code = "folder_exists"
    status = 409
    sentence = gettext_noop("You already have a folder named “{name}”. Choose another name.")
    param = "name"


class TooManyFolders(Refusal):
    """You have too many folders (`FOLDERS_PER_USER`, 200 by default). Delete one first."""

    code = "too_many_folders"
    status = 409
    sentence = gettext_noop("You have reached your limit of {limit} folders. Delete one first.")


class UnknownFolder(Refusal):
    """The folder does not exist or is not yours."""

    code = "unknown_folder"
    status = 422
    sentence = gettext_noop("This folder does not exist. Choose one of your folders.")
    param = "folder"


def organise_chat(
    *,
    chat: Chat,
    user: AbstractBaseUser,
    pinned: bool | None = None,
    archived: bool | None = None,
    folder: uuid.UUID | str | None = "",
) -> Chat:
    """Pin or archive the chat, or move it to a folder.

    `pinned`, `archived`: None keeps the current value. `folder`: the id of a folder, None to remove
    the chat from its folder, or "" to keep it. A provisional chat that is pinned, moved to a folder
    or taken out of the archive is not erased any more. Raises `UnknownFolder`.
    """
    changes: dict[str, Any] = {"pinned": pinned, "archived": archived}
    changes = {name: value for name, value in changes.items() if value is not None}
    if folder != "":
        changes["folder"] = find_own_folder(user, folder) if folder else None
    is_kept = not chat.archived or archived is False or pinned or changes.get("folder")
    if chat.erase_at and not chat.deleted_at and is_kept:
        # Otherwise, archiving it again would erase it.
        changes["erase_at"] = None
    for name, value in changes.items():
        setattr(chat, name, value)
    if changes:
        chat.save(update_fields=list(changes))
        notices.announce_chat(chat.pk)
    return chat


def find_own_folder(user: AbstractBaseUser, folder_id: uuid.UUID | str) -> Folder:
    """Return the user's folder. Raises `UnknownFolder`."""
    found = Folder.objects.filter(owner=user.pk, pk=folder_id).first()
    if found is None:
        raise UnknownFolder
    return found


@transaction.atomic
def move_to_named_folder(*, chat: Chat, user: AbstractBaseUser, name: str) -> Folder:
    """Put the chat into the folder with this name, ignoring case, and create it if needed.

    Raises `InvalidFolderName`, `FolderNameTooLong` and `TooManyFolders`.
    """
    name = clean_folder_name(name)
    same = find_folders_by_name(user.pk, name)
    exact = (folder for folder in same if folder.name == name)
    folder = next(exact, same[0] if same else None) or create_folder(owner=user, name=name)
    organise_chat(chat=chat, user=user, folder=folder.pk)
    return folder


@transaction.atomic
def create_folder(*, owner: AbstractBaseUser, name: str) -> Folder:
    """Create an empty folder.

    Raises `InvalidFolderName`, `FolderNameTooLong`, `FolderExists` and `TooManyFolders`.
    """
    name = clean_folder_name(name)
    # Locked, so that concurrent requests can neither exceed the limit nor create the same name.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if Folder.objects.filter(owner=owner.pk).count() >= settings.FOLDERS_PER_USER:
        raise TooManyFolders(limit=settings.FOLDERS_PER_USER)
    check_folder_name_unused(owner.pk, name)
    notices.tell_of_list(owner.pk)
    return Folder.objects.create(owner_id=owner.pk, name=name)


@transaction.atomic
def rename_folder(*, folder: Folder, name: str, now: datetime) -> Folder:
    """Rename the folder.

    Raises `InvalidFolderName`, `FolderNameTooLong` and `FolderExists`.
    """
    name = clean_folder_name(name)
    User.objects.select_for_update(no_key=True).get(pk=folder.owner_id)
    check_folder_name_unused(folder.owner_id, name, but=folder)
    before = Folder.objects.get(pk=folder.pk)
    if before.name != name:
        kept_texts.keep_folder_name(before, actor=f"user:{folder.owner_id}", now=now)
    folder.name = name
    folder.save(update_fields=["name"])
    notices.tell_of_list(folder.owner_id)
    return folder


@transaction.atomic
def delete_folder(*, folder: Folder, now: datetime) -> None:
    """Delete the folder with its preferences, and their texts in prompts.

    Its chats and its preferences under a hold stay, without a folder. If memory was off in the
    folder, it is off in each of its chats.
    """
    kept_texts.keep_folder_name(folder, actor=f"user:{folder.owner_id}", now=now)
    # Chats are locked before the memory and the ledger, as by a reply.
    chats = Chat.objects.filter(folder=folder)
    if Folder.objects.filter(pk=folder.pk, without_memory=True).exists():
        chats.update(folder=None, without_memory=True)
    else:
        chats.update(folder=None)
    memory.erase_folder_preferences(folder, now=now)
    notices.tell_of_list(folder.owner_id)
    folder.delete()


def clean_folder_name(name: str) -> str:
    """Return the name in its normal form, without surrounding spaces.

    Raises `InvalidFolderName` and `FolderNameTooLong`.
    """
    name = names.normalise_name(name)
    if not names.is_allowed_name(name):
        raise InvalidFolderName(limit=NAME_LENGTH)
    if len(name) > NAME_LENGTH:
        raise FolderNameTooLong(limit=NAME_LENGTH, length=len(name))
    return name


def check_folder_name_unused(owner: int, name: str, *, but: Folder | None = None) -> None:
    """Raise `FolderExists` if the user has another folder with this name."""
    if but is not None and names.normalise_name(but.name) == name:
        return
    others = [folder for folder in find_folders_by_name(owner, name) if folder != but]
    if others:
        raise FolderExists(name=others[0].name)


def find_folders_by_name(owner: int, name: str) -> list[Folder]:
    """Return a user's folders with this name, ignoring case. Older versions allowed several."""
    rows = Folder.objects.filter(owner=owner).order_by("pk")
    return [
        folder for folder in rows if names.casefold_name(folder.name) == names.casefold_name(name)
    ]

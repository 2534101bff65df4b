"""Puts a person's chats in order: pinned, archived, in folders.

None of it changes what is sent or said, so the ledger has nothing of it.
"""

import uuid
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction

from chats.ground.refusals import Refusal
from chats.memory import preferences
from chats.models import Chat, Folder
from chats.record import notices
from contextpolicy.engine import names

NAME_LENGTH = 100


class InvalidFolderName(Refusal):
    """The name is empty, or has a character that no name may have."""

    code = "invalid_name"
    status = 422
    sentence = (
        "A folder needs a name of 1 to {limit} characters. Line breaks, control characters and"
        " direction overrides are not allowed."
    )
    param = "name"


class FolderNameTooLong(Refusal):
    """The name is over its limit; names are never cut."""

    code = "too_long"
    status = 422
    sentence = "A folder's name has at most {limit} characters; this one has {length}."
    param = "name"


class FolderExists(Refusal):
    """The person has another folder of this name."""

    code = "folder_exists"
    status = 409
    sentence = "You have a folder called “{name}” already. Choose another name."
    param = "name"


class TooManyFolders(Refusal):
    """The person has as many folders as they may."""

    code = "too_many_folders"
    status = 409
    sentence = "You have {limit} folders and cannot make another. Delete one first."


class UnknownFolder(Refusal):
    """The folder that a chat is to lie in does not exist, or is another person's."""

    code = "unknown_folder"
    status = 422
    sentence = "There is no such folder. Choose one of yours."
    param = "folder"


def organise(
    *,
    chat: Chat,
    user: AbstractBaseUser,
    pinned: bool | None = None,
    archived: bool | None = None,
    folder: uuid.UUID | str | None = "",
) -> Chat:
    """Pin, archive or file the chat; None, and the empty text for the folder, keep what is.

    `folder`: the id of one of the person's, or None to take the chat out. Raises `UnknownFolder`.
    """
    changes: dict[str, Any] = {"pinned": pinned, "archived": archived}
    changes = {name: value for name, value in changes.items() if value is not None}
    if folder != "":
        changes["folder"] = own_folder(user, folder) if folder else None
    for name, value in changes.items():
        setattr(chat, name, value)
    if changes:
        chat.save(update_fields=list(changes))
        notices.tell(chat.pk)
    return chat


def own_folder(user: AbstractBaseUser, folder_id: uuid.UUID | str) -> Folder:
    """Return the person's folder. Raises `UnknownFolder`."""
    found = Folder.objects.filter(owner=user.pk, pk=folder_id).first()
    if found is None:
        raise UnknownFolder
    return found


@transaction.atomic
def file_in_new_folder(*, chat: Chat, user: AbstractBaseUser, name: str) -> Folder:
    """Make a folder, or take the one of this name, and put the chat into it.

    Raises `InvalidFolderName`, `FolderNameTooLong` and `TooManyFolders`.
    """
    name = checked_name(name)
    folder = Folder.objects.filter(owner=user.pk, name=name).first()
    folder = folder or create_folder(owner=user, name=name)
    organise(chat=chat, user=user, folder=folder.pk)
    return folder


@transaction.atomic
def create_folder(*, owner: AbstractBaseUser, name: str) -> Folder:
    """Make an empty folder.

    Raises `InvalidFolderName`, `FolderNameTooLong`, `FolderExists` and `TooManyFolders`.
    """
    name = checked_name(name)
    # Locked, so that two requests at once cannot both make the last one, or two of one name.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if Folder.objects.filter(owner=owner.pk).count() >= settings.FOLDERS_PER_USER:
        raise TooManyFolders(limit=settings.FOLDERS_PER_USER)
    check_free(owner.pk, name)
    notices.tell_of_list(owner.pk)
    return Folder.objects.create(owner_id=owner.pk, name=name)


@transaction.atomic
def rename_folder(*, folder: Folder, name: str) -> Folder:
    """Give the folder another name.

    Raises `InvalidFolderName`, `FolderNameTooLong` and `FolderExists`.
    """
    name = checked_name(name)
    User.objects.select_for_update(no_key=True).get(pk=folder.owner_id)
    check_free(folder.owner_id, name, but=folder)
    folder.name = name
    folder.save(update_fields=["name"])
    notices.tell_of_list(folder.owner_id)
    return folder


@transaction.atomic
def delete_folder(*, folder: Folder, now: datetime) -> None:
    """Take the folder away; its chats stay, in no folder, and so do preferences that are held."""
    preferences.put_aside_in(folder, now=now)
    Chat.objects.filter(folder=folder).update(folder=None)
    notices.tell_of_list(folder.owner_id)
    folder.delete()


def checked_name(name: str) -> str:
    """Return the name in its normal form, without the spaces around it.

    Raises `InvalidFolderName` and `FolderNameTooLong`.
    """
    name = names.normal(name)
    if not names.is_sound(name):
        raise InvalidFolderName(limit=NAME_LENGTH)
    if len(name) > NAME_LENGTH:
        raise FolderNameTooLong(limit=NAME_LENGTH, length=len(name))
    return name


def check_free(owner: int, name: str, *, but: Folder | None = None) -> None:
    """Raise `FolderExists` if the person has another folder of this name."""
    same = Folder.objects.filter(owner=owner, name=name)
    if any(folder != but for folder in same):
        raise FolderExists(name=name)

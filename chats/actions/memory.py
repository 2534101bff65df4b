"""Acts of people on their memory that change rows of several rooms."""

import uuid
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.actions import copies
from chats.memory import preferences
from chats.models import Chat, Folder, Preference
from chats.record import holds, notices
from chats.record.holds import UnderHold


def delete(
    *, owner: AbstractBaseUser, preference_id: uuid.UUID, now: datetime, reopen: bool = False
) -> None:
    """Delete a preference, and what the person's prompts had of it.

    `reopen`: what it had closed is in use again. Raises `NotFound`, and `UnderHold`, after which
    the preference is out of use and the wish kept.
    """
    owner_id = int(owner.pk)
    row = preferences.preference_for(owner_id=owner_id, preference_id=preference_id)
    try:
        with transaction.atomic():
            erase(row, now=now, reopen=reopen)
    except UnderHold:
        with transaction.atomic():
            preferences.put_aside(row, now=now)
        raise UnderHold(meanwhile=holds.PREFERENCE_UNUSED) from None


def erase(row: Preference, *, now: datetime, reopen: bool = False) -> None:
    """Delete a preference and what prompts had of it, in the caller's transaction.

    Raises `NotFound` if it is gone, and `UnderHold`.
    """
    gone = preferences.delete(owner_id=row.owner_id, preference_id=row.pk, now=now, reopen=reopen)
    texts, since = [row.text for row in gone], min(row.learned_at for row in gone)
    copies.erase_of_person(row.owner_id, texts=texts, since=since, now=now)


def set_memory_of_chat(*, chat: Chat, remembers: bool) -> Chat:
    """Let a chat use and fill its owner's memory, or not."""
    chat.without_memory = not remembers
    chat.save(update_fields=["without_memory"])
    notices.tell(chat.pk)
    return chat


def set_memory_of_folder(*, folder: Folder, remembers: bool) -> Folder:
    """Let the chats of a folder use and fill their owner's memory, or not."""
    folder.without_memory = not remembers
    folder.save(update_fields=["without_memory"])
    return folder

"""Actions on a user's memory that span several packages."""

import uuid
from contextlib import suppress
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.actions import erasure_targets
from chats.memory.preferences import memory_settings, preferences
from chats.memory.search.clearing import truncate_log
from chats.models import Chat, Folder, PendingErasure, Preference
from chats.record import holds, notices
from chats.record.erasure_marks import ErasureMarks
from chats.record.holds import UnderHold
from chats.turns.statements import PERSON_LOCK


def delete_saved_preference(
    *, owner: AbstractBaseUser, preference_id: uuid.UUID, now: datetime, reopen: bool = False
) -> None:
    """Delete a preference, and its text in the user's prompts.

    `reopen`: reactivate the preferences that the deleted one replaced. Raises `NotFound`,
    and `UnderHold`, which deactivates the preference and stores a pending erasure.
    """
    owner_id = int(owner.pk)
    row = preferences.get_preference(owner_id=owner_id, preference_id=preference_id)
    try:
        with transaction.atomic():
            erase_preference(row, now=now, reopen=reopen)
    except UnderHold:
        with transaction.atomic():
            preferences.deactivate_held_preference(row, now=now)
        raise UnderHold(meanwhile=holds.PREFERENCE_UNUSED) from None


def erase_preference(row: Preference, *, now: datetime, reopen: bool = False) -> None:
    """Delete a preference and its text in prompts, in the caller's transaction.

    Raises `NotFound` if it does not exist, and `UnderHold`.
    """
    owner_id = row.owner_id
    lock_memory(owner_id)
    row = preferences.get_preference(owner_id=owner_id, preference_id=row.pk)
    holds.lock_pending_erasures(PendingErasure.objects.filter(preference=row))
    preferences.check_preference_holds([row], now=now)
    erase_preference_text(row, now=now)
    # Last: it locks the instance's chain, and a reply that ends locks its chat's chain first.
    preferences.delete_preference(owner_id=owner_id, preference_id=row.pk, now=now, reopen=reopen)
    transaction.on_commit(truncate_log)


def lock_memory(owner_id: int) -> None:
    """Lock a person's row, then their memory settings."""
    PERSON_LOCK.hold(owner=owner_id)
    memory_settings.lock_memory_settings(owner_id)


def erase_preference_text(row: Preference, *, now: datetime) -> None:
    """Delete the text of a preference from the person's prompts."""
    marks = ErasureMarks(now)
    erasure_targets.erase_of_person(
        row.owner_id, texts=[row.text], since=row.learned_at, marks=marks
    )
    marks.record(actor=f"user:{row.owner_id}", erased="preference", source=row.pk)


def erase_folder_preferences(folder: Folder, *, now: datetime) -> None:
    """Delete the preferences of a folder that is about to be deleted, and their texts in prompts.

    Preferences under a hold are deactivated, and no longer belong to the folder. Runs in the
    caller's transaction.
    """
    lock_memory(folder.owner_id)
    free = list_unheld_preferences(folder, now=now)
    holds.lock_pending_erasures(PendingErasure.objects.filter(preference__in=free))
    for row in free:
        erase_preference_text(row, now=now)
    # Last, as in `erase_preference`.
    for row in free:
        preferences.delete_preference(owner_id=folder.owner_id, preference_id=row.pk, now=now)
    preferences.deactivate_folder_preferences(folder, now=now)
    transaction.on_commit(truncate_log)


def list_unheld_preferences(folder: Folder, *, now: datetime) -> list[Preference]:
    """Return the preferences of a folder that no hold covers."""
    found = []
    for row in Preference.objects.filter(folder=folder).order_by("learned_at", "pk"):
        with suppress(UnderHold):
            preferences.check_preference_holds([row], now=now)
            found.append(row)
    return found


def set_memory_of_chat(*, chat: Chat, remembers: bool) -> Chat:
    """Allow or forbid a chat to use its owner's memory and to add to it."""
    chat.without_memory = not remembers
    chat.save(update_fields=["without_memory"])
    notices.announce_chat(chat.pk)
    return chat


def set_memory_of_folder(*, folder: Folder, remembers: bool) -> Folder:
    """Allow or forbid the chats of a folder to use their owner's memory and to add to it."""
    folder.without_memory = not remembers
    folder.save(update_fields=["without_memory"])
    return folder

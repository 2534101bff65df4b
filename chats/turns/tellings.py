"""Saves preferences that people state in the messages of a turn, when the turn ends."""

from datetime import datetime

from chats.memory import preferences, readings
from chats.memory.told import told_in, withdrawn_in
from chats.models import Chat, Folder, Message, Preference, Turn


def note_told(turn: Turn, *, chat: Chat, now: datetime) -> list[Preference]:
    """Save preferences stated in the owner's messages of a turn, in the caller's transaction.

    Preferences that the owner asks to forget are withdrawn first. Returns saved and confirmed
    preferences. Skips chats without memory, people who did not agree, and messages of other team
    members.
    """
    if not remembers(chat) or not preferences.is_noting(preferences.settings_of(chat.owner_id)):
        return []
    said = Message.objects.filter(
        turn=turn, role=Message.Role.USER, speaker__isnull=True, excluded=False, erased_at=None
    ).select_related("branch")
    noted = []
    for message in said.order_by("seq"):
        preferences.withdraw(
            withdrawn_in(message.text), message=message, owner_id=chat.owner_id, now=now
        )
        noted += preferences.note(
            told_in(message.text),
            message=message,
            owner_id=chat.owner_id,
            folder_id=chat.folder_id,
            now=now,
        )
    return noted


def await_rest(chat: Chat, *, now: datetime) -> None:
    """Schedule inference of preferences once the chat is idle, if its owner agreed.

    Runs in the caller's transaction.
    """
    if remembers(chat) and preferences.is_inferring(preferences.settings_of(chat.owner_id)):
        readings.await_rest(chat.pk, now=now)


def remembers(chat: Chat) -> bool:
    """Return True if preferences may be saved from a chat."""
    if chat.temporary or chat.without_memory:
        return False
    if chat.folder_id is None:
        return True
    return not Folder.objects.filter(pk=chat.folder_id, without_memory=True).exists()

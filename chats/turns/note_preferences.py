"""When a turn ends, saves the preferences that people stated in its messages."""

from datetime import datetime

from chats.memory.preferences import (
    inference_queue,
    memory_settings,
    stated_preferences,
)
from chats.memory.preferences.preference_patterns import extract_forget_requests, extract_statements
from chats.models import Chat, Folder, Message, Preference, Turn


def save_stated_preferences(turn: Turn, *, chat: Chat, now: datetime) -> list[Preference]:
    """Save preferences stated in the owner's messages of a turn, in the caller's transaction.

    Preferences that the owner asks to forget are withdrawn first. Returns saved and confirmed
    preferences. Skips chats without memory, people without consent, and messages of other team
    members.
    """
    if not can_save_preferences(chat) or not memory_settings.is_noting(
        memory_settings.get_memory_settings(chat.owner_id)
    ):
        return []
    said = Message.objects.filter(
        turn=turn, role=Message.Role.USER, speaker__isnull=True, excluded=False, erased_at=None
    ).select_related("branch")
    noted = []
    for message in said.order_by("seq"):
        stated_preferences.withdraw_preferences(
            extract_forget_requests(message.text), message=message, owner_id=chat.owner_id, now=now
        )
        noted += stated_preferences.store_stated_preferences(
            extract_statements(message.text),
            message=message,
            owner_id=chat.owner_id,
            folder_id=chat.folder_id,
            now=now,
        )
    return noted


def schedule_inference(chat: Chat, *, now: datetime) -> None:
    """Schedule preference inference for when the chat is idle, if its owner agreed.

    Runs in the caller's transaction.
    """
    if can_save_preferences(chat) and memory_settings.is_inferring(
        memory_settings.get_memory_settings(chat.owner_id)
    ):
        inference_queue.schedule_idle_reading(chat.pk, now=now)


def can_save_preferences(chat: Chat) -> bool:
    """Return True if preferences from a chat may be saved.

    False for a temporary chat, and for a chat that its own or its folder's setting excludes from
    memory.
    """
    if chat.temporary or chat.without_memory:
        return False
    if chat.folder_id is None:
        return True
    return not Folder.objects.filter(pk=chat.folder_id, without_memory=True).exists()

"""Chats with messages but without turns."""

from collections.abc import Callable

from chats.models import Branch, Chat, Compaction, Message

Say = Callable[..., Message]
Cover = Callable[..., Compaction]


def reload_first_branch(chat: Chat) -> Branch:
    """Reload the chat's first branch."""
    found = Branch.objects.select_related("active_compaction").get(chat=chat, parent=None)
    found.chat = chat
    return found

"""Finds out which messages are on a chat's active branch, and not replaced by an edit."""

import uuid
from collections.abc import Sequence

from chats.models import Branch, Chat, Message
from chats.record.history import PathSegment, list_path_segments


class ActivePaths:
    """The paths of the active branches of chats, each loaded once."""

    def __init__(self) -> None:
        self._segments: dict[uuid.UUID, Sequence[PathSegment]] = {}

    def contains(self, message: Message) -> bool:
        """Return True if the message is on the path of its chat's active branch.

        `message` has its branch and chat loaded.
        """
        chat = message.branch.chat
        if chat.active_branch_id in {None, message.branch_id}:
            return True
        if chat.pk not in self._segments:
            self._segments[chat.pk] = load_active_path(chat)
        seq = message.seq or 0
        return any(part.contains(message.branch_id, seq) for part in self._segments[chat.pk])


def load_active_path(chat: Chat) -> Sequence[PathSegment]:
    """Return the path of a chat's active branch, with one query for all of its branches."""
    branches = {branch.pk: branch for branch in Branch.objects.filter(chat=chat)}
    for branch in branches.values():
        branch.parent = branches.get(branch.parent_id) if branch.parent_id else None
    active = branches.get(chat.active_branch_id) if chat.active_branch_id else None
    return list_path_segments(active) if active else []

"""Finds out which messages are on a chat's active branch, and not replaced by an edit."""

import uuid
from collections.abc import Collection, Sequence

from django.db.models import Q

from chats.memory.search.visible_texts import attach_branches
from chats.models import Branch, Chat, Message
from chats.record.history import PathSegment, list_path_segments
from chats.record.sendable import build_sendable_filter


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
        seq = message.seq or 0
        return any(part.contains(message.branch_id, seq) for part in self.list_segments(message))

    def list_segments(self, message: Message) -> Sequence[PathSegment]:
        """Return the path of the active branch of a message's chat.

        A chat without an active branch has the path of the message's branch.
        """
        chat = message.branch.chat
        if chat.active_branch_id is None:
            return list_path_segments(message.branch)
        if chat.pk not in self._segments:
            self._segments[chat.pk] = load_active_path(chat)
        return self._segments[chat.pk]

    def load_near(self, message: Message, seqs: Collection[int]) -> dict[int, Message]:
        """Return the messages with these seqs on the path, by seq, that excerpts may quote."""
        wanted = Q()
        for part in self.list_segments(message):
            of_part = [seq for seq in seqs if part.after < seq <= part.to]
            if of_part:
                wanted |= Q(branch=part.branch_id, seq__in=of_part)
        if not wanted:
            return {}
        rows = Message.objects.filter(wanted, build_sendable_filter())
        found = {row.seq or 0: row for row in rows}
        attach_branches(list(found.values()))
        return found


def load_active_path(chat: Chat) -> Sequence[PathSegment]:
    """Return the path of a chat's active branch, with one query for all of its branches."""
    branches = {branch.pk: branch for branch in Branch.objects.filter(chat=chat)}
    for branch in branches.values():
        branch.parent = branches.get(branch.parent_id) if branch.parent_id else None
    active = branches.get(chat.active_branch_id) if chat.active_branch_id else None
    return list_path_segments(active) if active else []

"""The newest messages of a user across their chats, in chronological order."""

import uuid
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet

from chats.models import Chat, Message
from chats.record.access import get_visible_chats
from chats.record.history import select_path_messages
from chats.record.sendable import build_sendable_filter

# Chats are read newest first. The limit holds even if they have few messages.
MOST_CHATS = 1000


def list_recent_messages(
    *,
    owner: AbstractBaseUser,
    most: int,
    chat_id: uuid.UUID | None = None,
    among: QuerySet[Chat] | None = None,
    until: datetime | None = None,
    only_sendable: bool = False,
) -> list[Message]:
    """Return the last `most` messages of a user's chats, or of one, ascending by time, then id.

    `among` limits the chats, `until` the time. Only the active branch of each chat is read.
    Excluded, erased and waiting messages, steps without text, and temporary chats are left out, and
    with `only_sendable` also replies that an error interrupted. The cost depends on `most`.
    """
    wanted = build_sendable_filter() if only_sendable else Q(excluded=False, erased_at=None)
    chats = get_visible_chats(user=owner).filter(temporary=False)
    if among is not None:
        chats = chats.filter(pk__in=among)
    if chat_id is not None:
        chats = chats.filter(pk=chat_id)
    newest: list[Message] = []
    rows = chats.select_related("active_branch__parent").order_by("-updated_at")[:MOST_CHATS]
    for chat in rows.iterator(chunk_size=20):
        # No message in a chat is newer than the chat's `updated_at`.
        if len(newest) >= most and (not most or newest[0].created_at > chat.updated_at):
            break
        branch = chat.active_branch
        if branch is not None:
            path = select_path_messages(branch, after=0, before=branch.last_seq + 1)
            path = path.filter(wanted)
            if until is not None:
                path = path.filter(created_at__lt=until)
            path = path.order_by("-seq")[: 2 * most]
            newest = sorted([*newest, *(row for row in path if row.text)], key=get_time_key)[-most:]
    return newest


def get_time_key(message: Message) -> tuple[datetime, uuid.UUID]:
    """Return a message's sort key: time, then id."""
    return message.created_at, message.pk

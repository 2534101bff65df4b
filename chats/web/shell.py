"""What stands around every page of the app: the person and the list of their chats."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from django.contrib.auth.models import User
from django.utils import timezone

from chats import library
from chats.models import Chat
from chats.web.words import day_name


@dataclass(frozen=True, slots=True)
class ChatGroup:
    """A part of the chat list under one heading."""

    name: str
    chats: Sequence[Chat]


@dataclass(frozen=True, slots=True)
class Shell:
    """The chat list and the name at its foot."""

    groups: Sequence[ChatGroup]
    name: str
    initials: str
    current: Chat | None


def shell_for(*, user: User, current: Chat | None = None) -> Shell:
    """The frame of a page, with the current chat marked in the list."""
    chats = library.chats_of(owner=user)
    name = user.get_full_name() or user.get_username()
    return Shell(
        groups=[*pinned(chats), *by_day([chat for chat in chats if not chat.pinned])],
        name=name,
        initials="".join(word[0] for word in name.split()[:2]).upper(),
        current=current,
    )


def pinned(chats: Sequence[Chat]) -> list[ChatGroup]:
    """The pinned chats as the first group, if there are any."""
    kept = [chat for chat in chats if chat.pinned]
    return [ChatGroup("Pinned", kept)] if kept else []


def by_day(chats: Sequence[Chat]) -> list[ChatGroup]:
    """The chats in groups of one day each, in the reader's zone; newest first as they come."""
    today = timezone.localdate()
    days = groupby(chats, key=lambda chat: timezone.localtime(chat.updated_at).date())
    return [ChatGroup(day_name(day, today=today), list(group)) for day, group in days]

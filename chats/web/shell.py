"""What stands around every page of the app: the person and the list of their chats."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.utils import timezone

from chats import library
from chats.library import ListPlace
from chats.models import Chat
from chats.web.words import day_name


@dataclass(frozen=True, slots=True)
class ChatGroup:
    """A part of the chat list under one heading; no name: it goes on from the page before."""

    name: str
    chats: Sequence[Chat]


@dataclass(frozen=True, slots=True)
class ChatList:
    """A page of the chat list. `more` is the query of the next one, empty after the last."""

    groups: Sequence[ChatGroup]
    current: uuid.UUID | None
    more: str


@dataclass(frozen=True, slots=True)
class Shell:
    """The chat list and the name at its foot."""

    list: ChatList
    name: str
    initials: str


def shell_for(*, user: User, current: Chat | None = None) -> Shell:
    """The frame of a page, with the current chat marked in the list."""
    name = user.get_full_name() or user.get_username()
    return Shell(
        list=list_for(user=user, current=current),
        name=name,
        initials="".join(word[0] for word in name.split()[:2]).upper(),
    )


def list_for(*, user: User, current: Chat | None = None) -> ChatList:
    """The first page of the chat list; a current chat that is further down stands before it."""
    chats, last = library.chats_of(owner=user)
    groups = grouped(chats)
    if current is not None and current not in chats:
        groups.insert(0, ChatGroup("Open now", [current]))
    key = current.pk if current else None
    return ChatList(groups, current=key, more=query(last, key))


def list_after(*, user: User, after: ListPlace, current: uuid.UUID | None) -> ChatList:
    """The page of the chat list after a place, without a current chat: the first page has it."""
    chats, last = library.chats_of(owner=user, after=after)
    groups = grouped([chat for chat in chats if chat.pk != current], after=after)
    return ChatList(groups, current=current, more=query(last, current))


def grouped(chats: Sequence[Chat], *, after: ListPlace | None = None) -> list[ChatGroup]:
    """The chats as they come, under a heading for the pinned ones and for each day."""
    today = timezone.localdate()
    before = heading(after.pinned, after.updated_at, today=today) if after else ""
    named = groupby(chats, key=lambda chat: heading(chat.pinned, chat.updated_at, today=today))
    groups = [ChatGroup(name, list(group)) for name, group in named]
    if groups and groups[0].name == before:
        groups[0] = ChatGroup("", groups[0].chats)
    return groups


def heading(pinned: bool, updated_at: datetime, *, today: date) -> str:  # noqa: FBT001  # a mark
    """What a chat stands under; days are those of the reader."""
    return "Pinned" if pinned else day_name(timezone.localtime(updated_at).date(), today=today)


def query(last: ListPlace | None, current: uuid.UUID | None) -> str:
    """The query of the page after a place."""
    if last is None:
        return ""
    place = f"{int(last.pinned)}_{last.updated_at.isoformat()}_{last.pk}"
    return urlencode({"after": place, **({"current": current} if current else {})})


def place_in(text: str) -> ListPlace | None:
    """The place that such a query names; None for what is none."""
    try:
        pinned, moment, key = text.split("_")
        updated_at = datetime.fromisoformat(moment).astimezone(UTC)
        return ListPlace(pinned == "1", updated_at, uuid.UUID(key))
    except (ValueError, OverflowError):
        return None

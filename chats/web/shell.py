"""The frame of every page of the app: the person and the list of their chats."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import groupby
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from chats.actions import listing
from chats.actions.listing import DeletedPlace, ListPlace
from chats.models import Chat, Folder
from chats.web.drawing import drawing_time
from chats.web.words import day_name

OPEN_NOW, PINNED = "Open now", "Pinned"


@dataclass(frozen=True, slots=True)
class ChatGroup:
    """A part of the chat list under one heading; without a name it continues the page before."""

    name: str
    chats: Sequence[Chat]


@dataclass(frozen=True, slots=True)
class ChatList:
    """A page of a list of chats. `more` is the address of the next one, empty after the last."""

    groups: Sequence[ChatGroup]
    current: uuid.UUID | None
    more: str
    # What stands above the days: the open chat if it would not be seen, pinned ones, folders.
    first: Sequence[ChatGroup] = ()
    folders: Sequence["FolderPart"] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to list."""
        return not (self.groups or self.first or self.folders)


@dataclass(frozen=True, slots=True)
class FolderPart:
    """A folder as a heading; its chats are there if the open chat lies in it."""

    folder: Folder
    list: ChatList | None


@dataclass(frozen=True, slots=True)
class Shell:
    """The chat list and the name at its foot; the list has all changes before `drawn_at`."""

    list: ChatList
    drawn_at: int
    name: str
    initials: str


def shell_for(*, user: User, current: Chat | None = None) -> Shell:
    """Return the frame of a page, with the current chat marked in the list."""
    drawn_at = drawing_time()
    name = user.get_full_name() or user.get_username()
    return Shell(
        list=list_for(user=user, current=current),
        drawn_at=drawn_at,
        name=name,
        initials="".join(word[0] for word in name.split()[:2]).upper(),
    )


def list_for(*, user: User, current: Chat | None = None) -> ChatList:
    """Return the first page of the chat list, with the person's folders; the open one unfolded.

    A current chat that is not among them leads the list.
    """
    chats, last = listing.chats_of(owner=user)
    groups = grouped(chats)
    is_filed = current is not None and not current.archived and not current.pinned
    may_have = not chats or chats[0].has_folders  # type: ignore[attr-defined]  # by `page_of`
    folders = [
        FolderPart(
            folder,
            folder_part(folder=folder, current=current.pk)
            if current is not None and is_filed and folder.pk == current.folder_id
            else None,
        )
        for folder in (listing.folders_of(owner=user) if may_have else ())
    ]
    shown = [*groups, *(g for part in folders if part.list for g in part.list.groups)]
    if current is not None and not any(current in group.chats for group in shown):
        groups.insert(0, ChatGroup(OPEN_NOW, [current]))
    key = current.pk if current else None
    more = following(reverse("chats:chat-list"), last, key)
    first = [group for group in groups if group.name in {OPEN_NOW, PINNED}]
    days = [group for group in groups if group not in first]
    return ChatList(days, current=key, more=more, first=first, folders=folders)


def list_after(*, user: User, after: ListPlace, current: uuid.UUID | None) -> ChatList:
    """Return the page of the chat list after a place.

    It leaves out the current chat, which the first page has.
    """
    chats, last = listing.chats_of(owner=user, after=after)
    groups = grouped([chat for chat in chats if chat.pk != current], after=after)
    more = following(reverse("chats:chat-list"), last, current)
    return ChatList(groups, current=current, more=more)


def folder_part(
    *, folder: Folder, after: ListPlace | None = None, current: uuid.UUID | None = None
) -> ChatList:
    """Return the chats of a folder after a place, from its beginning without one."""
    chats, last = listing.chats_in(folder=folder, after=after)
    more = following(reverse("chats:folder", args=[folder.pk]), last, current)
    return ChatList([ChatGroup("", chats)] if chats else [], current=current, more=more)


def archive_for(*, user: User, after: ListPlace | None) -> ChatList:
    """Return the archived chats after a place."""
    chats, last = listing.archived_chats_of(owner=user, after=after)
    more = following(reverse("chats:archive"), last, None)
    return ChatList([ChatGroup("", chats)] if chats else [], current=None, more=more)


def deleted_for(*, user: User, after: DeletedPlace | None) -> ChatList:
    """Return the deleted chats after a place."""
    chats, last = listing.deleted_chats_of(owner=user, after=after)
    query = urlencode({"deleted": f"{last.erase_at.isoformat()}_{last.pk}"}) if last else ""
    more = f"{reverse('chats:archive')}?{query}" if query else ""
    return ChatList([ChatGroup("", chats)] if chats else [], current=None, more=more)


def grouped(chats: Sequence[Chat], *, after: ListPlace | None = None) -> list[ChatGroup]:
    """Group the chats as they come, under a heading for the pinned ones and for each day."""
    today = timezone.localdate()
    before = heading(after.updated_at, pinned=after.pinned, today=today) if after else ""
    named = groupby(
        chats, key=lambda chat: heading(chat.updated_at, pinned=chat.pinned, today=today)
    )
    groups = [ChatGroup(name, list(group)) for name, group in named]
    if groups and groups[0].name == before:
        groups[0] = ChatGroup("", groups[0].chats)
    return groups


def heading(updated_at: datetime, *, pinned: bool, today: date) -> str:
    """Return the heading that a chat stands under; days are those of the reader."""
    return PINNED if pinned else day_name(timezone.localtime(updated_at).date(), today=today)


def following(address: str, last: ListPlace | None, current: uuid.UUID | None) -> str:
    """Return the address of the page after a place; empty after the last."""
    if last is None:
        return ""
    place = f"{int(last.pinned)}_{last.updated_at.isoformat()}_{last.pk}"
    query = urlencode({"after": place, **({"current": current} if current else {})})
    return f"{address}?{query}"


def place_in(text: str) -> ListPlace | None:
    """Return the place that such a query names; None if it names none."""
    try:
        pinned, moment, key = text.split("_")
        updated_at = datetime.fromisoformat(moment).astimezone(UTC)
        return ListPlace(pinned == "1", updated_at, uuid.UUID(key))
    except (ValueError, OverflowError):
        return None


def deleted_place_in(text: str) -> DeletedPlace | None:
    """Return the place among the deleted chats that such a query names; None if it names none."""
    place = place_in(f"0_{text}")
    return DeletedPlace(place.updated_at, place.pk) if place else None

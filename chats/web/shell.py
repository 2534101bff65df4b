"""The app shell of every page: user name and chat list."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import groupby
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext

from chats.actions import listing
from chats.actions.listing import DeletedPlace, ListPlace
from chats.models import Chat, Folder
from chats.web.drawing import get_render_time_ms
from chats.web.words import format_day


@dataclass(frozen=True, slots=True)
class ChatGroup:
    """A section of the chat list. Without a name, it continues a section of the previous page.

    `is_first`: the section is above the folders and days.
    """

    name: str
    chats: Sequence[Chat]
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class ChatList:
    """A page of the chat list. `more` is the URL of the next page; empty on the last one."""

    groups: Sequence[ChatGroup]
    current: uuid.UUID | None
    more: str
    # Sections above the days: the open chat if it is not listed, pinned chats, folders.
    first: Sequence[ChatGroup] = ()
    folders: Sequence["FolderPart"] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.groups or self.first or self.folders)


@dataclass(frozen=True, slots=True)
class FolderPart:
    """A folder heading. Its chats are listed if it contains the open chat."""

    folder: Folder
    list: ChatList | None


@dataclass(frozen=True, slots=True)
class Shell:
    """The chat list and the user name. The list includes all changes before `drawn_at`."""

    list: ChatList
    drawn_at: int
    name: str
    initials: str


def build_shell(*, user: User, current: Chat | None = None) -> Shell:
    """Return the app shell of a page, with the current chat marked in the list."""
    drawn_at = get_render_time_ms()
    name = user.get_full_name() or user.get_username()
    return Shell(
        list=list_for(user=user, current=current),
        drawn_at=drawn_at,
        name=name,
        initials="".join(word[0] for word in name.split()[:2]).upper(),
    )


def list_for(*, user: User, current: Chat | None = None) -> ChatList:
    """Return the first page of the chat list, and the user's folders.

    The folder of the current chat is expanded. A current chat that is not on the page is added at
    the top.
    """
    chats, last = listing.list_sidebar_chats(owner=user)
    groups = group_chats(chats)
    is_filed = current is not None and not current.archived and not current.pinned
    may_have = not chats or chats[0].has_folders  # type: ignore[attr-defined]  # by `paginate_chats`
    folders = [
        FolderPart(
            folder,
            load_folder_chats(folder=folder, current=current.pk)
            if current is not None and is_filed and folder.pk == current.folder_id
            else None,
        )
        for folder in (listing.list_folders(owner=user) if may_have else ())
    ]
    shown = [*groups, *(g for part in folders if part.list for g in part.list.groups)]
    if current is not None and not any(current in group.chats for group in shown):
        groups.insert(0, ChatGroup(gettext("Current chat"), [current], is_first=True))
    key = current.pk if current else None
    more = build_next_page_url(reverse("chats:chat-list"), last, key)
    first = [group for group in groups if group.is_first]
    days = [group for group in groups if not group.is_first]
    return ChatList(days, current=key, more=more, first=first, folders=folders)


def list_after(*, user: User, after: ListPlace, current: uuid.UUID | None) -> ChatList:
    """Return the page of the chat list after a position.

    Leaves out the current chat, which the first page already lists.
    """
    chats, last = listing.list_sidebar_chats(owner=user, after=after)
    groups = group_chats([chat for chat in chats if chat.pk != current], after=after)
    more = build_next_page_url(reverse("chats:chat-list"), last, current)
    return ChatList(groups, current=current, more=more)


def load_folder_chats(
    *, folder: Folder, after: ListPlace | None = None, current: uuid.UUID | None = None
) -> ChatList:
    """Return a page of the chats in a folder; the first page without `after`."""
    chats, last = listing.list_folder_chats(folder=folder, after=after)
    more = build_next_page_url(reverse("chats:folder", args=[folder.pk]), last, current)
    return ChatList([ChatGroup("", chats)] if chats else [], current=current, more=more)


def archive_for(*, user: User, after: ListPlace | None) -> ChatList:
    chats, last = listing.list_archived_chats(owner=user, after=after)
    more = build_next_page_url(reverse("chats:archive"), last, None)
    return ChatList([ChatGroup("", chats)] if chats else [], current=None, more=more)


def load_deleted_chats(*, user: User, after: DeletedPlace | None) -> ChatList:
    chats, last = listing.list_deleted_chats(owner=user, after=after)
    query = urlencode({"deleted": f"{last.erase_at.isoformat()}_{last.pk}"}) if last else ""
    more = f"{reverse('chats:archive')}?{query}" if query else ""
    return ChatList([ChatGroup("", chats)] if chats else [], current=None, more=more)


def group_chats(chats: Sequence[Chat], *, after: ListPlace | None = None) -> list[ChatGroup]:
    """Group the chats in order, under a heading for pinned chats and one for each day."""
    today = timezone.localdate()
    days = groupby(chats, key=lambda chat: get_chat_day(chat.updated_at, pinned=chat.pinned))
    groups = [
        ChatGroup(format_day_heading(day, today=today), list(group), is_first=day is None)
        for day, group in days
    ]
    if (
        groups
        and after
        and get_chat_day(after.updated_at, pinned=after.pinned)
        == get_chat_day(groups[0].chats[0].updated_at, pinned=groups[0].chats[0].pinned)
    ):
        groups[0] = replace(groups[0], name="")
    return groups


def get_chat_day(updated_at: datetime, *, pinned: bool) -> date | None:
    """Return the day of a chat's last change in the reader's time zone; None if it is pinned."""
    return None if pinned else timezone.localtime(updated_at).date()


def format_day_heading(day: date | None, *, today: date) -> str:
    """Return the heading of a day, or of the pinned chats if `day` is None."""
    return gettext("Pinned") if day is None else format_day(day, today=today)


def build_next_page_url(address: str, last: ListPlace | None, current: uuid.UUID | None) -> str:
    """Return the URL of the page after a list position; empty after the last page."""
    if last is None:
        return ""
    place = f"{int(last.pinned)}_{last.updated_at.isoformat()}_{last.pk}"
    query = urlencode({"after": place, **({"current": current} if current else {})})
    return f"{address}?{query}"


def parse_list_place(text: str) -> ListPlace | None:
    """Return the list position encoded in a query value, or None."""
    try:
        pinned, moment, key = text.split("_")
        updated_at = datetime.fromisoformat(moment).astimezone(UTC)
        return ListPlace(pinned == "1", updated_at, uuid.UUID(key))
    except (ValueError, OverflowError):
        return None


def parse_deleted_place(text: str) -> DeletedPlace | None:
    """Return the position among deleted chats encoded in a query value, or None."""
    place = parse_list_place(f"0_{text}")
    return DeletedPlace(place.updated_at, place.pk) if place else None

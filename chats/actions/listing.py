"""Lists a user's chats: in the sidebar, in a folder, archived, deleted."""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Exists, OuterRef, Q, QuerySet

from chats.models import Chat, Folder, Turn
from chats.models.chats import IN_SIDEBAR
from chats.models.turns import UNFINISHED
from chats.record import access

# Chats per page.
LISTED = 50


@dataclass(frozen=True, slots=True)
class ListPlace:
    """The position of a chat in a list, from which the next page continues."""

    pinned: bool
    updated_at: datetime
    pk: uuid.UUID

    @classmethod
    def of(cls, chat: Chat) -> Self:
        return cls(chat.pinned, chat.updated_at, chat.pk)

    def following(self, *, pinned_first: bool) -> Q:
        """Return the condition for the chats after this position, written to use the index."""
        later = Q(updated_at__lt=self.updated_at) | Q(pk__lt=self.pk)
        later &= Q(updated_at__lte=self.updated_at)
        if not pinned_first:
            return later
        # `IN` with one value lets SQLite use the index, unlike "NOT pinned".
        same = Q(pinned__in=[self.pinned]) & later
        return same | Q(pinned=False) if self.pinned else same


@dataclass(frozen=True, slots=True)
class DeletedPlace:
    """The position of a chat in the list of deleted chats."""

    erase_at: datetime
    pk: uuid.UUID

    def following(self) -> Q:
        return Q(erase_at__lt=self.erase_at) | Q(erase_at=self.erase_at, pk__lt=self.pk)


def list_sidebar_chats(
    *, owner: AbstractBaseUser, after: ListPlace | None = None
) -> tuple[list[Chat], ListPlace | None]:
    """List the next chats that are pinned or in no folder, pinned first, then newest first.

    Also returns the position of the last chat, or None at the end.
    """
    rows = Chat.objects.filter(IN_SIDEBAR, owner=owner.pk)
    return paginate_chats(rows, after=after, order=("-pinned", "-updated_at", "-pk"))


def list_folder_chats(
    *, folder: Folder, after: ListPlace | None = None
) -> tuple[list[Chat], ListPlace | None]:
    """List the next chats of a folder that are neither pinned nor archived, newest first.

    Also returns the position of the last chat, or None at the end.
    """
    rows = Chat.objects.filter(folder=folder, archived=False, deleted_at=None, pinned=False)
    return paginate_chats(rows, after=after)


def list_archived_chats(
    *, owner: AbstractBaseUser, after: ListPlace | None = None
) -> tuple[list[Chat], ListPlace | None]:
    """List the next archived chats of a user, newest first.

    Also returns the position of the last chat, or None at the end.
    """
    rows = Chat.objects.filter(owner=owner.pk, archived=True, deleted_at=None)
    return paginate_chats(rows, after=after)


def list_deleted_chats(
    *, owner: AbstractBaseUser, after: DeletedPlace | None = None
) -> tuple[list[Chat], DeletedPlace | None]:
    """List the next chats that a user can restore, the latest erasure date first.

    Temporary chats, which cannot be restored, are left out. Also returns the position of
    the last chat, or None at the end.
    """
    rows = access.get_erasable_chats(user=owner).filter(
        deleted_at__isnull=False, erase_at__isnull=False, temporary=False
    )
    if after:
        rows = rows.filter(after.following())
    found = list(rows.order_by("-erase_at", "-pk")[: LISTED + 1])
    page = found[:LISTED]
    last = page[-1] if len(found) > LISTED else None
    return page, DeletedPlace(last.erase_at, last.pk) if last and last.erase_at else None


def list_folders(*, owner: AbstractBaseUser) -> list[Folder]:
    return list(Folder.objects.filter(owner=owner.pk).order_by("name"))


def paginate_chats(
    rows: QuerySet[Chat],
    *,
    after: ListPlace | None,
    order: tuple[str, ...] = ("-updated_at", "-pk"),
) -> tuple[list[Chat], ListPlace | None]:
    """Return the next page of chats, and the position of its last chat if more follow.

    Each chat has the annotations `is_replying` and `has_folders`.
    """
    running = Turn.objects.filter(branch__chat=OuterRef("pk"), status__in=UNFINISHED)
    # Queried with the chats: most people have no folders and then need no extra query.
    owned = Folder.objects.filter(owner=OuterRef("owner"))
    rows = rows.annotate(is_replying=Exists(running), has_folders=Exists(owned))
    if after:
        rows = rows.filter(after.following(pinned_first="-pinned" in order))
    found = list(rows.order_by(*order)[: LISTED + 1])
    page: list[Chat] = [*found[:LISTED]]
    return page, ListPlace.of(page[-1]) if len(found) > LISTED else None

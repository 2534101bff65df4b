"""Loads rows and authorises in one query.

For everyone but its owner, a chat does not exist. For its owner, a deleted chat does not exist
until it is restored; only the archive of the owner's data contains it.
"""

import uuid
from typing import TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import F, Model, Q, QuerySet

from chats.ground.refusals import NotFound
from chats.models import (
    Branch,
    Chat,
    Compaction,
    Folder,
    Message,
    MessageImage,
    Receipt,
    Team,
    Turn,
)
from chats.record import statements
from contextpolicy.models import AuditEvent

Person = AbstractBaseUser | AnonymousUser
Row = TypeVar("Row", bound=Model)


def get_visible_chats(*, user: Person) -> QuerySet[Chat]:
    """Return the chats that a user may read: their own, except deleted ones."""
    return get_erasable_chats(user=user).filter(deleted_at=None)


def get_erasable_chats(*, user: Person) -> QuerySet[Chat]:
    """Return the chats that a user may erase: their own, including deleted ones."""
    return Chat.objects.filter(owner_id=user.pk) if user.is_authenticated else Chat.objects.none()


def get_or_not_found(rows: QuerySet[Row]) -> Row:
    """Return the single row. Raises `NotFound` for both missing and forbidden rows."""
    try:
        # `first` would add an ordering that costs as much as fetching the row.
        return rows.get()
    except ObjectDoesNotExist:
        raise NotFound from None


def get_chat(*, user: Person, chat_id: uuid.UUID) -> Chat:
    """Return the user's chat with its branch and model. Raises `NotFound`."""
    rows = get_visible_chats(user=user).filter(pk=chat_id)
    return get_or_not_found(rows.select_related("active_branch", "model", "owner"))


def get_chat_branch(*, user: Person, chat_id: uuid.UUID) -> Branch:
    """Return the active branch of a chat, with the chat and the active compaction.

    Raises `NotFound`.
    """
    mine = get_visible_chats(user=user).filter(pk=chat_id)
    rows = Branch.objects.filter(chat__in=mine, chat__active_branch=F("pk"))
    return get_or_not_found(rows.select_related("parent", "active_compaction__base", "chat__model"))


def get_chat_with_model(*, user: Person, chat_id: uuid.UUID) -> Chat:
    """Return the chat with only its model, for callers that reload it under a lock.

    Raises `NotFound`.
    """
    chat = statements.OWN_CHAT.first(chat=chat_id, owner=user.pk) if user.is_authenticated else None
    if chat is None:
        raise NotFound
    return chat


def get_chat_including_deleted(*, user: Person, chat_id: uuid.UUID) -> Chat:
    """Return the user's chat, even if deleted. Raises `NotFound`."""
    return get_or_not_found(get_erasable_chats(user=user).filter(pk=chat_id))


def get_deleted_chat(*, user: Person, chat_id: uuid.UUID) -> Chat:
    """Return a chat that the user deleted and that is not erased yet. Raises `NotFound`."""
    return get_or_not_found(
        get_erasable_chats(user=user).filter(pk=chat_id, deleted_at__isnull=False)
    )


def get_message_image(
    *, user: Person, chat_id: uuid.UUID, message_id: uuid.UUID, sha256: str
) -> MessageImage:
    """Return an image of a message in a user's chat by its hash. Raises `NotFound`."""
    mine = get_visible_chats(user=user).filter(pk=chat_id)
    return get_or_not_found(
        MessageImage.objects.filter(
            message__branch__chat__in=mine, message=message_id, sha256=sha256
        )
    )


def get_folder(*, user: Person, folder_id: uuid.UUID) -> Folder:
    """Return the user's folder. Raises `NotFound`."""
    mine = Folder.objects.filter(owner=user.pk) if user.is_authenticated else Folder.objects.none()
    return get_or_not_found(mine.filter(pk=folder_id))


def get_visible_teams(*, user: Person) -> QuerySet[Team]:
    """Return the teams that a user may use: their own and the shared ones."""
    if not user.is_authenticated:
        return Team.objects.none()
    mine = Q(owner_id=user.pk) | Q(owner=None)
    return Team.objects.filter(mine, deleted_at=None, current__isnull=False)


def get_team(*, user: Person, team_id: uuid.UUID) -> Team:
    """Return a team that the user may use, with its version. Raises `NotFound`."""
    return get_or_not_found(
        get_visible_teams(user=user).filter(pk=team_id).select_related("current")
    )


def get_erasure_certificate(*, user: Person, chat_id: uuid.UUID) -> AuditEvent:
    """Return the certificate of a chat that this user erased. Raises `NotFound`."""
    rows = AuditEvent.objects.filter(scope=f"chat:{chat_id}", type="chat.erased")
    return get_or_not_found(rows.filter(actor=f"user:{user.pk}"))


def get_turn(*, user: Person, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Turn:
    """Return a turn of the user's chat. Raises `NotFound`."""
    rows = get_visible_turns(user=user, chat_id=chat_id).filter(pk=turn_id)
    return get_or_not_found(rows.select_related("branch__chat", "trigger"))


def get_receipt(
    *, user: Person, chat_id: uuid.UUID, turn_id: uuid.UUID, receipt_id: uuid.UUID
) -> Receipt:
    """Return the receipt of a call in a turn of the user's chat. Raises `NotFound`."""
    turns = get_visible_turns(user=user, chat_id=chat_id).filter(pk=turn_id)
    rows = Receipt.objects.filter(pk=receipt_id, turn__in=turns)
    return get_or_not_found(rows.select_related("effective_policy", "turn__branch__chat__owner"))


def check_turn(*, user: Person, chat_id: uuid.UUID, turn_id: uuid.UUID) -> None:
    """Raise `NotFound` as `get_turn` does, without loading the row."""
    values = {"turn": turn_id, "chat": chat_id, "owner": user.pk}
    if not user.is_authenticated or not statements.VISIBLE_TURN.tuples(**values):
        raise NotFound


def is_turn_owner(*, user: Person, turn_id: uuid.UUID) -> bool:
    """Return True if the turn belongs to one of the user's chats."""
    return bool(statements.OWN_TURN.tuples(turn=turn_id, owner=user.pk))


def get_visible_turns(*, user: Person, chat_id: uuid.UUID) -> QuerySet[Turn]:
    return Turn.objects.filter(
        branch__chat_id=chat_id, branch__chat__in=get_visible_chats(user=user)
    )


def get_message(*, user: Person, chat_id: uuid.UUID, message_id: uuid.UUID) -> Message:
    """Return a message of the user's chat. Raises `NotFound`."""
    rows = Message.objects.filter(
        pk=message_id, branch__chat_id=chat_id, branch__chat__in=get_visible_chats(user=user)
    )
    return get_or_not_found(rows.select_related("branch__chat"))


def get_compaction(*, user: Person, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Compaction:
    """Return a compaction of the user's chat. Raises `NotFound`."""
    rows = Compaction.objects.filter(
        pk=compaction_id, branch__chat_id=chat_id, branch__chat__in=get_visible_chats(user=user)
    )
    return get_or_not_found(rows.select_related("branch__chat", "previous"))

"""Load and authorise in one query: what is not yours does not exist."""

import uuid
from typing import TypeVar

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import F, Model, QuerySet

from chats.models import Branch, Chat, Compaction, Message, Turn
from chats.refusals import NotFound
from contextpolicy import prepared
from contextpolicy.models import AuditEvent

Person = AbstractBaseUser | AnonymousUser
Row = TypeVar("Row", bound=Model)


def chats_visible_to(*, user: Person) -> QuerySet[Chat]:
    """The chats a person may read: their own."""
    return Chat.objects.filter(owner_id=user.pk) if user.is_authenticated else Chat.objects.none()


def one(rows: QuerySet[Row]) -> Row:
    """The single row, or `NotFound`: absent and forbidden are the same answer."""
    try:
        # Not `first`, which would order: for one row that costs as much as fetching it.
        return rows.get()
    except ObjectDoesNotExist:
        raise NotFound from None


def chat_for(*, user: Person, chat_id: uuid.UUID) -> Chat:
    """The chat with its branch and model, if it is the person's. Raises `NotFound`."""
    rows = chats_visible_to(user=user).filter(pk=chat_id)
    return one(rows.select_related("active_branch", "model", "owner"))


def branch_for(*, user: Person, chat_id: uuid.UUID) -> Branch:
    """The active branch of a chat, with the chat and what is in force. Raises `NotFound`."""
    mine = chats_visible_to(user=user).filter(pk=chat_id)
    rows = Branch.objects.filter(chat__in=mine, chat__active_branch=F("pk"))
    return one(rows.select_related("parent", "active_compaction__base", "chat__model"))


def named_chat_for(*, user: Person, chat_id: uuid.UUID) -> Chat:
    """The same chat with its model alone, for those who read it again under a lock."""
    chat = _NAMED.first(chat=chat_id, owner=user.pk) if user.is_authenticated else None
    if chat is None:
        raise NotFound
    return chat


_NAMED = prepared.Select(
    lambda at: Chat.objects.select_related("model").filter(pk=at("chat"), owner_id=at("owner"))
)


def certificate_for(*, user: Person, chat_id: uuid.UUID) -> AuditEvent:
    """The certificate of a chat that this person erased. Raises `NotFound`."""
    rows = AuditEvent.objects.filter(scope=f"chat:{chat_id}", type="chat.erased")
    return one(rows.filter(actor=f"user:{user.pk}"))


def turn_for(*, user: Person, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Turn:
    """The turn, if it is of that chat and the chat is the person's. Raises `NotFound`."""
    rows = turns_visible_to(user=user, chat_id=chat_id).filter(pk=turn_id)
    return one(rows.select_related("branch__chat", "trigger"))


def check_turn(*, user: Person, chat_id: uuid.UUID, turn_id: uuid.UUID) -> None:
    """Raise `NotFound` where `turn_for` would; reads no row, for those who need none."""
    values = {"turn": turn_id, "chat": chat_id, "owner": user.pk}
    if not user.is_authenticated or not _TURN.tuples(**values):
        raise NotFound


_TURN = prepared.Select(
    lambda at: Turn.objects.filter(
        pk=at("turn"), branch__chat_id=at("chat"), branch__chat__owner_id=at("owner")
    ).values_list("pk")
)


def turns_visible_to(*, user: Person, chat_id: uuid.UUID) -> QuerySet[Turn]:
    """The turns of a chat, if the chat is the person's."""
    return Turn.objects.filter(
        branch__chat_id=chat_id, branch__chat__in=chats_visible_to(user=user)
    )


def message_for(*, user: Person, chat_id: uuid.UUID, message_id: uuid.UUID) -> Message:
    """The message, if it is of that chat and the chat is the person's. Raises `NotFound`."""
    rows = Message.objects.filter(
        pk=message_id, branch__chat_id=chat_id, branch__chat__in=chats_visible_to(user=user)
    )
    return one(rows.select_related("branch__chat"))


def compaction_for(*, user: Person, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Compaction:
    """The compaction, if it is of that chat and the chat is the person's. Raises `NotFound`."""
    rows = Compaction.objects.filter(
        pk=compaction_id, branch__chat_id=chat_id, branch__chat__in=chats_visible_to(user=user)
    )
    return one(rows.select_related("branch__chat", "previous"))

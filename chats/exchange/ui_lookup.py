"""Finds chats, turns and messages by the ids of UI messages."""

import uuid
from typing import cast

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import Q, QuerySet

from chats.ground.refusals import NotFound
from chats.models import Branch, Chat, Message, Turn
from chats.models.turns import UNFINISHED
from chats.record import access, history


def find_chat(chat_id: str, *, user: AbstractBaseUser) -> Chat | None:
    """Return the user's chat with our id or the client's id, or None.

    Raises `NotFound` for a deleted chat and for another user's chat.
    """
    own = parse_own_id(chat_id)
    if own is not None and Chat.objects.filter(pk=own).exists():
        return access.get_chat(user=user, chat_id=own)
    known = Chat.objects.filter(owner=user.pk, client_id=chat_id).first()
    return access.get_chat(user=user, chat_id=known.pk) if known else None


def get_ui_chat(chat_id: str, *, user: AbstractBaseUser) -> Chat:
    """Return the user's chat with our id or the client's id. Raises `NotFound`."""
    chat = find_chat(chat_id, user=user)
    if chat is None:
        raise NotFound
    return chat


def find_running_turn(chat: Chat) -> Turn | None:
    """Return the oldest unfinished turn of the active branch, which a client can follow.

    None if all turns have ended.
    """
    rows = Turn.objects.filter(branch=chat.active_branch_id, status__in=UNFINISHED)
    return rows.order_by("accepted").first()


def is_empty_chat(chat: Chat) -> bool:
    """Return True if the active path of a chat has no message, and none is queued."""
    queued = Message.objects.filter(branch=chat.active_branch_id, seq=None)
    return not load_branch(chat).last_seq and not queued.exists()


def is_unfinished(chat: Chat, ui_id: str) -> bool:
    """Return True if a UI message is a reply in progress, or a message that is still queued."""
    own = parse_own_id(ui_id)
    running = Turn.objects.filter(branch=chat.active_branch_id, status__in=UNFINISHED)
    if own is not None and running.filter(pk=own).exists():
        return True
    return select_by_ui_id(
        Message.objects.filter(branch=chat.active_branch_id, seq=None), ui_id
    ).exists()


def find_message(chat: Chat, ui_id: str) -> Message | None:
    """Return the newest message on the active path that belongs to a UI message.

    Otherwise a queued message that belongs to it, or None.
    """
    found = select_by_ui_id(select_path(load_branch(chat)), ui_id).last()
    return (
        found
        or select_by_ui_id(
            Message.objects.filter(branch=chat.active_branch_id, seq=None), ui_id
        ).first()
    )


def select_by_ui_id(rows: QuerySet[Message], ui_id: str) -> QuerySet[Message]:
    """Return the stored messages of a UI message, by our id, the client's, or a turn's.

    For a turn, these are its user message and its steps; without a reply, only the user message.
    """
    own = parse_own_id(ui_id)
    wanted = Q(metadata__source__id=ui_id)
    if own is not None:
        wanted |= Q(pk=own)
        turn = resolve_turn(own)
        if turn is not None:
            wanted |= Q(turn=turn.pk) | Q(pk=turn.trigger_id)
    return rows.filter(wanted)


def resolve_turn(turn_id: uuid.UUID) -> Turn | None:
    """Return the turn that replies: the given one, or the turn that absorbed it.

    None if no turn has this id.
    """
    turn = Turn.objects.select_related("absorbed_by").filter(pk=turn_id).first()
    return turn.absorbed_by or turn if turn else None


def parse_own_id(text: str) -> uuid.UUID | None:
    """Parse one of our UUIDs; None for an id that the client chose."""
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


def load_branch(chat: Chat) -> Branch:
    """Reload the active branch of a chat."""
    return Branch.objects.select_related("parent").get(pk=cast(uuid.UUID, chat.active_branch_id))


def select_path(branch: Branch) -> QuerySet[Message]:
    """Return the messages on the branch's path, oldest first."""
    return history.select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")

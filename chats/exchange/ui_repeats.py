"""Recognises requests of `useChat` clients that were sent again because their response was lost."""

from collections.abc import Mapping
from typing import Any

from chats.exchange.ui_lookup import load_branch, parse_own_id, select_path
from chats.models import Chat, Message, Turn
from chats.models.turns import UNFINISHED


def matches_sent_message(stored: Message, *, text: str, source: Mapping[str, Any]) -> bool:
    """Return True if a stored user message has this text, and this id and data of its client."""
    is_own = stored.role == Message.Role.USER and stored.erased_at is None
    return is_own and stored.text == text and stored.metadata.get("source") == source


def find_current_turn(chat: Chat, message: Message) -> Turn | None:
    """Return the turn that replies to the last user message of the active path.

    None if the message is not the last one of its person, or has no turn on the path.
    """
    branch = load_branch(chat)
    queued = Message.objects.filter(branch=branch, seq=None).exclude(pk=message.pk)
    if message.seq is None:
        queued = queued.filter(accepted__gt=message.accepted)
    else:
        later = select_path(branch).filter(seq__gt=message.seq)
        if later.filter(role=Message.Role.USER).exists():
            return None
        step = later.filter(turn__isnull=False).select_related("turn").first()
        if step is not None:
            return step.turn
    if queued.exists():
        return None
    rows = Turn.objects.filter(branch=branch, trigger=message).select_related("absorbed_by")
    newest = rows.order_by("-accepted").first()
    return (newest.absorbed_by or newest) if newest else None


def find_newest_unfinished(chat: Chat) -> Turn | None:
    """Return the newest turn of the active branch that is queued or running, or None."""
    rows = Turn.objects.filter(branch=chat.active_branch_id, status__in=UNFINISHED)
    return rows.order_by("-accepted").first()


def find_replacement(chat: Chat, message: Message, *, ui_id: str) -> Turn | None:
    """Return the turn that replaced a reply to a message, or that is replacing it now.

    `ui_id`: the id in the request, of the reply or of the message. A message with a complete reply
    can be meant to get another one, so only the id of an earlier reply names a replaced one.
    """
    current = find_current_turn(chat, message)
    named = parse_own_id(ui_id)
    if current is None or current.pk == named:
        return None
    if not current.is_over:
        return current
    if named is None or current.status != Turn.Status.COMPLETED:
        return None
    replies = Turn.objects.filter(pk=named, trigger=message).exclude(status=Turn.Status.ABSORBED)
    return current if replies.exists() else None

"""Soft-deletes chats, and ends temporary chats.

A deleted chat is hidden everywhere at once. When its retention period ends (`actions.expiry`), it
is erased like any other chat (`actions.erasure`).
"""

from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.actions.lifecycle import check_chat_number
from chats.compaction import coverage
from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.models import Chat, Message, PendingErasure
from chats.people import sessions
from chats.record import holds
from chats.record.locking import ChatErased, lock_chat, lock_chat_row
from chats.turns.stop import stop_all
from contextpolicy import ledger


class CannotComeBack(Refusal):
    """The chat was temporary and is being erased, so it cannot be restored."""

    code = "chat_cannot_come_back"
    status = 409
    sentence = gettext_noop("This temporary chat is being erased and cannot be restored.")


@transaction.atomic
def delete_chat(*, chat: Chat, actor: str, now: datetime) -> Chat:
    """Hide the chat until it is erased or restored, and stop its replies and summaries.

    A temporary chat cannot be restored. Deleting a chat again has no effect. Raises `ChatErased`.
    """
    # Claims of summaries lock a branch, so none begins from here on.
    lock_chat(chat.pk)
    days = 0 if chat.temporary else settings.DELETED_CHAT_DAYS
    until = now + timedelta(days=days)
    hidden = Chat.objects.filter(pk=chat.pk, deleted_at=None)
    if hidden.update(deleted_at=now, erase_at=until):
        pending = coverage.lock_pending_summaries(chat)
        stop_all(chat=chat, actor=actor, now=now)
        coverage.retire_summaries(pending, reason="chat_deleted", now=now, actor=actor)
        coverage.forget_summaries_due(chat)
        data = {
            "messages": Message.objects.filter(branch__chat=chat).count(),
            "erase_at": until.isoformat(),
        }
        ledger.record_event("chat.deleted", actor=actor, now=now, chat_id=chat.pk, data=data)
        if chat.temporary:
            queue.enqueue(queue.ERASE_CHAT, chat_id=chat.pk)
    chat.refresh_from_db()
    return chat


@transaction.atomic
def restore_chat(*, chat: Chat, actor: str, now: datetime) -> Chat:
    """Restore a deleted chat and cancel its erasure.

    Does nothing to a chat that is not deleted. Raises `CannotComeBack`, `TooManyChats` and
    `ChatErased`.
    """
    if chat.temporary and chat.deleted_at:
        raise CannotComeBack
    if lock_chat_row(chat.pk).deleted_at:
        # Locked after the chat, so that parallel requests count each other's chats.
        User.objects.select_for_update(no_key=True).get(pk=chat.owner_id)
        check_chat_number(chat.owner_id)
    deleted = Chat.objects.filter(pk=chat.pk, deleted_at__isnull=False)
    if deleted.update(deleted_at=None, erase_at=None):
        # First: it locks the pending erasures, which come before the ledger's head.
        holds.cancel_pending_erasures(PendingErasure.objects.filter(chat=chat), now=now)
        ledger.record_event("chat.restored", actor=actor, now=now, chat_id=chat.pk)
    chat.refresh_from_db()
    return chat


def sign_out(*, user: AbstractBaseUser, now: datetime) -> None:
    """Record that a user signed out, and delete their temporary chats."""
    sessions.note_logout(user=user, now=now)
    for chat in Chat.objects.filter(owner=user.pk, temporary=True, deleted_at=None):
        with suppress(ChatErased):
            delete_chat(chat=chat, actor=f"user:{user.pk}", now=now)

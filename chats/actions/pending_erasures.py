"""Runs pending erasures after their legal hold has ended."""

import uuid
from contextlib import suppress
from datetime import datetime
from typing import cast

from django.db import transaction

from chats.actions import erasure, memory, running_replies
from chats.memory.preferences.memory_settings import lock_memory_settings
from chats.models import Chat, Message, PendingErasure, Preference
from chats.record import holds
from chats.record.holds import UnderHold
from chats.turns.statements import PERSON_LOCK


def run_pending_erasure(*, erasure_id: uuid.UUID, now: datetime) -> bool:
    """Run a pending erasure. Returns True if it is done.

    It stays pending while a hold covers it, or while a reply uses the content; the next due job
    tries again.
    """
    busy = (running_replies.StillAnswering, running_replies.StillReferred)
    with suppress(PendingErasure.DoesNotExist, Chat.DoesNotExist, UnderHold, *busy):
        pending = PendingErasure.objects.select_related("message__branch").get(pk=erasure_id)
        with transaction.atomic():
            erase_pending_content(pending, now=now)
            return True
    return False


def erase_pending_content(pending: PendingErasure, *, now: datetime) -> None:
    """Erase the content and the pending erasure, in the caller's transaction.

    The erasure may have been cancelled, or the content erased, before the content is locked. Raises
    PendingErasure.DoesNotExist, `UnderHold`, `StillAnswering` and `StillReferred`.
    """
    by = f"user:{pending.owner_id}"
    if pending.preference_id is not None:
        PERSON_LOCK.hold(owner=pending.owner_id)
        lock_memory_settings(pending.owner_id)
        memory.erase_preference(cast(Preference, lock_pending(pending).preference), now=now)
    elif pending.message is not None:
        chat = erasure.lock_for_erasure(pending.message.branch.chat_id)
        message = cast(Message, lock_pending(pending).message)
        if message.erased_at:
            pending.delete()
            return
        running_replies.check_over(message)
        quotes = [str(quote.message.pk) for quote in erasure.list_quotes(message)]
        more = {"wished_at": pending.asked_at.isoformat(), "quoted_by": quotes}
        erasure.erase_locked_messages({message: more}, chat=chat, by=by, now=now)
    elif pending.chat_id is not None:
        chat = erasure.lock_for_erasure(pending.chat_id)
        lock_pending(pending)
        erasure.erase_locked_chat(chat, by=by, reason="asked", now=now)


def lock_pending(pending: PendingErasure) -> PendingErasure:
    """Lock a pending erasure after its content, and return it with the content.

    Raises PendingErasure.DoesNotExist if it was cancelled.
    """
    rows = PendingErasure.objects.select_related("message__branch", "preference")
    return rows.select_for_update(of=("self",)).get(pk=pending.pk)


def cancel_pending_erasure(*, owner_id: int, erasure_id: uuid.UUID, now: datetime) -> bool:
    """Cancel a pending erasure. Returns True if there was one.

    A hidden chat stays hidden until it is restored, which cancels its erasure too.
    """
    with transaction.atomic():
        return bool(
            holds.cancel_pending_erasures(
                holds.list_pending_erasures(owner_id=owner_id).filter(pk=erasure_id), now=now
            )
        )

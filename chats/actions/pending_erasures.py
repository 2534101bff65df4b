"""Runs pending erasures after their legal hold has ended."""

import uuid
from contextlib import suppress
from datetime import datetime

from django.db import transaction

from chats.actions import erasure, memory
from chats.models import Chat, PendingErasure
from chats.record import holds
from chats.record.holds import UnderHold
from chats.record.locking import lock_chat_for_erasure


def run_pending_erasure(*, erasure_id: uuid.UUID, now: datetime) -> bool:
    """Run a pending erasure. Returns True if it is done.

    It stays pending while a hold covers it, or while a reply uses the content; the next due job
    tries again.
    """
    busy = (erasure.StillAnswering, erasure.StillReferred)
    with suppress(PendingErasure.DoesNotExist, Chat.DoesNotExist, UnderHold, *busy):
        pending = PendingErasure.objects.select_related("message__branch", "preference").get(
            pk=erasure_id
        )
        with transaction.atomic():
            erase_pending_content(pending, now=now)
            return True
    return False


def erase_pending_content(pending: PendingErasure, *, now: datetime) -> None:
    """Erase the content and the pending erasure, in the caller's transaction.

    Raises `UnderHold`, `StillAnswering` and `StillReferred`.
    """
    by = f"user:{pending.owner_id}"
    if pending.preference is not None:
        memory.erase_preference(pending.preference, now=now)
    elif pending.message is not None:
        chat = lock_chat_for_erasure(pending.message.branch.chat_id)
        erasure.check_over(pending.message)
        more = {"wished_at": pending.asked_at.isoformat(), "quoted_by": []}
        erasure.erase_locked_message(pending.message, chat=chat, by=by, now=now, more=more)
        pending.delete()
    elif pending.chat_id is not None:
        erasure.erase_locked_chat(
            lock_chat_for_erasure(pending.chat_id), by=by, reason="asked", now=now
        )


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

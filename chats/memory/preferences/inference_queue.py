"""Finds and claims chats in which a model looks for preferences."""

import secrets
import uuid
from datetime import datetime, timedelta

from django.db.models import F, Q
from django.db.models.functions import Now

from chats.ground import leases, queue
from chats.models import PreferenceReading

# Idle time before a chat is read, and delay after a temporary failure.
REST = timedelta(minutes=10)
# Lease of a call beyond its timeout, and time after which a task counts as lost.
LEASE = timedelta(seconds=90)
LOST_AFTER = timedelta(seconds=60)
# Maximum attempts if the worker dies.
MOST_TRIES = 2
AT_ONCE = 20
RELEASED = {"lease_token": "", "lease_until": None}


def schedule_idle_reading(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Schedule the inference of a chat's preferences in 10 minutes. Later replies postpone it."""
    PreferenceReading.objects.update_or_create(chat_id=chat_id, defaults={"due_at": now + REST})


def schedule_immediate_reading(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Schedule the inference of a waiting chat's preferences now, in the caller's transaction."""
    if PreferenceReading.objects.filter(chat=chat_id, due_at__gt=now).update(due_at=now):
        queue.enqueue(queue.READ_PREFERENCES, chat_id=chat_id)


def claim_chat_reading(chat_id: uuid.UUID) -> PreferenceReading | None:
    """Claim a chat that is due. None if another worker has it or there is nothing to read.

    Skips a chat after two worker deaths. Runs in the caller's transaction.
    """
    free = Q(lease_until=None) | leases.match_expired_leases()
    mine = PreferenceReading.objects.filter(free, chat=chat_id)
    token = secrets.token_urlsafe(32)
    taken = mine.filter(due_at__lte=Now() + LOST_AFTER).update(
        lease_token=token, lease_until=leases.add_to_now(LEASE)
    )
    if not taken:
        return None
    row = PreferenceReading.objects.get(chat=chat_id)
    if row.tries >= MOST_TRIES:
        row.read_to, row.tries = max(row.read_to, row.reading_to), 0
        row.save(update_fields=["read_to", "tries"])
    return row


def release_chat_reading(
    row: PreferenceReading, *, due_at: datetime | None, to: int | None = None
) -> None:
    """Release a claimed chat. `to` is the position read so far; it is due again at `due_at`."""
    rows = PreferenceReading.objects.filter(chat=row.chat_id, lease_token=row.lease_token)
    done = {} if to is None else {"read_to": to, "tries": 0}
    # Messages that arrived during the call wait until the chat is idle again.
    later = {"due_at": due_at} if due_at else {}
    rows.update(**done, **later, **RELEASED)
    if due_at is None:
        rows = PreferenceReading.objects.filter(chat=row.chat_id, lease_until=None)
        rows.filter(due_at=row.due_at).update(due_at=None)


def enqueue_due() -> int:
    """Enqueue chats that have been idle, and chats whose task was lost. Returns their number."""
    free = Q(lease_until=None) | leases.match_expired_leases()
    due = PreferenceReading.objects.filter(free, due_at__lte=Now()).order_by("due_at")
    found = list(due.values_list("chat", flat=True)[:AT_ONCE])
    for chat_id in found:
        queue.enqueue(queue.READ_PREFERENCES, chat_id=chat_id)
    rows = PreferenceReading.objects.filter(chat__in=found, due_at=F("due_at"))
    rows.update(due_at=leases.add_to_now(LOST_AFTER))
    return len(found)

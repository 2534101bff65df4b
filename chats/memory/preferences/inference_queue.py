"""Schedules and claims the chats from which a model infers preferences."""

import uuid
from datetime import datetime, timedelta

from django.db.models import F, Q
from django.db.models.functions import Now

from chats.ground import leases, queue
from chats.ground.jobs import Job
from chats.models import PreferenceReading

# Idle time before a chat is read, and delay after a temporary failure.
REST = timedelta(minutes=10)
# Time after which a task counts as lost.
LOST_AFTER = timedelta(seconds=60)
# Maximum attempts if the worker dies.
MOST_TRIES = 2
AT_ONCE = 240
# The lease of a call exceeds its timeout.
READINGS = Job(
    PreferenceReading,
    task=queue.READ_PREFERENCES,
    argument="chat_id",
    length=timedelta(seconds=90),
)


def schedule_idle_reading(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Schedule preference inference for a chat in 10 minutes. Later replies postpone it."""
    PreferenceReading.objects.update_or_create(chat_id=chat_id, defaults={"due_at": now + REST})


def schedule_immediate_reading(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Make the scheduled preference inference of a chat due now.

    Runs in the caller's transaction.
    """
    if PreferenceReading.objects.filter(chat=chat_id, due_at__gt=now).update(due_at=now):
        queue.enqueue(queue.READ_PREFERENCES, chat_id=chat_id)


def claim_chat_reading(chat_id: uuid.UUID) -> PreferenceReading | None:
    """Claim a chat that is due. None if it is not due or another worker has it.

    After two worker deaths, skips the messages that were being read. Runs in the caller's
    transaction.
    """
    if READINGS.claim(chat_id, Q(due_at__lte=Now() + LOST_AFTER)) is None:
        return None
    row = PreferenceReading.objects.get(chat=chat_id)
    if row.tries >= MOST_TRIES:
        row.read_to, row.tries = max(row.read_to, row.reading_to), 0
        row.save(update_fields=["read_to", "tries"])
    return row


def release_chat_reading(
    row: PreferenceReading, *, due_at: datetime | None, to: int | None = None
) -> None:
    """Release a claimed chat and schedule its next inference at `due_at`, if given.

    `to` is the position up to which the chat has been read; None: unchanged.
    """
    done = {} if to is None else {"read_to": to, "tries": 0}
    # Messages that arrived during the call wait until the chat is idle again.
    later = {"due_at": due_at} if due_at else {}
    READINGS.get_lease(row).release(**done, **later)
    if due_at is None:
        rows = PreferenceReading.objects.filter(chat=row.chat_id, lease_until=None)
        rows.filter(due_at=row.due_at).update(due_at=None)


def enqueue_due() -> int:
    """Enqueue chats that have been idle, and chats whose task was lost. Returns the count."""
    due = READINGS.select_free_rows().filter(due_at__lte=Now()).order_by("due_at")
    found = list(due.values_list("chat", flat=True)[:AT_ONCE])
    READINGS.enqueue_rows(found)
    rows = PreferenceReading.objects.filter(chat__in=found, due_at=F("due_at"))
    rows.update(due_at=leases.add_to_now(LOST_AFTER))
    return len(found)

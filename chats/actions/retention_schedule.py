"""Decides whether a retention run is due, and enqueues its task.

The run is in `chats.actions.retention`. A due job calls this module.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from chats.ground import queue
from chats.ground.jobs import Job
from chats.models import RetentionRun
from contextpolicy.models import ContextPolicy

FIELD = "retention_days"
# Hours of the night, in the zone of `now` (UTC). A run is due this long after the start of the
# previous one: at night, and during the day.
NIGHT = range(1, 5)
NIGHTLY, LATE = timedelta(hours=20), timedelta(hours=36)
RUNS = Job(RetentionRun, task=queue.RETAIN, is_open=Q(is_open=True))


def enqueue_due(*, now: datetime) -> int:
    """Enqueue the task if a run is due or unfinished. Returns the number of tasks, 0 or 1."""
    if not RUNS.select_free_rows().exists() and not is_retention_due(now=now):
        return 0
    queue.enqueue(queue.RETAIN)
    return 1


def is_retention_due(*, now: datetime) -> bool:
    """Return True if a run should start: once a night, if any policy limits the age of messages.

    If the server was off at night, the run starts during the day. The first run of an instance
    waits for the night.
    """
    last = RetentionRun.objects.order_by("-started_at").first()
    if last is not None:
        since = NIGHTLY if now.hour in NIGHT else LATE
        if last.is_open or now - last.started_at < since:
            return False
    elif now.hour not in NIGHT:
        return False
    return is_limited()


def is_limited() -> bool:
    """Return True if any policy limits the age of messages."""
    policies = ContextPolicy.objects.filter(retired=False, current__values__has_key=FIELD)
    return any(
        values[FIELD] is not None for values in policies.values_list("current__values", flat=True)
    )

"""Decides whether a retention run is due, and enqueues its task.

The run is in `chats.actions.retention`. The sweep calls this module.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from chats.ground import leases, queue
from chats.models import RetentionRun
from contextpolicy.models import ContextPolicy

FIELD = "retention_days"
NIGHT = range(1, 5)
NIGHTLY, LATE = timedelta(hours=20), timedelta(hours=36)


def enqueue_due(*, now: datetime) -> int:
    """Enqueue the task if a run is due or unfinished. Returns the number of tasks, 0 or 1."""
    left = RetentionRun.objects.filter(match_free_runs(), is_open=True)
    if not left.exists() and not is_retention_due(now=now):
        return 0
    queue.enqueue(queue.RETAIN)
    return 1


def is_retention_due(*, now: datetime) -> bool:
    """Return True if a run should start: once a night, if any policy limits the age of messages.

    If the server was off at night, the run starts during the day.
    """
    last = RetentionRun.objects.order_by("-started_at").first()
    if last is not None:
        since = NIGHTLY if now.hour in NIGHT else LATE
        if last.is_open or now - last.started_at < since:
            return False
    elif now.hour not in NIGHT:
        return False
    return is_limited()


def match_free_runs() -> Q:
    """Return the condition for unfinished rows without a lease, or with an expired one."""
    return Q(lease_until=None) | leases.match_expired_leases()


def is_limited() -> bool:
    """Return True if any policy limits the age of messages."""
    policies = ContextPolicy.objects.filter(retired=False, current__values__has_key=FIELD)
    return any(
        values[FIELD] is not None for values in policies.values_list("current__values", flat=True)
    )

"""Selects waiting policy counts and evaluations, and enqueues their tasks.

The work itself is in `chats.simulation`. The sweep calls this module.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from chats.ground import leases, queue
from contextpolicy.models import AuditEvent, BlastRadius, EvaluatedTurn, Evaluation

ENDED_TURN = "turn.completed"
# How long evaluated turns are kept, and how many a sweep deletes at most.
KEPT = timedelta(days=30)
DELETED_AT_ONCE = 1_000


def enqueue_due(*, now: datetime) -> int:
    """Enqueue the task of each count and each evaluation with work to do. Returns their number.

    Also deletes some evaluated turns that are too old.
    """
    rows = BlastRadius.objects.filter(match_free_simulations(), state=BlastRadius.State.COUNTING)
    counts = list(rows.values_list("pk", flat=True))
    for radius_id in counts:
        queue.enqueue(queue.COUNT_RADIUS, radius_id=radius_id)
    found = [row for row in list_free_evaluations() if is_evaluation_due(row, now=now)]
    for row in found:
        queue.enqueue(queue.EVALUATE, evaluation_id=row.pk)
    old = EvaluatedTurn.objects.filter(at__lt=now - KEPT).values_list("pk", flat=True)
    if gone := list(old[:DELETED_AT_ONCE]):
        EvaluatedTurn.objects.filter(pk__in=gone).delete()
    return len(counts) + len(found)


def list_free_evaluations() -> list[Evaluation]:
    """Return the open evaluations that no worker holds."""
    rows = Evaluation.objects.filter(match_free_simulations(), state=Evaluation.State.OPEN)
    return list(rows.select_related("policy__current"))


def is_evaluation_due(row: Evaluation, *, now: datetime) -> bool:
    """Return True if an evaluation has turns to evaluate, or should end."""
    current = row.policy.current
    if now >= row.ends_at or (current.number if current else 0) != row.base:
        return True
    return AuditEvent.objects.filter(type=ENDED_TURN, pk__gt=row.cursor).exists()


def match_free_simulations() -> Q:
    """Return the condition for unfinished rows without a lease, or with an expired one."""
    return Q(lease_until=None) | leases.match_expired_leases()

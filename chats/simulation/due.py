"""Selects waiting policy counts and evaluations, and enqueues their tasks.

The work itself is in `chats.simulation`. A due job calls this module.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from chats.ground import queue
from chats.ground.jobs import Job
from contextpolicy.models import AuditEvent, BlastRadius, EvaluatedTurn, Evaluation

ENDED_TURN = "turn.completed"
# Retention of evaluated turns, and the maximum number that one run deletes.
KEPT = timedelta(days=30)
DELETED_AT_ONCE = 1_000
RADIUS_COUNTS = Job(
    BlastRadius,
    task=queue.COUNT_RADIUS,
    argument="radius_id",
    is_open=Q(state=BlastRadius.State.COUNTING),
)
EVALUATIONS = Job(
    Evaluation,
    task=queue.EVALUATE,
    argument="evaluation_id",
    is_open=Q(state=Evaluation.State.OPEN),
)


def enqueue_due(*, now: datetime) -> int:
    """Enqueue the task of each count and each evaluation with work to do. Returns the count.

    Also deletes some evaluated turns that are too old.
    """
    free = EVALUATIONS.select_free_rows().select_related("policy__current")
    evaluations = [row.pk for row in free if is_evaluation_due(row, now=now)]
    enqueued = RADIUS_COUNTS.enqueue_free_rows() + EVALUATIONS.enqueue_rows(evaluations)
    old = EvaluatedTurn.objects.filter(at__lt=now - KEPT).values_list("pk", flat=True)
    if gone := list(old[:DELETED_AT_ONCE]):
        EvaluatedTurn.objects.filter(pk__in=gone).delete()
    return enqueued


def is_evaluation_due(row: Evaluation, *, now: datetime) -> bool:
    """Return True if an evaluation has turns to evaluate, or should end."""
    current = row.policy.current
    if now >= row.ends_at or (current.number if current else 0) != row.base:
        return True
    return AuditEvent.objects.filter(type=ENDED_TURN, pk__gt=row.cursor).exists()

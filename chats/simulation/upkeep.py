"""Compares the turns that ended since the last run, for each open evaluation.

The ledger lists ended turns, so a reply never waits for an evaluation. Each turn gets
one row. If a worker is killed, the next one continues.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F

from chats.ground import databases
from chats.ground.background_lock import alone
from chats.ground.jobs import JobLease
from chats.models import Turn
from chats.simulation.due import ENDED_TURN, EVALUATIONS
from chats.simulation.evaluating import end_if_due
from chats.simulation.shadow import (
    TurnEvaluation,
    Unknown,
    count_turn_totals,
    evaluate_turn,
    find_completed_turn,
    is_in_share,
)
from contextpolicy.models import AuditEvent, EvaluatedTurn, Evaluation

logger = logging.getLogger(__name__)
# Maximum duration of one task in seconds, and turns read at once.
SECONDS = 10.0
PAGE = 100
# Pause between two turns, for others that wait for SQLite's only writer or the background lock.
REST = 0.02
# Maximum delay of a ledger row behind one with a higher number, when its transaction took longer.
LATEST = timedelta(seconds=60)


EvaluationLease = JobLease[Evaluation]


def continue_evaluation(
    *, evaluation_id: uuid.UUID, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> None:
    """Compare new turns for a few seconds, and enqueue the next task if turns are left."""
    lease = EVALUATIONS.claim(evaluation_id)
    if lease is None:
        return
    row = Evaluation.objects.select_related("policy__current", "version").get(pk=evaluation_id)
    steps = run_evaluation_steps(row, lease=lease)
    if lease.run_steps(steps, seconds=SECONDS, is_closing=is_closing, pause=REST):
        move_cursor(row, lease=lease, now=clock())
        end_if_due(row, now=clock())


def run_evaluation_steps(row: Evaluation, *, lease: EvaluationLease) -> Iterator[None]:
    """Compare the turns after the cursor that have no row yet, oldest first. Raises `LeaseLost`."""
    after = row.cursor
    while page := list_completed_turns(after):
        after = page[-1][0]
        ids = [turn_id for _, turn_id in page]
        done = EvaluatedTurn.objects.filter(evaluation=row, turn_id__in=ids)
        known = set(done.values_list("turn_id", flat=True))
        for turn_id in ids:
            if turn_id in known:
                continue
            turn = find_completed_turn(turn_id)
            if turn is None or not is_in_share(turn.branch_id, share=row.share):
                continue
            with alone:
                found = evaluate_turn_safely(row, turn=turn)
                store_turn_evaluation(found, lease=lease)
            yield


def list_completed_turns(pk: int) -> list[tuple[int, uuid.UUID]]:
    """Return the next completed turns, each with its ledger number."""
    rows = AuditEvent.objects.filter(type=ENDED_TURN, pk__gt=pk, turn_id__isnull=False)
    found = rows.order_by("pk").values_list("pk", "turn_id")[:PAGE]
    return [(number, turn_id) for number, turn_id in found if turn_id]


def evaluate_turn_safely(row: Evaluation, *, turn: Turn) -> TurnEvaluation:
    """Compare one turn. A failure counts as unknown, so that other turns are still compared."""
    try:
        return evaluate_turn(row, turn=turn)
    except Exception as error:
        if databases.is_retryable_error(error):
            # Database error, not this turn's fault: let a later task retry.
            raise
        # Never log its text, because a database includes the row's values.
        logger.error("turn %s was not judged: %s", turn.pk, type(error).__name__)  # noqa: TRY400
        at = turn.finished_at or turn.queued_at
        unknown = EvaluatedTurn(
            evaluation=row,
            turn_id=turn.pk,
            at=at,
            outcome=EvaluatedTurn.Outcome.UNKNOWN,
            reason=Unknown("failed").code,
        )
        return TurnEvaluation(unknown, None, count_turn_totals(unknown))


def store_turn_evaluation(found: TurnEvaluation, *, lease: EvaluationLease) -> None:
    """Store a comparison, its coverage and the totals in one transaction. Raises `LeaseLost`."""
    with transaction.atomic():
        lease.renew(**{name: F(name) + more for name, more in found.counts.items()})
        found.row.save(force_insert=True)
        if found.coverage is not None:
            found.coverage.save()


def move_cursor(row: Evaluation, *, lease: EvaluationLease, now: datetime) -> None:
    """Release the lease, and move the cursor past ledger rows that are old enough.

    A row may be committed up to `LATEST` later than a row with a higher number, so the
    cursor stays before newer rows.
    """
    settled = AuditEvent.objects.filter(type=ENDED_TURN, pk__gt=row.cursor, at__lt=now - LATEST)
    newest = settled.order_by("-pk").values_list("pk", flat=True).first()
    lease.release(**({} if newest is None else {"cursor": newest}))

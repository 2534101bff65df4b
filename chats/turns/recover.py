"""The sweep: what a dead worker or a lost broker message left behind goes on.

Idempotent and safe to run twice at once: each step is one conditional UPDATE.
"""

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import (
    DateTimeField,
    DurationField,
    Exists,
    ExpressionWrapper,
    OuterRef,
    Q,
    QuerySet,
)
from django.db.models.functions import Now

from chats import queue
from chats.compaction import maintain, plan
from chats.memory import archive
from chats.models import Receipt, Turn
from chats.turns.lease import RELEASED
from chats.turns.start import UNFINISHED
from chats.turns.steps import attempt_data, enqueue_next
from contextpolicy import ledger, prepared, verification

LOST_CODE = "worker_lost"
LOST_SENTENCE = (
    "The reply was begun {losses} times and each time its worker ended before it was written."
    " Your message is saved. Try again; if it happens again, tell an operator."
)


def sweep(*, now: datetime) -> int:
    """Re-queue turns whose lease ran out and enqueue what waited too long; returns how many.

    Compactions whose worker ended are closed too, and lost indexing goes on.
    """
    return (
        release_expired(now=now)
        + enqueue_overdue()
        + maintain.sweep(now=now)
        + archive.sweep()
        + enqueue_verifications(now=now)
    )


def take_over(*, now: datetime, worker: str) -> int:
    """Free at once what workers held that are known to have ended; their names begin with `worker`.

    Returns how many turns went on. Their summaries are closed and asked for again.
    """
    released = release_expired(now=now, worker=worker)
    if plan.expire(worker=worker):
        plan.sweep_dead(now=now)
    return released


def release_expired(*, now: datetime, worker: str = "") -> int:
    """Take turns from workers that stopped renewing; at once from those of a given name."""
    gone = Turn.objects.filter(status=Turn.Status.RUNNING)
    ended = Q(worker__startswith=worker) if worker else Q(lease_until__lt=Now())
    gone = gone.filter(ended)
    released = 0
    for turn in gone.select_related("branch").order_by("queued_at"):
        with transaction.atomic():
            released += release(turn, now=now)
    return released


def release(turn: Turn, *, now: datetime) -> int:
    """One lost turn: back into the queue, or failed after too many losses."""
    mine = Turn.objects.filter(pk=turn.pk, status=Turn.Status.RUNNING, lease_token=turn.lease_token)
    losses = turn.losses + 1
    if turn.stop_requested_at:
        changes = {"status": Turn.Status.STOPPED, "finished_at": now}
    elif losses >= settings.MAX_ATTEMPTS:
        changes = {
            "status": Turn.Status.FAILED,
            "finished_at": now,
            "error_code": LOST_CODE,
            "error_sentence": LOST_SENTENCE.format(losses=losses),
        }
    else:
        changes = {"status": Turn.Status.QUEUED, "queued_at": now}
    if not mine.update(losses=losses, **changes, **RELEASED):
        return 0
    Receipt.objects.filter(turn=turn, outcome=Receipt.Outcome.OPEN).update(
        outcome=Receipt.Outcome.LOST, finished_at=now
    )
    requeued = changes["status"] == Turn.Status.QUEUED
    ledger.record(
        "turn.requeued" if requeued else f"turn.{changes['status']}",
        actor="system",
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data={"losses": losses, **attempt_data(turn)},
    )
    enqueue_next(branch_id=turn.branch_id)
    return 1


def enqueue_verifications(*, now: datetime) -> int:
    """Send tasks again for verifications of the ledger that nobody began."""
    found = verification.overdue(now=now, age=timedelta(seconds=settings.REQUEUE_AFTER))
    for number in found:
        queue.enqueue(queue.VERIFY_LEDGER, verification_id=number)
    return len(found)


def overdue(at: prepared.At) -> QuerySet[Turn]:
    """Turns that wait for longer than they should, or that a worker gave back."""
    running = Turn.objects.filter(branch=OuterRef("branch"), status=Turn.Status.RUNNING)
    since = ExpressionWrapper(Now() - at("age", DurationField()), output_field=DateTimeField())
    # Asked twice of the status: SQLite finds the index of unfinished turns by its own words only,
    # and without it would look through all turns there ever were.
    waiting = Turn.objects.filter(status__in=UNFINISHED, status=Turn.Status.QUEUED)
    return waiting.filter(~Exists(running), Q(queued_at__lt=since) | Q(handed_back=True))


_OVERDUE = prepared.Select(lambda at: overdue(at).order_by("queued_at").values_list("pk")[:1000])


def enqueue_overdue() -> int:
    """Send tasks again for turns that no worker fetched: their broker message may be lost."""
    found = _OVERDUE.tuples(age=timedelta(seconds=settings.REQUEUE_AFTER))
    for (turn_id,) in found:
        queue.enqueue(queue.RUN_TURN, turn_id=turn_id)
    return len(found)

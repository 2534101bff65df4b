"""The sweep: resumes work after a worker died or a broker message was lost.

Idempotent and safe to run concurrently: each step is one conditional UPDATE.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from chats import shipping
from chats.checkpoints import upkeep
from chats.compaction import claims, embedding, maintain
from chats.counts import keeping
from chats.ground import databases, leases, queue
from chats.ground.sentences import Sentence
from chats.memory import archive, clearing
from chats.models import Receipt, SkippedRow, Turn
from chats.record import (
    ageing,
    holds,
    imports,
    kept_texts,
    locking,
    outbox,
    passed_on,
    simulations,
)
from chats.record.expiry import select_expired_chats
from chats.turns import inferring, rounds, statements, titles, warm_ups
from chats.turns.lease import RELEASED
from chats.turns.steps import build_attempt_data, build_failure_fields, enqueue_next
from contextpolicy import ledger, verification

ERASED_AT_ONCE = 20
LOST_CODE = "worker_lost"
LOST_SENTENCE = gettext_noop(
    "The reply was started {losses} times, and its worker stopped each time, often because of a "
    "lack of memory. Your message is saved. Try again. If it happens again, tell an operator."
)


def run_sweep(*, now: datetime) -> int:
    """Run all steps of the sweep and return the number of items handled.

    The steps are independent: a step that fails is recorded as a `SkippedRow` and the others run.
    Errors that may pass, such as a lost connection, propagate. `STEPS` lists the steps.
    """
    done = 0
    for name, step in STEPS.items():
        try:
            done += step(now)
        except Exception as error:
            if databases.is_retryable_error(error):
                raise
            SkippedRow.note(job="sweep", row=name, error=error, now=now)
    return done


def take_over(*, now: datetime, worker: str) -> int:
    """Release at once everything held by dead workers whose names start with `worker`.

    Returns the number of released turns. Their summaries are closed and requested again.
    """
    released = release_expired(now=now, worker=worker)
    if claims.expire_worker_claims(worker=worker):
        claims.sweep_dead(now=now)
    if warm_ups.expire_warm_ups(worker=worker):
        warm_ups.sweep_warm_ups(now=now)
    return released


def release_expired(*, now: datetime, worker: str = "") -> int:
    """Release turns with an expired lease, or all turns of the named worker."""
    gone = Turn.objects.filter(status=Turn.Status.RUNNING)
    ended = Q(worker__startswith=worker) if worker else leases.match_expired_leases()
    gone = gone.filter(ended)
    released = 0
    for turn in gone.select_related("branch").order_by("queued_at"):
        try:
            with transaction.atomic():
                released += release_lost_turn(turn, now=now)
        except Exception as error:
            if databases.is_retryable_error(error):
                raise
            SkippedRow.note(job="lost replies", row=f"turn {turn.pk}", error=error, now=now)
    return released


def release_lost_turn(turn: Turn, *, now: datetime) -> int:
    """Requeue one lost turn, or fail it after `MAX_ATTEMPTS` losses."""
    if turn.round_id is not None:
        # Serialises with accepting a message: only one transaction decides which turn follows.
        locking.lock_turn_chat(turn.pk)
    mine = Turn.objects.filter(pk=turn.pk, status=Turn.Status.RUNNING, lease_token=turn.lease_token)
    losses = turn.losses + 1
    if turn.stop_requested_at:
        changes = {"status": Turn.Status.STOPPED, "finished_at": now}
    elif losses >= settings.MAX_ATTEMPTS:
        changes = {
            "status": Turn.Status.FAILED,
            "finished_at": now,
            "error_code": LOST_CODE,
            **build_failure_fields(Sentence(LOST_SENTENCE, losses=losses)),
        }
    else:
        changes = {"status": Turn.Status.QUEUED, "queued_at": now}
    if turn.client is not None and changes["status"] != Turn.Status.QUEUED:
        changes["client"] = {}
    if not mine.update(losses=losses, **changes, **RELEASED):
        return 0
    Receipt.objects.filter(turn=turn, outcome=Receipt.Outcome.OPEN).update(
        outcome=Receipt.Outcome.LOST, finished_at=now
    )
    requeued = changes["status"] == Turn.Status.QUEUED
    ledger.record_event(
        "turn.requeued" if requeued else f"turn.{changes['status']}",
        actor="system",
        now=now,
        chat_id=turn.branch.chat_id,
        turn_id=turn.pk,
        data={"losses": losses, **build_attempt_data(turn)},
    )
    if not requeued and turn.round_id is not None:
        # The step at a turn's end that its worker missed.
        rounds.advance_round(turn, status=str(changes["status"]), reply=None, usage={}, now=now)
    if requeued and turn.lane:
        # Its lane may come after other lanes, and blocks none of them.
        queue.enqueue(queue.RUN_TURN, turn_id=turn.pk)
    enqueue_next(branch_id=turn.branch_id)
    return 1


def enqueue_verifications(*, now: datetime) -> int:
    """Enqueue overdue verifications of the ledger again."""
    found = verification.list_overdue_verifications(
        now=now, age=timedelta(seconds=settings.REQUEUE_AFTER)
    )
    for number in found:
        queue.enqueue(queue.VERIFY_LEDGER, verification_id=number)
    return len(found)


def enqueue_erasures(*, now: datetime) -> int:
    """Enqueue erasures that are due: expired chats, and erasures that a legal hold delayed.

    At most `ERASED_AT_ONCE` of each; the next sweep continues.
    """
    found = select_expired_chats(now=now).values_list("pk", flat=True)[:ERASED_AT_ONCE]
    for chat_id in found:
        queue.enqueue(queue.ERASE_CHAT, chat_id=chat_id)
    pending = holds.list_due_erasures(now=now).values_list("pk", flat=True)[:ERASED_AT_ONCE]
    for erasure_id in pending:
        queue.enqueue(queue.RUN_PENDING_ERASURE, erasure_id=erasure_id)
    return len(found) + len(pending)


def erase_kept_texts(*, now: datetime) -> int:
    """Erase texts that were kept under legal holds which have ended; return how many."""
    erased = kept_texts.erase_due(now=now)
    if erased:
        clearing.truncate_log()
    return erased


def enqueue_overdue() -> int:
    """Enqueue queued turns again that no worker fetched. Their broker message may be lost."""
    found = statements.OVERDUE.tuples(age=timedelta(seconds=settings.REQUEUE_AFTER))
    for (turn_id,) in found:
        queue.enqueue(queue.RUN_TURN, turn_id=turn_id)
    return len(found)


# The steps by name. Operators see the name of a step that failed.
STEPS: dict[str, Callable[[datetime], int]] = {
    "lost replies": lambda now: release_expired(now=now),
    "waiting replies": lambda _now: enqueue_overdue(),
    "summaries": lambda now: maintain.sweep_summaries(now=now),
    "search": lambda _now: archive.requeue_stalled_indexing(),
    "erased words": lambda now: clearing.clear_erasure_log(now=now),
    "warm-ups": lambda now: warm_ups.sweep_warm_ups(now=now),
    "titles": lambda now: titles.sweep_title_calls(now=now),
    "preferences": lambda now: inferring.sweep_inference_calls(now=now),
    "embeddings": lambda _now: embedding.enqueue_due(),
    "verification": lambda now: enqueue_verifications(now=now),
    "erasures": lambda now: enqueue_erasures(now=now),
    "kept texts": lambda now: erase_kept_texts(now=now),
    "retention": lambda now: ageing.enqueue_due(now=now),
    "policy counts and evaluations": lambda now: simulations.enqueue_due(now=now),
    "imports": lambda now: imports.enqueue_due(now=now),
    "checkpoints": lambda now: upkeep.enqueue_due(now=now),
    "counts": lambda _now: keeping.enqueue_due(),
    "ledger lines": lambda _now: shipping.enqueue_due(),
    "webhooks": lambda now: outbox.enqueue_due(now=now),
    "passed-on requests": lambda now: passed_on.sweep_passthrough(now=now),
}

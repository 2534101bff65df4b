"""The sweep: resumes work after a worker died or a broker message was lost.

Idempotent and safe to run concurrently: each step is one conditional UPDATE.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from django.conf import settings

from chats.actions import retention_schedule
from chats.actions.expiry import select_expired_chats
from chats.background import cache_warming, ledger_export_lines, preference_inference, titles
from chats.checkpoints import upkeep
from chats.compaction import claims, embedding, maintain
from chats.counts import keeping
from chats.files import reading, storage, uploads
from chats.ground import databases, queue
from chats.memory.search import archive, clearing
from chats.models import SkippedRow
from chats.record import holds, imports, kept_texts, outbox, passed_on
from chats.simulation import due
from chats.turns.recover import enqueue_overdue, release_expired
from contextpolicy import verification

ERASED_AT_ONCE = 20


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
    """Release everything that is held by dead workers whose names start with `worker`.

    Returns the number of released turns. Their summaries are closed and requested again.
    """
    released = release_expired(now=now, worker=worker)
    if claims.expire_worker_claims(worker=worker):
        claims.sweep_dead(now=now)
    if cache_warming.expire_warm_ups(worker=worker):
        cache_warming.sweep_warm_ups(now=now)
    return released


def enqueue_verifications(*, now: datetime) -> int:
    """Enqueue requested verifications again whose task was lost. Return their number."""
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
    """Erase texts that were kept under legal holds which have ended. Returns their number."""
    erased = kept_texts.erase_due(now=now)
    if erased:
        clearing.truncate_log()
    return erased


# The steps by name. Operators see the name of a step that failed.
STEPS: dict[str, Callable[[datetime], int]] = {
    "lost replies": lambda now: release_expired(now=now),
    "waiting replies": lambda _now: enqueue_overdue(),
    "summaries": lambda now: maintain.sweep_summaries(now=now),
    "search": lambda _now: archive.requeue_stalled_indexing(),
    "erased words": lambda now: clearing.clear_erasure_log(now=now),
    "warm-ups": lambda now: cache_warming.sweep_warm_ups(now=now),
    "titles": lambda now: titles.sweep_title_calls(now=now),
    "preferences": lambda now: preference_inference.sweep_inference_calls(now=now),
    "embeddings": lambda _now: embedding.enqueue_due(),
    "verification": lambda now: enqueue_verifications(now=now),
    "erasures": lambda now: enqueue_erasures(now=now),
    "kept texts": lambda now: erase_kept_texts(now=now),
    "retention": lambda now: retention_schedule.enqueue_due(now=now),
    "policy counts and evaluations": lambda now: due.enqueue_due(now=now),
    "imports": lambda now: imports.enqueue_due(now=now),
    "unread files": lambda now: reading.enqueue_unread_files(now=now),
    "unused files": lambda now: uploads.delete_unused_files(now=now),
    "removed files": lambda now: storage.remove_due_bytes(now=now),
    "checkpoints": lambda now: upkeep.enqueue_due(now=now),
    "counts": lambda _now: keeping.enqueue_due(),
    "ledger lines": lambda _now: ledger_export_lines.enqueue_due(),
    "webhooks": lambda now: outbox.enqueue_due(now=now),
    "passed-on requests": lambda now: passed_on.sweep_passthrough(now=now),
}

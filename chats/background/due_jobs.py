"""The due jobs: each resumes lost work, or starts work that has become due.

Work is lost if its worker dies or its broker message is lost. The jobs are idempotent
and safe to run concurrently: each write is one conditional UPDATE.
`chats.ground.schedule` has their periods.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from django.conf import settings

from chats.actions import retention_schedule
from chats.actions.expiry import select_expired_chats
from chats.actions.inactive_users import stop_work_of_inactive_users
from chats.background import cache_warming, ledger_export_lines, preference_inference, titles
from chats.checkpoints import upkeep
from chats.compaction import claims, embedding, maintain
from chats.counts import keeping
from chats.files import reading, storage, uploads, working_folders
from chats.ground import databases, queue, schedule
from chats.memory.search import clearing, index_schedule
from chats.models import SkippedRow
from chats.people import sessions
from chats.record import (
    holds,
    idempotency,
    imports,
    kept_texts,
    outbox,
    passthrough_requests,
    quotas,
    reply_logprobs,
)
from chats.simulation import due
from chats.tool_servers import servers
from chats.turns import consents
from chats.turns.recover import enqueue_overdue, release_expired
from chats.webhooks import delivery_results
from contextpolicy import verification

ERASED_AT_ONCE = 120


def run_due_job(name: str, *, now: datetime) -> int:
    """Run one due job and return the number of items that it handled. Errors propagate."""
    return DUE_JOBS[name](now)


def run_all_due_jobs(*, now: datetime) -> int:
    """Run every due job and return the number of items that they handled.

    A job that fails is recorded as a `SkippedRow`, and the others run. Errors that may pass, such
    as a lost connection, propagate.
    """
    return sum(run_due_job_safely(name, now=now) for name in DUE_JOBS)


def run_due_job_safely(name: str, *, now: datetime) -> int:
    """Run one due job outside its task. Record an error like a failed task's, and return 0 then."""
    try:
        return run_due_job(name, now=now)
    except Exception as error:  # noqa: BLE001  # one job holds up no other
        databases.raise_if_passing(error)
        SkippedRow.note(job=schedule.name_task(name), row="all of it", error=error, now=now)
        return 0


def take_over(*, now: datetime, worker: str) -> int:
    """Release everything that is held by dead workers whose names start with `worker`.

    Returns the number of released turns. Summaries and warm-ups of these workers are closed.
    Summaries are requested again.
    """
    released = release_expired(now=now, worker=worker)
    if claims.CLAIMS.expire_leases(worker=worker):
        claims.sweep_dead(now=now)
    if cache_warming.WARM_UPS.expire_leases(worker=worker):
        cache_warming.sweep_warm_ups(now=now)
    return released


def enqueue_verifications(*, now: datetime) -> int:
    """Enqueue again the requested verifications whose task was lost. Return the count."""
    found = verification.list_overdue_verifications(
        now=now, age=timedelta(seconds=settings.REQUEUE_AFTER)
    )
    for number in found:
        queue.enqueue(queue.VERIFY_LEDGER, verification_id=number)
    return len(found)


def enqueue_erasures(*, now: datetime) -> int:
    """Enqueue erasures that are due: expired chats, and erasures that a legal hold delayed.

    Enqueues at most `ERASED_AT_ONCE` of each; the next run continues. Returns the count.
    """
    found = select_expired_chats(now=now).values_list("pk", flat=True)[:ERASED_AT_ONCE]
    for chat_id in found:
        queue.enqueue(queue.ERASE_CHAT, chat_id=chat_id)
    pending = holds.list_due_erasures(now=now).values_list("pk", flat=True)[:ERASED_AT_ONCE]
    for erasure_id in pending:
        queue.enqueue(queue.RUN_PENDING_ERASURE, erasure_id=erasure_id)
    return len(found) + len(pending)


def erase_kept_texts(*, now: datetime) -> int:
    """Erase the texts that were kept only for legal holds which have since ended.

    Returns the count.
    """
    erased = kept_texts.erase_due(now=now)
    if erased:
        clearing.truncate_log()
    return erased


def remove_leftover_bytes(*, now: datetime) -> int:
    """Delete stored bytes whose removal is due, and temporary copies of killed processes.

    Returns the count.
    """
    return storage.remove_due_bytes(now=now) + working_folders.remove_abandoned_folders()


def recover_turns(*, now: datetime) -> int:
    """Release turns of dead workers, and enqueue turns that no worker claimed. Return the count.

    Turns of users whose account is inactive are stopped instead.
    """
    stopped = stop_work_of_inactive_users(now=now)
    return stopped + release_expired(now=now) + enqueue_overdue()


# The keys are the names of the entries in the schedule.
DUE_JOBS: Mapping[str, Callable[[datetime], int]] = {
    "replies": lambda now: recover_turns(now=now),
    "summaries": lambda now: maintain.sweep_summaries(now=now),
    "webhooks": lambda now: outbox.enqueue_due(now=now) + delivery_results.tidy_deliveries(now=now),
    "search": lambda _now: index_schedule.requeue_stalled_indexing(),
    "counts": lambda _now: keeping.enqueue_due(),
    "imports": lambda now: imports.enqueue_due(now=now),
    "unread_files": lambda now: reading.enqueue_unread_files(now=now),
    "embeddings": lambda _now: embedding.enqueue_due(),
    "simulations": lambda now: due.enqueue_due(now=now),
    "tool_consents": lambda now: consents.expire_consents(now=now),
    "tool_servers": lambda _now: servers.enqueue_due_readings(),
    "warm_ups": lambda now: cache_warming.sweep_warm_ups(now=now),
    "titles": lambda now: titles.sweep_title_calls(now=now),
    "preferences": lambda now: preference_inference.sweep_inference_calls(now=now),
    "ledger_lines": lambda _now: ledger_export_lines.enqueue_due(),
    "ledger": lambda now: upkeep.enqueue_due(now=now) + enqueue_verifications(now=now),
    "erasures": lambda now: enqueue_erasures(now=now) + clearing.clear_erasure_log(now=now),
    "kept_texts": lambda now: erase_kept_texts(now=now),
    "retention": lambda now: retention_schedule.enqueue_due(now=now),
    "removed_files": lambda now: remove_leftover_bytes(now=now),
    "unused_files": lambda now: uploads.delete_unused_files(now=now),
    "passed_on_requests": lambda now: passthrough_requests.sweep_passthrough(now=now),
    "old_logprobs": lambda now: reply_logprobs.delete_expired_logprobs(now=now),
    "old_requests": lambda now: (
        idempotency.delete_expired_records(now=now)
        + sessions.delete_expired_sessions(now=now)
        + quotas.delete_old_usage(now=now)
    ),
}

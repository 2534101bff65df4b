"""Celery tasks and signals. Each task only calls one domain function."""

import logging
import math
import os
import sys
import threading
import uuid
from functools import cache
from typing import Any, cast

from celery import shared_task
from celery.beat import EmbeddedService
from celery.signals import (
    after_task_publish,
    beat_embedded_init,
    beat_init,
    task_failure,
    task_postrun,
    task_prerun,
    worker_init,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from chats.actions import erasure, pending_erasures, retention
from chats.background import (
    cache_warming,
    due_jobs,
    ledger_export_lines,
    preference_inference,
    strategy_hooks,
    titles,
)
from chats.checkpoints import upkeep
from chats.compaction import embedding, indexing, maintain, publish, running_summaries
from chats.counts import keeping
from chats.exchange import apart
from chats.files import reading
from chats.ground import databases, heartbeats, queue, queues, schedule
from chats.ground.request_ids import HEADER, NONE, REQUEST
from chats.ground.tracing import trace_span
from chats.models import SkippedRow
from chats.prompt.tokenizer import O200kCounter
from chats.simulation import radius
from chats.simulation import upkeep as evaluations
from chats.tool_servers import servers
from chats.turns.worker.runtime import Runtime
from chats.webhooks import delivering, stamping
from contextpolicy import verification

logger = logging.getLogger(__name__)
# The seconds that a worker may take beyond the time that its replies have.
LAST_SECONDS = 4.0
_making = threading.Lock()
# Set if this worker consumes the queue of the upkeep.
keeps_upkeep = threading.Event()
# The span of the task that each thread runs, as `open`.
spans = threading.local()
# The heartbeat of this process, once it is a worker that is ready.
heartbeat: list[heartbeats.WorkerHeartbeat] = []


def runtime() -> Runtime:
    """Return this process's runtime, created in the first thread that needs it."""
    with _making:
        return _runtime()


@cache
def _runtime() -> Runtime:
    return Runtime()


@shared_task(name=queue.RUN_TURN)
def run_turn(*, turn_id: str, **_later: Any) -> None:
    """Process a turn until it has ended. Duplicate deliveries do nothing, because it is claimed."""
    runtime().run(uuid.UUID(turn_id))


@shared_task(name=queue.MAINTAIN_CHAT)
def maintain_chat(*, chat_id: str, **_later: Any) -> None:
    """Prepare a compaction if the chat's policy requires one."""
    maintain.maintain_chat_context(
        chat_id=uuid.UUID(chat_id),
        counter=O200kCounter(),
        now=timezone.now(),
        clock=timezone.now,
    )


@shared_task(name=queue.TELL_STRATEGY)
def tell_strategy(*, turn_id: str, **_later: Any) -> None:
    """Notify a package's strategy that a turn is complete."""
    strategy_hooks.tell_strategy(turn_id=uuid.UUID(turn_id), counter=O200kCounter())


@shared_task(name=queue.VERIFY_LEDGER)
def verify_ledger(*, verification_id: str, **_later: Any) -> None:
    """Run a requested verification of the ledger."""
    verification.run_verification(pk=int(verification_id), clock=timezone.now)


@shared_task(name=queue.KEEP_LEDGER)
def keep_ledger(**_later: Any) -> None:
    """Sign a checkpoint of the ledger and request a verification, if they are due."""
    upkeep.maintain_ledger(now=timezone.now())


@shared_task(name=queue.STAMP_LEDGER)
def stamp_ledger(**_later: Any) -> None:
    """Request a timestamp of the newest checkpoint from the external authority."""
    stamping.request_due_timestamp(clock=timezone.now)


@shared_task(name=queue.COUNT)
def count(**_later: Any) -> None:
    """Update the daily counts and the balances of compactions from the ledger."""
    keeping.count_ledger_events(
        clock=timezone.now, is_closing=lambda: running_summaries.here.closing
    )


@shared_task(name=queue.SHIP_LEDGER)
def ship_ledger(**_later: Any) -> None:
    """Write new ledger events to the standard output."""
    ledger_export_lines.ship_events(
        clock=timezone.now, is_closing=lambda: running_summaries.here.closing
    )


@shared_task(name=queue.INDEX_CHAT)
def index_chat(*, chat_id: str, **_later: Any) -> None:
    """Index the messages of a chat for search."""
    indexing.update_chat_index(chat_id=uuid.UUID(chat_id))


@shared_task(name=queue.INDEX_CHATS)
def index_chats(*, chat_ids: str, **_later: Any) -> None:
    """Index the new messages of several chats for search."""
    indexing.index_chats(chat_ids=[uuid.UUID(chat_id) for chat_id in chat_ids.split(",")])


@shared_task(name=queue.WARM_UP)
def warm_up(*, branch_id: str, cause: cache_warming.Cause, tries: str = "1", **_later: Any) -> None:
    """Warm up a model server's cache with the prefix of a branch's next prompt."""
    cache_warming.warm_up_branch(
        branch_id=uuid.UUID(branch_id),
        cause=cause,
        tries=int(tries),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running_summaries.here.closing,
    )


@shared_task(name=queue.WRITE_TITLE)
def write_title(*, turn_id: str, **_later: Any) -> None:
    """Let the summary model write a chat's title after its first reply."""
    titles.write_title(
        turn_id=uuid.UUID(turn_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running_summaries.here.closing,
    )


@shared_task(name=queue.READ_PREFERENCES)
def read_preferences(*, chat_id: str, **_later: Any) -> None:
    """Let the summary model suggest preferences of a chat's owner."""
    preference_inference.read_chat(
        chat_id=uuid.UUID(chat_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running_summaries.here.closing,
    )


@shared_task(name=queue.EMBED)
def embed(**_later: Any) -> None:
    """Delete unused vectors, then spend a few seconds embedding texts that have none.

    Enqueues the next task if work remains.
    """
    embedding.continue_embedding_pass(now=timezone.now())


@shared_task(name=queue.EMBED_CHAT)
def embed_chat(*, chat_id: str, **_later: Any) -> None:
    """Embed the indexed messages of a chat that have no vector yet."""
    embedding.embed_chat(uuid.UUID(chat_id), now=timezone.now())


@shared_task(name=queue.ERASE_CHAT)
def erase_chat(*, chat_id: str, **_later: Any) -> None:
    """Erase an expired chat, unless a reply is being written in it."""
    erasure.erase_expired(chat_id=uuid.UUID(chat_id), now=timezone.now())


@shared_task(name=queue.RUN_PENDING_ERASURE)
def run_pending_erasure(*, erasure_id: str = "", wish_id: str = "", **_later: Any) -> None:
    """Run a pending erasure if no legal hold covers it any longer.

    Tasks of older versions pass its id as `wish_id`.
    """
    pending_erasures.run_pending_erasure(
        erasure_id=uuid.UUID(erasure_id or wish_id), now=timezone.now()
    )


@shared_task(name=queue.RETAIN)
def retain(**_later: Any) -> None:
    """Continue the current retention run for a few seconds."""
    retention.continue_retention_run(
        clock=timezone.now, is_closing=lambda: running_summaries.here.closing
    )


@shared_task(name=queue.COUNT_RADIUS)
def count_radius(*, radius_id: str, **_later: Any) -> None:
    """Continue a count of affected chats for a few seconds."""
    radius.continue_radius_count(
        radius_id=uuid.UUID(radius_id),
        clock=timezone.now,
        is_closing=lambda: running_summaries.here.closing,
    )


@shared_task(name=queue.EVALUATE)
def evaluate(*, evaluation_id: str, **_later: Any) -> None:
    """Compare recent turns with an evaluated draft for a few seconds."""
    evaluations.continue_evaluation(
        evaluation_id=uuid.UUID(evaluation_id),
        clock=timezone.now,
        is_closing=lambda: running_summaries.here.closing,
    )


@shared_task(name=queue.IMPORT_FILE)
def import_file(*, import_id: str, **_later: Any) -> None:
    """Continue a file import for a few seconds."""
    apart.import_file(
        import_id=uuid.UUID(import_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running_summaries.here.closing,
    )


@shared_task(name=queue.READ_FILE)
def read_file(*, file_id: str, **_later: Any) -> None:
    """Read an uploaded file: its text, or a copy of an image."""
    reading.read_uploaded_file(file_id=uuid.UUID(file_id), counter=O200kCounter())


@shared_task(name=queue.READ_TOOLS)
def read_tools(*, server_id: str, **_later: Any) -> None:
    """Read the definitions of the tools of a tool server."""
    servers.read_definitions(server_id=int(server_id), counter=O200kCounter(), now=timezone.now())


@shared_task(name=queue.DELIVER)
def deliver(*, lane: str, **_later: Any) -> None:
    """Send the queued webhook deliveries."""
    delivering.send_due_deliveries(
        lane=lane, clock=timezone.now, is_closing=lambda: running_summaries.here.closing
    )


def register_due_job(entry: str) -> None:
    """Register the Celery task of a schedule entry."""

    @shared_task(name=schedule.name_task(entry))
    def run(**_later: Any) -> None:
        due_jobs.run_due_job(entry, now=timezone.now())
        heartbeats.note_run(entry)


for each in schedule.PERIODS:
    register_due_job(each)


@shared_task(name=queue.SWEEP)
def run_all_due_jobs(**_later: Any) -> None:
    """Run every due job. Serves tasks from the schedule of the previous version."""
    due_jobs.run_all_due_jobs(now=timezone.now())


@task_failure.connect
def note_failure(
    sender: Any = None, exception: Any = None, kwargs: Any = None, **_signal: Any
) -> None:
    """Report an unexpected task failure to operators, with the task and its argument.

    Database errors are left out: they are temporary and reported elsewhere.
    """
    if isinstance(exception, Exception) and not databases.is_retryable_error(exception):
        given = kwargs if isinstance(kwargs, dict) else {}
        row = ", ".join(f"{name} {value}" for name, value in sorted(given.items()))
        SkippedRow.note(
            job=str(getattr(sender, "name", "task")),
            row=row or "all of it",
            error=exception,
            now=timezone.now(),
        )


@task_prerun.connect
def name_request(sender: Any = None, **_signal: Any) -> None:
    """Set the id of the request that sent the task, for this thread's log lines."""
    headers = sender.request.headers or {}
    REQUEST.set(headers.get(HEADER) or NONE)
    logger.debug("%s begins", sender.name)
    spans.open = trace_span("task", {"task.name": sender.name}, carrier=headers)
    spans.open.__enter__()


@task_postrun.connect
def end_span(**_signal: Any) -> None:
    """End the span of this thread's task."""
    spans.open.__exit__(None, None, None)


@worker_init.connect
def share_threads(sender: Any = None, **_signal: Any) -> None:
    """Let summaries use at most three quarters of this worker's threads.

    Summaries wait for models most of the time. The other threads stay free for other work.
    """
    threads = sender.concurrency or 1
    running_summaries.here.most = max(threads - math.ceil(threads / 4), 1)
    taken = sender.app.amqp.queues.consume_from.keys()
    if queues.UPKEEP in taken:
        keeps_upkeep.set()
    if taken <= set(queues.BACKGROUND):
        # In seconds. A thread that holds SQLite's lock soon gets the interpreter back from a
        # thread that computes.
        sys.setswitchinterval(0.001)


@worker_ready.connect
def sweep_at_start(**_signal: Any) -> None:
    """At start, resume the unfinished work of this worker's predecessor."""
    running_summaries.here.keep_leases(publish.renew_all)
    queue.index_batcher.start()
    if settings.TAKES_OVER:
        due_jobs.take_over(now=timezone.now(), worker=settings.TAKES_OVER)
    due_jobs.run_all_due_jobs(now=timezone.now())
    close_old_connections()
    logger.info("worker ready")


@worker_ready.connect
def load_runtime(sender: Any = None, **_signal: Any) -> None:
    """Load the event loop, the adapters and the vocabulary before the first message needs them."""
    if queues.REPLIES in sender.app.amqp.queues.consume_from:
        load = databases.close_connections_after(runtime)
        threading.Thread(target=load, name="load-runtime", daemon=True).start()


@worker_ready.connect
def keep_heartbeat(sender: Any = None, **_signal: Any) -> None:
    """Send heartbeats for the health check, and run overdue entries of the schedule."""
    taken = sorted(sender.app.amqp.queues.consume_from.keys())
    heartbeat.append(heartbeats.WorkerHeartbeat(sender.hostname, taken=taken, run=run_overdue_job))
    heartbeat[-1].start()


def run_overdue_job(entry: str) -> None:
    """Run an entry of the schedule that no worker ran in time."""
    logger.warning("the schedule is late; this worker runs its entry %s", entry)
    try:
        due_jobs.run_due_job_safely(entry, now=timezone.now())
        heartbeats.note_run(entry)
    finally:
        close_old_connections()


@beat_init.connect
@beat_embedded_init.connect
@after_task_publish.connect(sender=schedule.name_task(schedule.HEARTBEAT))
def note_schedule(**_signal: Any) -> None:
    """Record that the schedule is alive: it started, or it sent its most frequent entry."""
    heartbeats.note_schedule()


@worker_ready.connect
def keep_schedule(sender: Any = None, **_signal: Any) -> None:
    """Run the schedule in a thread of this worker, if the launcher requested it.

    Celery's own option creates a process, which takes 60 MB and outlives a killed worker.
    """
    if settings.KEEPS_SCHEDULE:
        scheduler = "celery.beat:Scheduler"
        thread = EmbeddedService(sender.app, thread=True, scheduler_cls=scheduler)
        cast(threading.Thread, thread).start()


@worker_shutting_down.connect
def begin_to_drain(**_signal: Any) -> None:
    """Let running turns end or hand them back; hand back summaries immediately.

    Other work ends with the process. The database records work in progress.
    """
    for one in heartbeat:
        one.stop()
    latest = threading.Timer(settings.WORKER_DRAIN_SECONDS + LAST_SECONDS, end_now)
    latest.daemon = True
    latest.start()
    running_summaries.here.hand_back()
    queue.index_batcher.stop()
    if _runtime.cache_info().currsize:
        _runtime().start_draining(settings.WORKER_DRAIN_SECONDS)


def end_now() -> None:
    """End the process without waiting for its threads."""
    logger.warning("ended with work that did not stop in time; another worker takes it up")
    logging.shutdown()
    os._exit(0)


@worker_shutdown.connect
def end_drained(**_signal: Any) -> None:
    """Wait until this process's turns have ended or were handed back, before the process ends.

    A background worker signs the ledger last.
    """
    if _runtime.cache_info().currsize:
        _runtime().start_draining(settings.WORKER_DRAIN_SECONDS).join()
    if keeps_upkeep.is_set():
        sign_last()


def sign_last() -> None:
    """Sign a checkpoint of new ledger rows. A failure does not stop the shutdown."""
    try:
        upkeep.sign_at_end(now=timezone.now())
    except DatabaseError as error:
        logger.warning("no checkpoint at the end: %s", type(error).__name__)
    finally:
        close_old_connections()

"""Starts and stops a Celery worker, and reports its failed tasks, through Celery's signals."""

import logging
import math
import os
import sys
import threading
from functools import cache
from typing import Any, cast

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

from chats.background import due_jobs
from chats.checkpoints import upkeep
from chats.compaction import publish, running_summaries
from chats.ground import databases, heartbeats, queue, queues, schedule
from chats.ground.request_ids import HEADER, NONE, REQUEST
from chats.ground.tracing import trace_span
from chats.models import SkippedRow
from chats.turns.worker.runtime import Runtime

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


def get_runtime() -> Runtime:
    """Return this process's runtime, created in the first thread that needs it."""
    with _making:
        return _create_runtime()


@cache
def _create_runtime() -> Runtime:
    return Runtime()


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
        load = databases.close_connections_after(get_runtime)
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
def note_schedule_signal(**_signal: Any) -> None:
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
    if _create_runtime.cache_info().currsize:
        _create_runtime().start_draining(settings.WORKER_DRAIN_SECONDS)


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
    if _create_runtime.cache_info().currsize:
        _create_runtime().start_draining(settings.WORKER_DRAIN_SECONDS).join()
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

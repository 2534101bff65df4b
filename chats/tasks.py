"""The tasks and signals of Celery. A task never decides anything: it calls one domain function."""

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
    worker_init,
    worker_ready,
    worker_shutdown,
    worker_shutting_down,
)
from django.conf import settings
from django.db import DatabaseError, close_old_connections
from django.utils import timezone

from chats import shipping
from chats.actions import erasure, pending_erasures, retention
from chats.checkpoints import upkeep
from chats.compaction import embedding, indexing, maintain, publish, running
from chats.counts import keeping
from chats.exchange import apart
from chats.ground import databases, heartbeats, queue, queues
from chats.models import SkippedRow
from chats.prompt.tokenizer import O200kCounter
from chats.simulation import radius
from chats.simulation import upkeep as evaluations
from chats.turns import completed, inferring, recover, titles, warm_ups
from chats.turns.worker.runtime import Runtime
from chats.webhooks import delivering, stamping
from contextpolicy import verification

logger = logging.getLogger(__name__)
# The seconds that a worker may take beyond the time that its replies have.
LAST_SECONDS = 4.0
_making = threading.Lock()
# Set where this worker's queues hold the upkeep.
keeps_upkeep = threading.Event()
# The heartbeat of this process, once it is a worker that is ready.
heartbeat: list[heartbeats.WorkerHeartbeat] = []


def runtime() -> Runtime:
    """Return this process's loop; it is made once, whichever thread asks first."""
    with _making:
        return _runtime()


@cache
def _runtime() -> Runtime:
    return Runtime()


@shared_task(name=queue.RUN_TURN)
def run_turn(*, turn_id: str, **_later: Any) -> None:
    """Work on a turn until it is over. Delivered twice, it is claimed once."""
    runtime().run(uuid.UUID(turn_id))


@shared_task(name=queue.MAINTAIN_CHAT)
def maintain_chat(*, chat_id: str, **_later: Any) -> None:
    """Prepare a compaction if the chat's policy asks for one."""
    maintain.maintain_chat_context(
        chat_id=uuid.UUID(chat_id),
        counter=O200kCounter(),
        now=timezone.now(),
        clock=timezone.now,
    )


@shared_task(name=queue.TELL_STRATEGY)
def tell_strategy(*, turn_id: str, **_later: Any) -> None:
    """Tell the strategy of a package that a turn is complete."""
    completed.tell_strategy(turn_id=uuid.UUID(turn_id), counter=O200kCounter())


@shared_task(name=queue.VERIFY_LEDGER)
def verify_ledger(*, verification_id: str, **_later: Any) -> None:
    """Verify the ledger as somebody asked."""
    verification.run_verification(pk=int(verification_id), clock=timezone.now)


@shared_task(name=queue.KEEP_LEDGER)
def keep_ledger(**_later: Any) -> None:
    """Sign the checkpoint and ask for the verification that are due."""
    upkeep.maintain_ledger(now=timezone.now())


@shared_task(name=queue.STAMP_LEDGER)
def stamp_ledger(**_later: Any) -> None:
    """Have the newest checkpoint stamped by the authority outside."""
    stamping.request_due_timestamp(clock=timezone.now)


@shared_task(name=queue.COUNT)
def count(**_later: Any) -> None:
    """Bring the counts of days and the balances of compactions up to the ledger."""
    keeping.count_ledger_events(clock=timezone.now, is_closing=lambda: running.here.closing)


@shared_task(name=queue.SHIP_LEDGER)
def ship_ledger(**_later: Any) -> None:
    """Write what the ledger has grown by to the standard output."""
    shipping.ship_events(clock=timezone.now, is_closing=lambda: running.here.closing)


@shared_task(name=queue.INDEX_CHAT)
def index_chat(*, chat_id: str, **_later: Any) -> None:
    """Make what was said in a chat searchable."""
    indexing.update_chat_index(chat_id=uuid.UUID(chat_id))


@shared_task(name=queue.INDEX_CHATS)
def index_chats(*, chat_ids: str, **_later: Any) -> None:
    """Make the new messages of several chats searchable."""
    indexing.index_chats(chat_ids=[uuid.UUID(chat_id) for chat_id in chat_ids.split(",")])


@shared_task(name=queue.WARM_UP)
def warm_up(*, branch_id: str, cause: warm_ups.Cause, tries: str = "1", **_later: Any) -> None:
    """Have a model server read what a branch's next prompt begins with."""
    warm_ups.warm_up_branch(
        branch_id=uuid.UUID(branch_id),
        cause=cause,
        tries=int(tries),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running.here.closing,
    )


@shared_task(name=queue.WRITE_TITLE)
def write_title(*, turn_id: str, **_later: Any) -> None:
    """Have the light model write a title for the chat of a first reply."""
    titles.write_title(
        turn_id=uuid.UUID(turn_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running.here.closing,
    )


@shared_task(name=queue.READ_PREFERENCES)
def read_preferences(*, chat_id: str, **_later: Any) -> None:
    """Have the light model propose what holds of a chat's owner."""
    inferring.read_chat(
        chat_id=uuid.UUID(chat_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running.here.closing,
    )


@shared_task(name=queue.EMBED)
def embed(**_later: Any) -> None:
    """Go on with the vectors that are due."""
    embedding.continue_embedding_pass(now=timezone.now())


@shared_task(name=queue.EMBED_CHAT)
def embed_chat(*, chat_id: str, **_later: Any) -> None:
    """Make the vectors of what was said in a chat."""
    embedding.embed_chat(uuid.UUID(chat_id), now=timezone.now())


@shared_task(name=queue.ERASE_CHAT)
def erase_chat(*, chat_id: str, **_later: Any) -> None:
    """Erase a chat whose time is over, if it is still there and no reply is written in it."""
    erasure.erase_expired(chat_id=uuid.UUID(chat_id), now=timezone.now())


@shared_task(name=queue.FULFIL_WISH)
def fulfil_wish(*, erasure_id: str = "", wish_id: str = "", **_later: Any) -> None:
    """Run a pending erasure if no legal hold covers it any longer.

    Tasks of older versions name it `wish_id`.
    """
    pending_erasures.run_pending_erasure(
        erasure_id=uuid.UUID(erasure_id or wish_id), now=timezone.now()
    )


@shared_task(name=queue.RETAIN)
def retain(**_later: Any) -> None:
    """Go on with the run of retention that is due, for some seconds."""
    retention.continue_retention_run(clock=timezone.now, is_closing=lambda: running.here.closing)


@shared_task(name=queue.COUNT_RADIUS)
def count_radius(*, radius_id: str, **_later: Any) -> None:
    """Go on counting the chats that a policy would change, for some seconds."""
    radius.continue_radius_count(
        radius_id=uuid.UUID(radius_id),
        clock=timezone.now,
        is_closing=lambda: running.here.closing,
    )


@shared_task(name=queue.EVALUATE)
def evaluate(*, evaluation_id: str, **_later: Any) -> None:
    """Judge what ended lately under an evaluated draft, for some seconds."""
    evaluations.continue_evaluation(
        evaluation_id=uuid.UUID(evaluation_id),
        clock=timezone.now,
        is_closing=lambda: running.here.closing,
    )


@shared_task(name=queue.IMPORT_FILE)
def import_file(*, import_id: str, **_later: Any) -> None:
    """Go on making chats of a file, for some seconds."""
    apart.import_file(
        import_id=uuid.UUID(import_id),
        counter=O200kCounter(),
        clock=timezone.now,
        is_closing=lambda: running.here.closing,
    )


@shared_task(name=queue.DELIVER)
def deliver(*, lane: str, **_later: Any) -> None:
    """Tell webhooks what waits for them."""
    delivering.send_due_deliveries(
        lane=lane, clock=timezone.now, is_closing=lambda: running.here.closing
    )


@shared_task(name=queue.SWEEP)
def sweep(**_later: Any) -> None:
    """Recover what dead workers and lost broker messages left behind."""
    recover.run_sweep(now=timezone.now())
    heartbeats.note_sweep()


@task_failure.connect
def note_failure(
    sender: Any = None, exception: Any = None, kwargs: Any = None, **_signal: Any
) -> None:
    """Show operators a task that failed in a way that nobody foresaw, and what it was about.

    The database's own trouble passes, and is told elsewhere.
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


@worker_init.connect
def share_threads(sender: Any = None, **_signal: Any) -> None:
    """Let summaries use at most three quarters of this worker's threads.

    They wait for their models there; the rest stays for other work.
    """
    threads = sender.concurrency or 1
    running.here.most = max(threads - math.ceil(threads / 4), 1)
    taken = sender.app.amqp.queues.consume_from.keys()
    if queues.UPKEEP in taken:
        keeps_upkeep.set()
    if taken <= set(queues.BACKGROUND):
        # In seconds: so soon after each of its statements a thread that holds SQLite's lock gets
        # the interpreter back from a thread that computes.
        sys.setswitchinterval(0.001)


@worker_ready.connect
def sweep_at_start(**_signal: Any) -> None:
    """Recover first what this worker's predecessor left behind.

    The loop and the tokenizer's vocabulary (90 MB) come with the first turn, before it is claimed.
    """
    running.here.keep_leases(publish.renew_all)
    queue.index_batcher.start()
    if settings.TAKES_OVER:
        recover.take_over(now=timezone.now(), worker=settings.TAKES_OVER)
    recover.run_sweep(now=timezone.now())
    close_old_connections()
    logger.info("worker ready")


@worker_ready.connect
def keep_heartbeat(sender: Any = None, **_signal: Any) -> None:
    """Tell the health check that this worker is alive; sweep if the schedule is dead."""
    taken = sorted(sender.app.amqp.queues.consume_from.keys())
    heartbeat.append(heartbeats.WorkerHeartbeat(sender.hostname, taken=taken, sweep=sweep_instead))
    heartbeat[-1].start()


def sweep_instead() -> None:
    """Sweep in place of the schedule."""
    logger.warning("the schedule is late; this worker sweeps instead of it")
    try:
        recover.run_sweep(now=timezone.now())
    finally:
        close_old_connections()


@beat_init.connect
@beat_embedded_init.connect
@after_task_publish.connect(sender=queue.SWEEP)
def note_schedule(**_signal: Any) -> None:
    """Note that the schedule is alive: it has started, or sent the sweep, as nobody else does."""
    heartbeats.note_schedule()


@worker_ready.connect
def keep_schedule(sender: Any = None, **_signal: Any) -> None:
    """Send what is due from a thread of this worker, where the launcher asked for it.

    Celery's own option makes a process, which takes 60 MB and outlives a worker that is killed.
    """
    if settings.KEEPS_SCHEDULE:
        scheduler = "celery.beat:Scheduler"
        thread = EmbeddedService(sender.app, thread=True, scheduler_cls=scheduler)
        cast(threading.Thread, thread).start()


@worker_shutting_down.connect
def begin_to_drain(**_signal: Any) -> None:
    """Let running turns end or hand them back, and hand summaries back at once.

    Work that this does not end is ended with the process: the database knows what was running.
    """
    for one in heartbeat:
        one.stop()
    latest = threading.Timer(settings.WORKER_DRAIN_SECONDS + LAST_SECONDS, end_now)
    latest.daemon = True
    latest.start()
    running.here.hand_back()
    queue.index_batcher.stop()
    if _runtime.cache_info().currsize:
        _runtime().start_draining(settings.WORKER_DRAIN_SECONDS)


def end_now() -> None:
    """End the process without waiting for any thread."""
    logger.warning("ended with work that did not stop in time; another worker takes it up")
    logging.shutdown()
    os._exit(0)


@worker_shutdown.connect
def end_drained(**_signal: Any) -> None:
    """Wait until this process's turns are over or handed back; then it may end.

    A process of upkeep signs the ledger last.
    """
    if _runtime.cache_info().currsize:
        _runtime().start_draining(settings.WORKER_DRAIN_SECONDS).join()
    if keeps_upkeep.is_set():
        sign_last()


def sign_last() -> None:
    """Sign a checkpoint of what the ledger has grown by; the process ends whatever happens."""
    try:
        upkeep.sign_at_end(now=timezone.now())
    except DatabaseError as error:
        logger.warning("no checkpoint at the end: %s", type(error).__name__)
    finally:
        close_old_connections()

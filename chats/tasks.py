"""What Celery calls. A task never decides anything: it calls one function of the domain."""

import logging
import math
import os
import sys
import threading
import time
import uuid
from functools import cache
from typing import Any

from celery import shared_task
from celery.signals import worker_init, worker_ready, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from chats import queue
from chats.compaction import maintain, publish, running
from chats.counting import O200kCounter
from chats.memory import archive
from chats.turns import completed, recover
from chats.turns.runtime import Runtime
from contextpolicy import verification

logger = logging.getLogger(__name__)
# How long the rest of a handed over task rests, in seconds: what Celery does behind it would share
# the interpreter with the turn's opening, for whose end somebody waits.
GIVE_WAY = 0.01
# How long a worker may take beyond the time that its replies have, in seconds.
LAST_SECONDS = 4.0
_making = threading.Lock()


def runtime() -> Runtime:
    """This process's loop; made when the worker is ready, once, whichever thread asks first."""
    with _making:
        return _runtime()


@cache
def _runtime() -> Runtime:
    return Runtime()


@shared_task(name=queue.RUN_TURN)
def run_turn(*, turn_id: str, **_later: Any) -> None:
    """Hand a turn to this process's loop. Delivered twice, it is claimed once."""
    runtime().submit(uuid.UUID(turn_id))
    time.sleep(GIVE_WAY)


@shared_task(name=queue.MAINTAIN_CHAT)
def maintain_chat(*, chat_id: str, **_later: Any) -> None:
    """Prepare a compaction if the chat's policy asks for one."""
    maintain.maintain(
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
    verification.run(pk=int(verification_id), clock=timezone.now)


@shared_task(name=queue.INDEX_CHAT)
def index_chat(*, chat_id: str, **_later: Any) -> None:
    """Make searchable what was archived."""
    archive.index_chat(chat_id=uuid.UUID(chat_id))


@shared_task(name=queue.SWEEP)
def sweep(**_later: Any) -> None:
    """Recover what dead workers and lost broker messages left behind."""
    recover.sweep(now=timezone.now())


@worker_init.connect
def share_threads(sender: Any = None, **_signal: Any) -> None:
    """Summaries wait for their models in this worker's threads: a quarter stays for other work."""
    threads = sender.concurrency or 1
    running.here.most = max(threads - math.ceil(threads / 4), 1)
    if sender.app.amqp.queues.consume_from.keys() <= set(queue.BACKGROUND):
        # A thread that holds SQLite's lock gets the interpreter from one that computes this soon,
        # in seconds, after each of its statements.
        sys.setswitchinterval(0.001)


@worker_ready.connect
def sweep_at_start(**_signal: Any) -> None:
    """A new worker looks first for what its predecessor left.

    The loop and the tokenizer's vocabulary (90 MB) come with the first turn, before it is claimed.
    """
    running.here.keep_leases(publish.renew_all)
    recover.sweep(now=timezone.now())
    close_old_connections()
    logger.info("worker ready")


@worker_shutting_down.connect
def begin_to_drain(**_signal: Any) -> None:
    """The order to end came: let running turns end or hand them back, and summaries at once.

    Whatever this does not end is ended with the process: the database knows what was running.
    """
    latest = threading.Timer(settings.WORKER_DRAIN_SECONDS + LAST_SECONDS, end_now)
    latest.daemon = True
    latest.start()
    running.here.hand_back()
    if _runtime.cache_info().currsize:
        _runtime().start_draining(settings.WORKER_DRAIN_SECONDS)


def end_now() -> None:
    """End the process without waiting for any thread."""
    logger.warning("ended with work that did not stop in time; another worker takes it up")
    logging.shutdown()
    os._exit(0)


@worker_shutdown.connect
def end_drained(**_signal: Any) -> None:
    """This process may end once its turns are over or handed back."""
    if _runtime.cache_info().currsize:
        _runtime().start_draining(settings.WORKER_DRAIN_SECONDS).join()

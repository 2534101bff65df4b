"""Task names, and how work is enqueued: after the commit, at most once, never waited for.

The database is the truth and the broker a hint: what a failed publish leaves undone, the sweep
finds. By name, so that no room below the tasks imports them; a test compares the names with
Celery's registry.
"""

import logging
import uuid
from functools import partial

from celery import current_app
from django.db import transaction
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

RUN_TURN = "chats.run_turn"
MAINTAIN_CHAT = "chats.maintain_chat"
INDEX_CHAT = "chats.index_chat"
SWEEP = "chats.sweep"
VERIFY_LEDGER = "chats.verify_ledger"
TELL_STRATEGY = "chats.tell_strategy"
TASKS = frozenset({RUN_TURN, MAINTAIN_CHAT, INDEX_CHAT, SWEEP, TELL_STRATEGY, VERIFY_LEDGER})

# The queues, by who waits for what is in them: a person for a reply; nobody for a summary, an
# index, a verification. `CELERY_TASK_ROUTES` says which task goes where.
REPLIES = "replies"
SUMMARIES = "summaries"
UPKEEP = "upkeep"
BACKGROUND = (SUMMARIES, UPKEEP)


def enqueue(task: str, **ids: uuid.UUID | int) -> None:
    """Send the task once the open transaction commits; at once when none is open."""
    transaction.on_commit(partial(publish, task, {name: str(value) for name, value in ids.items()}))


def keep_here(task: str, arguments: dict[str, str]) -> None:
    """In place of `publish` in a command that runs turns in its own process: nothing is sent."""
    logger.debug("%s stays in this process: %s", task, arguments)


def publish(task: str, arguments: dict[str, str]) -> None:
    """One attempt to hand the task to the broker; a failure is logged and left to the sweep."""
    try:
        current_app.send_task(
            task,
            kwargs=arguments,
            retry=False,
            ignore_result=True,
            # What monitors would show; nobody here reads it, and it takes as long as the sending.
            argsrepr="",
            kwargsrepr="",
        )
    except (KombuError, OperationalError, RedisError, OSError) as error:
        logger.warning("broker unreachable, %s left to the sweep: %s", task, type(error).__name__)

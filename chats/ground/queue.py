"""Names the tasks and enqueues work: after the commit, at most once, without waiting for it.

The database is the truth and the broker a hint: the sweep finds work that a failed publish left
undone. By name, so that no room below the tasks imports them; a test compares the names with
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
KEEP_LEDGER = "chats.keep_ledger"
STAMP_LEDGER = "chats.stamp_ledger"
COUNT = "chats.count"
SHIP_LEDGER = "chats.ship_ledger"
TELL_STRATEGY = "chats.tell_strategy"
ERASE_CHAT = "chats.erase_chat"
FULFIL_WISH = "chats.fulfil_wish"
RETAIN = "chats.retain"
WARM_UP = "chats.warm_up"
WRITE_TITLE = "chats.write_title"
READ_PREFERENCES = "chats.read_preferences"
EMBED = "chats.embed"
EMBED_CHAT = "chats.embed_chat"
DELIVER = "chats.deliver"
COUNT_RADIUS = "chats.count_radius"
EVALUATE = "chats.evaluate"
IMPORT_FILE = "chats.import_file"
TASKS = frozenset(
    {
        RUN_TURN,
        MAINTAIN_CHAT,
        INDEX_CHAT,
        SWEEP,
        TELL_STRATEGY,
        VERIFY_LEDGER,
        KEEP_LEDGER,
        STAMP_LEDGER,
        COUNT,
        SHIP_LEDGER,
        ERASE_CHAT,
        FULFIL_WISH,
        RETAIN,
        WARM_UP,
        WRITE_TITLE,
        READ_PREFERENCES,
        EMBED,
        EMBED_CHAT,
        DELIVER,
        COUNT_RADIUS,
        EVALUATE,
        IMPORT_FILE,
    }
)


def enqueue(task: str, *, countdown: float = 0.0, **ids: uuid.UUID | int | str) -> None:
    """Send the task once the open transaction commits; at once when none is open.

    A worker begins it after so many seconds at the earliest.
    """
    arguments = {name: str(value) for name, value in ids.items()}
    transaction.on_commit(partial(publish, task, arguments, countdown=countdown))


def keep_here(task: str, arguments: dict[str, str], *, countdown: float = 0.0) -> None:
    """Send nothing: stands in for `publish` in a command that runs turns in its own process."""
    logger.debug("%s stays in this process: %s", task, arguments)


def publish(task: str, arguments: dict[str, str], *, countdown: float = 0.0) -> None:
    """Try once to hand the task to the broker; a failure is logged and left to the sweep."""
    try:
        current_app.send_task(
            task,
            kwargs=arguments,
            countdown=countdown or None,
            retry=False,
            ignore_result=True,
            # Only monitors would show these, and they take as long as the sending.
            argsrepr="",
            kwargsrepr="",
        )
    except (KombuError, OperationalError, RedisError, OSError) as error:
        logger.warning("broker unreachable, %s left to the sweep: %s", task, type(error).__name__)

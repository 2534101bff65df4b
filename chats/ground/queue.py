"""Enqueues Celery tasks on commit. Never blocks, never raises.

The database is authoritative, and the broker is only a hint: the due jobs find work whose message
was lost. Tasks are referenced by name, so that lower packages need not import them. A test compares
the names with Celery's registry.
"""

import logging
import threading
import uuid
from functools import partial

from celery import current_app
from django.db import transaction
from kombu.exceptions import KombuError, OperationalError
from redis.exceptions import RedisError

from chats.ground import schedule
from chats.ground.request_ids import build_task_headers

logger = logging.getLogger(__name__)

RUN_TURN = "chats.run_turn"
MAINTAIN_CHAT = "chats.maintain_chat"
INDEX_CHAT = "chats.index_chat"
INDEX_CHATS = "chats.index_chats"
# The only entry of earlier schedules. It runs all due jobs, and is kept for one release.
SWEEP = "chats.sweep"
VERIFY_LEDGER = "chats.verify_ledger"
KEEP_LEDGER = "chats.keep_ledger"
STAMP_LEDGER = "chats.stamp_ledger"
COUNT = "chats.count"
SHIP_LEDGER = "chats.ship_ledger"
TELL_STRATEGY = "chats.tell_strategy"
ERASE_CHAT = "chats.erase_chat"
RUN_PENDING_ERASURE = "chats.fulfil_wish"
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
READ_FILE = "chats.read_file"
READ_TOOLS = "chats.read_tools"
TASKS = frozenset(
    {
        RUN_TURN,
        MAINTAIN_CHAT,
        INDEX_CHAT,
        INDEX_CHATS,
        SWEEP,
        TELL_STRATEGY,
        VERIFY_LEDGER,
        KEEP_LEDGER,
        STAMP_LEDGER,
        COUNT,
        SHIP_LEDGER,
        ERASE_CHAT,
        RUN_PENDING_ERASURE,
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
        READ_FILE,
        READ_TOOLS,
        *map(schedule.name_task, schedule.PERIODS),
    }
)


def enqueue(task: str, *, countdown: float = 0.0, **ids: uuid.UUID | int | str) -> None:
    """Send the task when the open transaction commits, or immediately if none is open.

    A worker starts it after `countdown` seconds at the earliest.
    """
    arguments = {name: str(value) for name, value in ids.items()}
    transaction.on_commit(partial(publish_task, task, arguments, countdown=countdown))


class IndexBatcher:
    """Collects chats to index in this process, and sends one task for all of them.

    Before `start` and after `stop`, each chat is sent immediately. If the process is killed, the
    collected chats are lost; a due job finds them.
    """

    # Seconds from the first chat until the task is sent, and the chats that send it sooner.
    SECONDS = 2.0
    MOST = 50

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chats: dict[str, None] = {}
        self._timer: threading.Timer | None = None
        self._is_on = False

    def start(self) -> None:
        self._is_on = True

    def stop(self) -> None:
        self._is_on = False
        self.send()

    def add(self, chat_id: str) -> None:
        with self._lock:
            self._chats[chat_id] = None
            is_full = len(self._chats) >= self.MOST
            if self._is_on and not is_full:
                if self._timer is None:
                    self._timer = threading.Timer(self.SECONDS, self.send)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self.send()

    def send(self) -> None:
        """Enqueue an indexing task for the collected chats."""
        with self._lock:
            chats, self._chats = self._chats, {}
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        if chats:
            publish_task(INDEX_CHATS, {"chat_ids": ",".join(chats)})


index_batcher = IndexBatcher()


def enqueue_indexing(chat_id: uuid.UUID) -> None:
    """Request indexing of a chat's new messages when the open transaction commits."""
    transaction.on_commit(partial(index_batcher.add, str(chat_id)))


def keep_here(task: str, arguments: dict[str, str], *, countdown: float = 0.0) -> None:
    """Send nothing. Replaces `publish_task` in commands that run turns in their own process."""
    logger.debug("%s stays in this process: %s", task, arguments)


def publish_task(task: str, arguments: dict[str, str], *, countdown: float = 0.0) -> None:
    """Send the task to the broker without retries. If it is lost, a due job sends it again."""
    try:
        current_app.send_task(
            task,
            kwargs=arguments,
            countdown=countdown or None,
            headers=build_task_headers(),
            retry=False,
            ignore_result=True,
            # Only monitors show these, and creating them takes as long as sending.
            argsrepr="",
            kwargsrepr="",
        )
    except (KombuError, OperationalError, RedisError, OSError) as error:
        logger.warning("broker unreachable, %s left to a due job: %s", task, type(error).__name__)

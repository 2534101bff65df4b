"""Notices: inform a user's open pages that one of their chats changed.

Each ledger event of a chat is announced after its commit, as the chat's id only. Opening a chat,
which marks it as read without an event, is announced too. A notice may be lost, like all frames on
the live bus: a page that reconnects reads the rows.
"""

import logging
import threading
import time
import uuid
from contextlib import suppress
from functools import cache, partial
from queue import Full, Queue
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.dispatch import receiver
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from chats.ground import live
from chats.models import Chat
from contextpolicy import ledger
from contextpolicy.models import AuditEvent

logger = logging.getLogger(__name__)

# Seconds without attempts after the bus was unavailable.
REST_SECONDS = 5.0
KNOWN_OWNERS = 10_000
# Maximum number of queued notices while the bus hangs.
MOST_WAITING = 1_000


class Notifier:
    """Sends this process's notices to the bus, and caches the owners of chats.

    Sending runs in a separate thread, so that a commit never waits for the bus.
    """

    def __init__(self) -> None:
        # A chat never changes its owner.
        self.owners: dict[uuid.UUID, int] = {}
        self.waiting: Queue[tuple[int, live.Frame]] = Queue(MOST_WAITING)
        self.thread: threading.Thread | None = None
        self.rests_until = 0.0

    def tell(self, chat_id: uuid.UUID) -> None:
        """Notify the pages of a chat's owner. Never waits and never fails."""
        owner = self.owner_of(chat_id)
        if owner is not None:
            self.put(owner, str(chat_id))

    def put(self, owner: int, about: str) -> None:
        """Notify a user's pages about a chat.

        Without `about`, the notice is about the user's list of chats.
        """
        frame = live.Frame(kind="changed", attempt=0, step=0, text=about)
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self.send_forever, name="notices", daemon=True)
            self.thread.start()
        with suppress(Full):
            self.waiting.put_nowait((owner, frame))

    def send_forever(self) -> None:
        """Send queued notices until the process ends."""
        while True:
            owner, frame = self.waiting.get()
            if time.monotonic() >= self.rests_until:
                self.send(owner, frame)
            self.waiting.task_done()

    def send(self, owner: int, frame: live.Frame) -> None:
        key = live.build_person_key(owner)
        try:
            pipeline = get_notice_client().pipeline(transaction=False)
            pipeline.xadd(key, cast(Any, frame.fields()), maxlen=live.NOTICES_KEPT)
            pipeline.expire(key, live.NOTICE_SECONDS)
            pipeline.execute()
        except (RedisError, OSError) as error:
            logger.warning("live bus unreachable, pages update later: %s", type(error).__name__)
            self.rests_until = time.monotonic() + REST_SECONDS

    def owner_of(self, chat_id: uuid.UUID) -> int | None:
        """Return the owner of a chat. None if it was deleted."""
        owner = self.owners.get(chat_id)
        if owner is None:
            owner = Chat.objects.filter(pk=chat_id).values_list("owner_id", flat=True).first()
            if owner is not None:
                if len(self.owners) >= KNOWN_OWNERS:
                    self.owners.clear()
                self.owners[chat_id] = owner
        return owner


NOTIFIER = Notifier()


@cache
def get_notice_client() -> Redis:
    return Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=1,
        socket_timeout=1,
        retry=Retry(NoBackoff(), 0),
    )


@receiver(ledger.recorded)
def announce_event(event: AuditEvent, **_signal: Any) -> None:
    """Announce a change to the event's chat."""
    if event.chat_id is not None:
        announce_chat(event.chat_id)


def announce_chat(chat_id: uuid.UUID) -> None:
    """Announce a change to a chat after the commit."""
    transaction.on_commit(partial(NOTIFIER.tell, chat_id), robust=True)


def tell_of_list(owner: int) -> None:
    """Announce a change to the list of chats after the commit."""
    transaction.on_commit(partial(NOTIFIER.put, owner, ""), robust=True)

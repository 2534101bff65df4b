"""Notices: tells a person's open pages that something changed in one of their chats.

Most of what a page shows changes with an event of the chat's ledger, so each event is told, after
its commit and as the chat's id alone; so is that it was read, which is no event.
Like all of the live bus a notice may be lost: a page that was cut off looks at the rows when it
comes back.
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

# A bus that is away is left alone for so many seconds.
REST_SECONDS = 5.0
KNOWN_OWNERS = 10_000
# More are not kept for a bus that hangs.
MOST_WAITING = 1_000


class Notifier:
    """This process's way to the bus, and the owners of the chats that it told about.

    A thread of its own does the telling: whoever commits waits for no bus, not for one that hangs
    either.
    """

    def __init__(self) -> None:
        # A chat never changes its owner.
        self.owners: dict[uuid.UUID, int] = {}
        self.waiting: Queue[tuple[int, live.Frame]] = Queue(MOST_WAITING)
        self.thread: threading.Thread | None = None
        self.rests_until = 0.0

    def tell(self, chat_id: uuid.UUID) -> None:
        """Have the owner's pages told; never waits and never fails."""
        owner = self.owner_of(chat_id)
        if owner is not None:
            self.put(owner, str(chat_id))

    def put(self, owner: int, about: str) -> None:
        """Have a person's pages told of a chat, or only of their list of chats (empty)."""
        frame = live.Frame(
            kind="changed", attempt=0, step=0, offset=int(time.time() * 1000), text=about
        )
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self.send_forever, name="notices", daemon=True)
            self.thread.start()
        with suppress(Full):
            self.waiting.put_nowait((owner, frame))

    def send_forever(self) -> None:
        """Send what waits."""
        while True:
            owner, frame = self.waiting.get()
            if time.monotonic() >= self.rests_until:
                self.send(owner, frame)
            self.waiting.task_done()

    def send(self, owner: int, frame: live.Frame) -> None:
        """Send one notice."""
        key = live.person_key(owner)
        try:
            pipeline = client().pipeline(transaction=False)
            pipeline.xadd(key, cast(Any, frame.fields()), maxlen=live.NOTICES_KEPT)
            pipeline.expire(key, live.SECONDS_KEPT)
            pipeline.execute()
        except (RedisError, OSError) as error:
            logger.warning("live bus unreachable, pages look later: %s", type(error).__name__)
            self.rests_until = time.monotonic() + REST_SECONDS

    def owner_of(self, chat_id: uuid.UUID) -> int | None:
        """Return whose chat it is; None when it is gone."""
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
def client() -> Redis:
    """Return this process's client."""
    return Redis.from_url(
        settings.REDIS_URL,
        socket_connect_timeout=1,
        socket_timeout=1,
        retry=Retry(NoBackoff(), 0),
    )


@receiver(ledger.recorded)
def hear(event: AuditEvent, **_signal: Any) -> None:
    """Tell of the event's chat."""
    if event.chat_id is not None:
        tell(event.chat_id)


def tell(chat_id: uuid.UUID) -> None:
    """Tell that a chat changed when the transaction has committed; for what is no event too."""
    transaction.on_commit(partial(NOTIFIER.tell, chat_id), robust=True)


def tell_of_list(owner: int) -> None:
    """Tell that a person's list of chats changed, in none of them, when this has committed."""
    transaction.on_commit(partial(NOTIFIER.put, owner, ""), robust=True)


def end_stream(turn_id: uuid.UUID) -> None:
    """Let a turn's stream expire, after the commit: its worker ended and could not say so."""
    transaction.on_commit(partial(expire, live.turn_key(turn_id)), robust=True)


def expire(key: str) -> None:
    """Let a stream expire as after the end of its turn."""
    try:
        client().expire(key, live.SECONDS_AFTER_END)
    except (RedisError, OSError) as error:
        logger.warning("live bus unreachable, a stream stays: %s", type(error).__name__)

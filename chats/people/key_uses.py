"""Records uses of API keys that could not be recorded at once because the database was busy.

Requests do not wait for this. Without a retry, the only use of a key on a day would be missing from
the audit log.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable
from datetime import date

from django.db import connections

logger = logging.getLogger(__name__)
# Seconds between two attempts, and for which a use is tried.
AGAIN = 5.0
LONGEST = 3_600.0
# Returns True if the use was noted.
Write = Callable[[], bool]


class UnnotedUses:
    """The uses of keys that this process still has to record, one for each key and day."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.waiting: dict[tuple[uuid.UUID, date], tuple[float, Write]] = {}
        self.thread: threading.Thread | None = None

    def add(self, key_id: uuid.UUID, day: date, write: Write) -> None:
        """Schedule a use to be recorded in a thread. The oldest use per key and day is kept."""
        with self.lock:
            self.waiting.setdefault((key_id, day), (time.monotonic(), write))
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name="key-uses", daemon=True)
                self.thread.start()

    def run(self) -> None:
        """Record the pending uses, with retries, until none is left."""
        is_over = False
        while not is_over:
            time.sleep(AGAIN)
            self.note_all()
            close_thread_connections()
            with self.lock:
                is_over = not self.waiting
                if is_over:
                    self.thread = None

    def note_all(self) -> None:
        """Try to record each pending use once. After an hour, drop it with a warning."""
        for use, (since, write) in list(self.waiting.items()):
            try:
                is_recorded = write()
            except Exception:
                logger.exception("the use of key %s cannot be noted", use[0])
                is_recorded = True
            if not is_recorded:
                if time.monotonic() - since < LONGEST:
                    continue
                logger.warning("the use of key %s was not noted within an hour", use[0])
            with self.lock:
                self.waiting.pop(use, None)


def close_thread_connections() -> None:
    """Close the thread's database connections. Errors are logged, so that the thread continues."""
    try:
        connections.close_all()
    except Exception:
        logger.exception("a database connection cannot be closed")


UNNOTED = UnnotedUses()

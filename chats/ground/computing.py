"""The lock under which a process of background work computes and writes, one thread at a time.

Python runs one thread at a time anyway. Without the lock a thread that holds SQLite's only writer,
or rows that a reply needs, waits for the interpreter while another thread plans a summary, and
everybody waits behind it: first words came after 36 ms instead of 30 beside twenty chats that catch
up. Nobody holds the lock while they wait for a model.
"""

import threading
import time

from chats.ground import databases


class OneAtATime:
    """A lock that threads wait for without a connection of the database's pool.

    A pool has fewer than a process has threads: those that waited with one left none to whom they
    waited for. Nobody who takes it reads from an open cursor.
    """

    def __init__(self) -> None:
        """Begin free."""
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Take the lock; who has to wait gives the connection back before."""
        if not self._lock.acquire(blocking=False):
            databases.spare()
            self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        """Free the lock."""
        self._lock.release()


def give_way(seconds: float) -> None:
    """Rest between two pieces of background work, so that others come to their turn.

    Neither the lock above nor SQLite's only writer has a queue across processes: whoever frees one
    and takes it again at once keeps it from all who wait, replies among them. So work that writes
    again and again rests with nothing held, some milliseconds at a time.
    """
    time.sleep(seconds)


alone = OneAtATime()

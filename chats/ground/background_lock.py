"""The lock for computing and writing in background processes, one thread at a time.

Python runs one thread at a time anyway. Without the lock, a thread that holds SQLite's writer lock
would wait for the interpreter while another thread plans a summary. So would a thread that holds
rows that a reply needs. Both delay replies: with twenty chats catching up, the first token took
36 ms instead of 30 ms. The lock is never held while waiting for a model.
"""

import threading
import time

from chats.ground import databases


class OneAtATime:
    """A lock. Threads that wait for it do not hold a pooled database connection.

    A pool has fewer connections than a process has threads. Waiting threads with a connection could
    starve the thread that they wait for. Code under the lock must not read from an open cursor.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """Acquire the lock. Before waiting, return the database connection to its pool."""
        if not self._lock.acquire(blocking=False):
            databases.release_pooled_connection()
            self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


def give_way(seconds: float) -> None:
    """Sleep between two pieces of background work, so that other processes can proceed.

    Neither this lock nor SQLite's writer lock queues processes fairly. A process that immediately
    reacquires one blocks all others, including replies. Work with many writes therefore sleeps for
    some milliseconds at a time without holding either.
    """
    time.sleep(seconds)


alone = OneAtATime()

"""Limits how many requests of a process wait for the contents of files at the same time.

A waiting request occupies one of the threads that also serve pages and start replies. With a slot,
it may wait as long as reading a file can take; without one, only for `BRIEFLY`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Fewer than half of the threads of a web process.
PLACES = 6
# Seconds that a request waits for a free place, or for its files without a place.
BRIEFLY = 1.0
_places = threading.BoundedSemaphore(PLACES)


@contextmanager
def hold_waiting_place(*, seconds: float) -> Iterator[bool]:
    """Reserve a slot while the block runs, and yield True. Yield False if none is free in time.

    `seconds`: how long to wait for a slot.
    """
    is_held = _places.acquire(timeout=seconds)
    try:
        yield is_held
    finally:
        if is_held:
            _places.release()

"""Runs long computations on an empty stack, because calls are slow at some stack depths.

Python (3.11 and later) stores function frames in chunks of 16 KiB and frees a chunk as soon as its
last frame returns. If the calls of a loop cross the end of a chunk, each of them allocates memory
from the system. Where a chunk ends depends on the caller's depth, so the same text takes two to
four times as long from some pages as from others. A new thread starts with an empty chunk.

Measured: the worst table of 32,000 characters, rendered from every sixth depth between 0 and 126,
takes 0.8 to 1.2 s of CPU, but 2.9 to 3.8 s at the last two depths. In a thread it takes 0.8 to
1.2 s from each depth. The thread itself costs 0.1 ms.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from django.conf import settings

Result = TypeVar("Result")


def run_on_empty_stack(function: Callable[[], Result]) -> Result:
    """Call a function and return its result, in a new thread if `SPEED` is on.

    The function must not use the database.
    """
    if not settings.SPEED:
        return function()
    with ThreadPoolExecutor(1, thread_name_prefix="empty-stack") as thread:
        return thread.submit(copy_context().run, function).result()

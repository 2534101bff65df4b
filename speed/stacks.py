"""Runs long work on a stack of its own, far from the place where calls become slow.

Python (3.11 and later) keeps the frames of its functions in chunks of 16 KiB and gives a chunk back
as soon as its last frame returns. A loop whose calls happen to cross the end of a chunk asks the
system for memory at each of them. Where a chunk ends depends on how deep the caller already is, so
the same text takes two to four times as long from some pages as from others. A thread begins with
an empty chunk.

Measured: the worst table of 32,000 characters, rendered from every sixth depth between 0 and 126,
takes 0.8 to 1.2 s of the processor, and 2.9 to 3.8 s at the last two; in a thread 0.8 to 1.2 s from
each of them. The thread itself costs 0.1 ms.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from django.conf import settings

Result = TypeVar("Result")


def on_empty_stack(function: Callable[[], Result]) -> Result:
    """Return what a function returns, called in a thread made for it; it may use no database."""
    if not settings.SPEED:
        return function()
    with ThreadPoolExecutor(1, thread_name_prefix="empty-stack") as thread:
        return thread.submit(copy_context().run, function).result()

"""The threads in which a worker's database calls run, and the order of the calls."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from queue import PriorityQueue
from typing import Any


class DeadlineExecutor:
    """A few threads that take the call with the earliest deadline first.

    A call that may wait stands behind those that come before its deadline, and behind no others:
    many beginnings put an end off, but not for ever.
    """

    def __init__(self, number: int) -> None:
        self.executor = ThreadPoolExecutor(number, thread_name_prefix="db")
        self.order = count()
        self.calls: PriorityQueue[tuple[float, int, Future[Any], Callable[[], Any]]] = (
            PriorityQueue()
        )

    def submit(self, call: Callable[[], Any], *, patience: float = 0.0) -> "Future[Any]":
        """Run the call in a thread; others may go before it for `patience` seconds."""
        outcome: Future[Any] = Future()
        self.calls.put((time.monotonic() + patience, next(self.order), outcome, call))
        # One task for each call, which need not take this very call.
        self.executor.submit(self.take_next)
        return outcome

    def take_next(self) -> None:
        """Run the call whose deadline is the earliest."""
        _, _, outcome, call = self.calls.get_nowait()
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  # the caller gets it, whatever it is
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

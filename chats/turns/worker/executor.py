"""The threads for a worker's database calls, which use a priority queue."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from queue import PriorityQueue
from typing import Any


class DeadlineExecutor:
    """A few threads that run the call with the earliest deadline first.

    A call's deadline is the start of its work plus its patience. Other calls can run before it only
    if their deadline is earlier, so its delay is limited. Calls of older work run first. If many
    turns start concurrently, some of them therefore finish early.
    """

    def __init__(self, number: int) -> None:
        self.executor = ThreadPoolExecutor(number, thread_name_prefix="db")
        self.order = count()
        self.calls: PriorityQueue[tuple[float, int, Future[Any], Callable[[], Any]]] = (
            PriorityQueue()
        )

    def submit(
        self, call: Callable[[], Any], *, patience: float = 0.0, since: float | None = None
    ) -> "Future[Any]":
        """Run the call in a thread. Other calls may run first for up to `patience` seconds.

        `since`: the monotonic time at which the call's work began; default: now.
        """
        outcome: Future[Any] = Future()
        begun = time.monotonic() if since is None else since
        self.calls.put((begun + patience, next(self.order), outcome, call))
        # One task per call. Each task runs whichever call is next.
        self.executor.submit(self.take_next)
        return outcome

    def take_next(self) -> None:
        """Run the queued call with the earliest deadline."""
        _, _, outcome, call = self.calls.get_nowait()
        if not outcome.set_running_or_notify_cancel():
            return
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  # the caller gets it, whatever it is
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

"""Thread priority: turns that wait for their first text run first, and none waits forever."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial

import pytest

from chats.turns.worker.executor import DeadlineExecutor


@pytest.fixture
def one() -> DeadlineExecutor:
    """An executor with one thread, so that calls run in a fixed order."""
    return DeadlineExecutor(1)


@pytest.fixture
def held(one: DeadlineExecutor) -> Callable[[], None]:
    """Block the thread until the returned function is called."""
    release, busy = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        release.wait(10)

    one.submit(hold)
    assert busy.wait(10)
    return release.set


def test_a_call_that_may_wait_stands_behind_those_that_came_later(
    one: DeadlineExecutor, held: Callable[[], None]
) -> None:
    done: list[str] = []
    calls = [
        one.submit(lambda: done.append("end"), patience=60),
        one.submit(lambda: done.append("first")),
        one.submit(lambda: done.append("second")),
    ]
    held()
    wait(calls, timeout=10)
    assert done == ["first", "second", "end"]


def test_a_call_that_waited_long_enough_goes_first(
    one: DeadlineExecutor, held: Callable[[], None]
) -> None:
    done: list[str] = []
    end = one.submit(lambda: done.append("end"), patience=0.05)
    time.sleep(0.06)
    later = one.submit(lambda: done.append("later"))
    held()
    wait([end, later], timeout=10)
    assert done == ["end", "later"]


def test_result_and_error_are_the_callers(one: DeadlineExecutor) -> None:
    def fail() -> None:
        raise LookupError("nothing there")

    assert one.submit(lambda: 7).result(10) == 7
    with pytest.raises(LookupError, match="nothing there"):
        one.submit(fail).result(10)
    assert one.submit(lambda: 8).result(10) == 8


def test_a_call_that_was_given_up_is_not_made(
    one: DeadlineExecutor, held: Callable[[], None]
) -> None:
    done: list[str] = []
    given_up = one.submit(lambda: done.append("given up"))
    kept = one.submit(lambda: done.append("kept"))
    assert given_up.cancel()
    held()
    wait([kept], timeout=10)
    assert done == ["kept"]


def test_calls_of_older_work_run_first(one: DeadlineExecutor, held: Callable[[], None]) -> None:
    begun = time.monotonic()
    ran: list[str] = []
    calls = [
        one.submit(partial(ran.append, "the opening of a newer turn")),
        one.submit(partial(ran.append, "an older turn"), since=begun - 1),
    ]
    held()
    wait(calls)
    assert ran == ["an older turn", "the opening of a newer turn"]

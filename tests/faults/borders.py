"""Child processes that are killed at a boundary, or after a random time. Sets up Django.

A boundary is before each SQL statement, on both sides of each commit, and at steps outside the
database that call `cross`.
"""

import os
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import tests.environment  # noqa: F401  # the data's place, before the settings are read

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
# Alice writes messages in many chats before any reply is made.
os.environ["TURNS_PER_USER"] = "1000"

import django  # needs the environment

django.setup()

from django.db import connection, connections  # noqa: E402  # needs the settings, as all below

from chats.ground.refusals import Refusal  # noqa: E402  # as above
from tests.faults.laws import Violation  # noqa: E402  # as above

Deed = Callable[[], Any]


class Border:
    """Counts the boundaries that this process crosses, and kills it at one."""

    # The one of this process, for steps outside the database.
    current: "Border | None" = None

    def __init__(self, at: int) -> None:
        self.at = at
        self.crossed = 0
        # Django has no public hook for this.
        self.commit = connection._commit  # type: ignore[attr-defined]
        Border.current = self

    def __call__(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        """Cross the boundary before a statement."""
        self.cross()
        return execute(sql, params, many, context)

    def committing(self) -> None:
        """Cross the boundaries before and after a commit."""
        self.cross()
        self.commit()
        self.cross()

    def cross(self) -> None:
        """Cross the next boundary, or die there."""
        self.crossed += 1
        if self.crossed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


def cross() -> None:
    """Cross a boundary outside the database. Does nothing in a process without boundaries."""
    if Border.current is not None:
        Border.current.cross()


def fork(action: Deed) -> int:
    """Run an operation in a child process and return its id. It exits with 1 on failure."""
    for opened in connections.all():
        opened.close()
        # A connection pool would share its sockets with the child.
        getattr(opened, "close_pool", bool)()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        action()
        code = 0
    except BaseException:  # noqa: BLE001  # whatever it is, this process ends here
        traceback.print_exc()
    finally:
        os._exit(code)


def in_child(
    action: Deed,
    *,
    at: int = 0,
    seconds: float = 0.0,
    when: Callable[[], bool] | None = None,
) -> bool:
    """Run an operation in a child process; return True if it was killed.

    It is killed at its boundary `at`, after `seconds`, or as soon as `when` returns True. A refusal
    with a code is a valid result; any other failure is a violation.
    """

    def under_borders() -> None:
        border = Border(at)
        connection._commit = border.committing  # type: ignore[attr-defined]  # as above
        with connection.execute_wrapper(border), suppress(Refusal):
            action()

    child = fork(under_borders)
    if seconds:
        end = time.monotonic() + seconds
        kill_when(child, lambda: time.monotonic() > end)
    elif when is not None:
        kill_when(child, when)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return True
    if status != 0:
        raise Violation("a process failed in another way than by its death")
    return False


def kill_when(child: int, is_time: Callable[[], bool]) -> None:
    """Kill a child process at a time, unless it ends earlier. Its status stays readable."""
    while not is_time():
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)

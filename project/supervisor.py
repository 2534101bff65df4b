"""A small supervisor: named child processes, restarted when they end, stopped in order.

Children get their own session, so that Ctrl-C reaches only the parent. On Linux the
kernel kills them when the parent dies (PDEATHSIG), because a worker whose broker died
with the parent would never finish a warm shutdown.
"""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from speed.forks import ForkedProcess

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0
# After this many seconds of running, restart pauses begin at the minimum again.
STEADY = 30.0
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def bind_to_parent(niceness: int = 0) -> None:
    """Give the child its own session and niceness, and make the kernel kill it after its parent.

    The kernel does this only on Linux. Called in the child.
    """
    os.setsid()
    os.nice(niceness)
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Child:
    """A program that the supervisor starts, restarts and stops.

    `grace` is the number of seconds from the stop signal until the process is killed. `ends_last`:
    it is stopped after all other children, which depend on it.
    """

    name: str
    command: Sequence[str]
    env: Callable[[], Mapping[str, str]] = dict
    grace: float = 10.0
    ends_last: bool = False
    # The niceness of the process, 0 to 19.
    niceness: int = 0
    # Relevant output goes to stderr. None: the lines of stdout are passed on.
    stdout: Any = subprocess.DEVNULL
    # The process is started when this first returns True; None: at once.
    is_needed: Callable[[], bool] | None = None
    # Called in a fork of this process, which then runs the command with the loaded code. None: the
    # command is run by a new interpreter.
    in_fork: Callable[[], None] | None = None
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    started_at: float = 0.0
    pause: float = FIRST_PAUSE
    start_at: float = 0.0
    asked_at: float = 0.0

    def start(self) -> None:
        self.started_at = time.monotonic()
        bind = partial(bind_to_parent, self.niceness)  # runs three system calls only
        if self.in_fork is not None:
            self.process = ForkedProcess(
                self.command,
                env=self.env(),
                stdout=self.stdout,
                prepare=(bind, self.in_fork),
            )
            return
        self.process = subprocess.Popen(  # noqa: S603  # our own commands, no shell
            self.command,
            env={**os.environ, **self.env()},
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            preexec_fn=bind,
        )

    def tend(self) -> None:
        """Start the process once it is needed, and restart it if it ended or could not be started.

        If the process ends repeatedly, the pauses before a restart grow.
        """
        now = time.monotonic()
        if self.is_needed is not None:
            if not self.is_needed():
                return
            self.is_needed = None
        if self.process is not None:
            if self.process.poll() is None:
                return
            code = self.process.returncode
            killed = ": killed, often for lack of memory" if code == -signal.SIGKILL else ""
            logger.warning("%s ended (%s%s), restarting", self.name, code, killed)
            self.process = None
            self.pause = FIRST_PAUSE if now - self.started_at > STEADY else self.pause
            self.postpone(now)
        if now < self.start_at:
            return
        try:
            self.start()
        except OSError as error:
            # Memory or processes may be lacking for a moment.
            logger.warning("%s could not be started (%s), trying again", self.name, error.strerror)
            self.postpone(now)

    def postpone(self, now: float) -> None:
        """Wait before the next start, longer each time."""
        self.start_at = now + self.pause
        self.pause = min(self.pause * 2, LONGEST_PAUSE)

    def stop(self) -> None:
        """Send the process a stop signal, and kill it if it does not end."""
        self.ask_to_end()
        self.wait_for_end()

    def ask_to_end(self) -> None:
        """Send the process a stop signal, which starts its grace period."""
        self.asked_at = time.monotonic()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait_for_end(self) -> None:
        """Wait until the process has ended; kill it at the end of its grace period."""
        if self.process is None:
            return
        try:
            self.process.wait(max(self.asked_at + self.grace - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Supervisor:
    """The children of one launcher, in starting order."""

    def __init__(self) -> None:
        self.children: list[Child] = []
        self.stopping = False

    def add(self, child: Child) -> None:
        child.start()
        self.take(child)

    def take(self, child: Child) -> None:
        self.children.append(child)

    def request_stop(self, *_signal: object) -> None:
        """Ask the supervisor to stop its children at the next check."""
        self.stopping = True

    def watch(self) -> None:
        """Restart children that end, until a stop is requested."""
        while not self.stopping:
            self.look()
            time.sleep(0.1)

    def look(self) -> None:
        """Start children that are needed now, and restart children that have ended."""
        for child in self.children:
            child.tend()

    def stop(self) -> None:
        """Stop the children in parallel, then those that the other children depend on."""
        for is_last in (False, True):
            leaving = [child for child in self.children if child.ends_last == is_last]
            for child in leaving:
                child.ask_to_end()
            for child in leaving:
                child.wait_for_end()

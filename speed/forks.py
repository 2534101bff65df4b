"""Starts programs as forks of a process that has already loaded their code.

A fork shares memory that was filled earlier: the modules and the tokenizer's vocabulary. Only a
process without other threads may fork. Forking a loaded process is reliable only on Linux.
"""

import gc
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import setproctitle

# Signals for which the parent may have handlers.
HANDLED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
# Standard input, output and errors stay open in a child.
STREAMS = {0, 1, 2}


class ForkedProcess:
    """A running fork, with the methods of `subprocess.Popen` that a supervisor needs."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: Any = None,
        prepare: Sequence[Callable[[], None]],
    ) -> None:
        """Run a command line of Python in a fork of this process.

        `command`: the interpreter, then a script or `-m` and a module, then arguments. `env`: the
        variables to add. `stdout`: None, `subprocess.DEVNULL` or an open file. `prepare` is called
        in the child, before the command.
        """
        target = {
            "command": command,
            "env": env,
            "stdout": stdout,
            "prepare": prepare,
            # The files of the parent, to close in the child. The child keeps those that its start
            # opens, because they show the parent that the child has ended.
            "files": list_open_files() - STREAMS,
        }
        self.process = multiprocessing.get_context("fork").Process(
            target=run_in_child, kwargs=target
        )
        with blocked_signals():
            self.process.start()
        self.pid: int = self.process.pid or 0

    @property
    def returncode(self) -> int | None:
        """The exit code, negative if a signal ended the process. None while it runs."""
        return self.process.exitcode

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end, and return the exit code.

        Raises `subprocess.TimeoutExpired`.
        """
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.process.exitcode

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()


def can_fork() -> bool:
    """Return True if forks of a loaded process are reliable on this system."""
    return sys.platform == "linux"


def share_loaded_memory() -> None:
    """Exclude loaded objects from garbage collection, which would copy them in each child."""
    gc.collect()
    gc.freeze()


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block signals, so that none reaches a handler of the parent in a new child."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def run_in_child(
    *,
    command: Sequence[str],
    env: Mapping[str, str],
    stdout: Any,
    prepare: Sequence[Callable[[], None]],
    files: Iterable[int],
) -> None:
    """Set up a forked process as `subprocess` would, and run the command line."""
    restore_signals()
    redirect_output(stdout)
    # The parent's locks and connections must stay its own, so the child closes their files.
    for descriptor in files:
        with suppress(OSError):
            os.close(descriptor)
    os.environ.update(env)
    for step in prepare:
        step()
    setproctitle.setproctitle(" ".join(command))
    run_command(command)


def list_open_files() -> set[int]:
    return {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}


def restore_signals() -> None:
    """Restore the default signal handlers, except for ignored signals, and unblock signals."""
    for name in HANDLED:
        if signal.getsignal(name) is not signal.SIG_IGN:
            usual = signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL
            signal.signal(name, usual)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


def redirect_output(stdout: Any) -> None:
    """Point standard output to a file or to nothing; None keeps it."""
    if stdout is None:
        return
    if stdout == subprocess.DEVNULL:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
    else:
        os.dup2(stdout.fileno(), 1)


def run_command(command: Sequence[str]) -> None:
    """Run a command line of Python in this process: a script, or `-m` and a module."""
    _, program, *arguments = command
    if program == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")

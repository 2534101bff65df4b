"""Processes of a fault test: started in new sessions, and ended by their process id."""

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from project.supervisor import bind_to_parent
from tests.support.repository import ROOT

MANAGE = str(ROOT / "manage.py")
# Two test processes on two cores, with their child processes, cause a load of three per core.
MOST_PATIENCE = 4.0
Found = TypeVar("Found")


def until(look: Callable[[], Found], *, seconds: float = 15.0, what: str = "") -> Found:
    """The first true result of `look`, called every 50 ms. Raises TimeoutError.

    The seconds are for an idle machine; a busy machine gets more.
    """
    began = time.monotonic()
    while True:
        found = look()
        if found:
            return found
        waited = time.monotonic() - began
        if waited > seconds * patience():
            raise TimeoutError(f"{what or 'It'} did not happen within {waited:.0f} seconds.")
        time.sleep(0.05)


def patience() -> float:
    """The factor by which timeouts grow, because processes wait for a processor."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(max(load, 1.0), MOST_PATIENCE)


def needed(name: str) -> str:
    """The path of a program; without it the test is skipped or fails (`absent`)."""
    found = shutil.which(name)
    return found if found is not None else absent(f"{name} is missing")


def needed_browser() -> str:
    """The path of Chromium, preferably its headless shell.

    The engine is the same, and the full browser in headless mode uses twice as much CPU.
    """
    return shutil.which("chromium-headless-shell") or needed("chromium")


def absent(reason: str) -> NoReturn:
    """Skip the test, or fail it where every service is required."""
    if os.environ.get("PALIMPSEST_REQUIRE_SERVICES"):
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Program:
    """One running process, with its output in a file."""

    def __init__(
        self, name: str, command: Sequence[str], *, env: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        # The name of a worker in the rows it holds.
        self.label = env.get("PALIMPSEST_WORKER", "")
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(  # our own commands, no shell
                command,
                cwd=ROOT,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=bind_to_parent,  # runs two system calls only
            )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self.process.pid

    @property
    def is_alive(self) -> bool:
        """True if the process is running."""
        return self.process.poll() is None

    def must_live(self) -> bool:
        """Return True if the process is running. Raises RuntimeError with its output otherwise."""
        if not self.is_alive:
            raise RuntimeError(f"{self.name} ended: {self.said()[-3000:]}")
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process only."""
        if self.is_alive:
            self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it with SIGKILL, as the kernel's out-of-memory killer does."""
        self.send(signal.SIGKILL)
        self.process.wait(10)

    def terminate(self, *, seconds: float = 40.0) -> float:
        """Ask it to end; return how long that took. Raises TimeoutExpired."""
        begun = time.monotonic()
        self.send(signal.SIGTERM)
        self.process.wait(seconds)
        return time.monotonic() - begun

    def left_behind(self) -> bool:
        """Return True if a process of its group is still running after its end."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def resident_bytes(self) -> int:
        """Its memory (RSS)."""
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def forget_peak(self) -> None:
        """Reset the peak of `peak_bytes`."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5", encoding="ascii")

    def peak_bytes(self) -> int:
        """Its peak memory (RSS)."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines["VmHWM"].split()[0]) * 1024

    def processor_seconds(self) -> float:
        """Its processor time, without that of its children."""
        status = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8")
        used = status.rpartition(")")[2].split()[11:13]
        return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")

    def said(self) -> str:
        """All of its output."""
        return self.log.read_text(encoding="utf-8", errors="replace")


def proportional_bytes(pid: int) -> int:
    """The memory of a process, with shared pages divided among the processes (PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def run(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, seconds: float = 60
) -> str:
    """The output of a program that must succeed within a minute, or within `seconds`.

    The time is for an idle machine, as for `until`.
    """
    with subprocess.Popen(  # our own commands, no shell
        command,
        cwd=ROOT,
        env={**(os.environ if env is None else env), "PYTHONFAULTHANDLER": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            said, complained = started.communicate(timeout=seconds * patience())
        except subprocess.TimeoutExpired:
            # On exit it prints the stack of each of its threads.
            started.send_signal(signal.SIGABRT)
            said, complained = started.communicate(timeout=10)
    if started.returncode:
        raise RuntimeError(f"{command} ended with {started.returncode}:\n{said}{complained}")
    return said


# As `manage.py setup` begins: this takes a tenth of the time of the single migrations.
CREATE_TABLES = """
import django; django.setup()
from django.core.management import call_command
from project.tables import create_in_empty_database
create_in_empty_database()
call_command("migrate", verbosity=0, skip_checks=True)
"""


def create_tables(env: Mapping[str, str]) -> None:
    """Create the tables of a new instance in the empty database of an environment."""
    settings = {"DJANGO_SETTINGS_MODULE": "project.settings"}
    run(python("-c", CREATE_TABLES), env={**settings, **env})


def put_tables(data: Path) -> None:
    """Put a database with all tables and no rows into a data folder.

    The database is made once per set of migrations, because few tests need a first start.
    """
    made = hashlib.sha256()
    for file in sorted(ROOT.glob("*/migrations/*.py")):
        made.update(file.read_bytes())
    kept = ROOT / ".pytest_cache" / f"tables-{made.hexdigest()[:16]}.sqlite3"
    data.mkdir(parents=True, exist_ok=True)
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            env = {"PATH": os.environ["PATH"], "HOME": folder, "PALIMPSEST_DATA": folder}
            create_tables(env)
            ours = kept.with_name(f"{kept.name}.{os.getpid()}")
            shutil.copyfile(Path(folder) / "palimpsest.sqlite3", ours)
            ours.replace(kept)
    shutil.copyfile(kept, data / "palimpsest.sqlite3")


def apart(folder: Path) -> dict[str, str]:
    """The environment of a process that has a data folder separate from this process."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "PALIMPSEST_DATA": str(folder)}


def python(*arguments: str) -> list[str]:
    """A command line of this interpreter."""
    return [sys.executable, *arguments]

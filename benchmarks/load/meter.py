"""CPU time and memory of the processes of an instance, by role."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MB = 1e6
# Kernels before 5.15 have no `Pss_Anon`.
SIZE = re.compile(r"^(Pss|Pss_Anon):\s+(\d+) kB", re.MULTILINE)
# The role of a process by its command line. A process without a match has the role of its parent.
ROLES = (
    ("web", re.compile(r"manage\.py web|uvicorn")),
    ("background", re.compile(r"-Q (summaries|upkeep)|celeryd: (summaries|upkeep|background)@")),
    ("worker", re.compile(r"-Q replies|celeryd: |celery .*worker")),
    ("broker", re.compile(r"valkey|redis-server")),
    ("PostgreSQL", re.compile(r"^postgres|/postgres ")),
    ("launcher", re.compile(r"manage\.py serve")),
)


@dataclass
class Memory:
    """The memory of the processes of each role, in megabytes.

    `pss` is the current memory, with shared pages divided among the processes. `anonymous` is
    `pss` without mapped files: SQLite maps up to 128 MiB of the database, which grows with the data
    and can be freed at any time. `peak` is the highest resident memory since the last reading.
    """

    pss: dict[str, float] = field(default_factory=dict)
    anonymous: dict[str, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)


def iter_processes(pids: Iterable[int], role: str = "other") -> Iterator[tuple[str, int]]:
    """Yield each process of the trees below these ids, with its role."""
    for pid in pids:
        try:
            process = psutil.Process(pid)
            own = find_role(" ".join(process.cmdline())) or role
            children = [child.pid for child in process.children()]
        except psutil.Error:
            continue
        yield own, pid
        yield from iter_processes(children, own)


def find_role(command: str) -> str:
    """Return the role of a process with this command line, empty if none matches."""
    return next((role for role, pattern in ROLES if pattern.search(command)), "")


def read_cpu_seconds(pids: Iterable[int]) -> dict[str, float]:
    """The CPU time that the processes of each role have used, with that of ended children."""
    used: dict[str, float] = defaultdict(float)
    for role, pid in iter_processes(pids):
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.Error:
            continue
        ended = times.children_user + times.children_system
        used[role] += times.user + times.system + ended
    return dict(used)


def read_memory(pids: Iterable[int]) -> Memory:
    """The memory of the processes of each role. Resets the peaks."""
    memory = Memory(defaultdict(float), defaultdict(float), defaultdict(float))
    for role, pid in iter_processes(pids):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
            peak = read_peak_bytes(pid)
        except OSError:
            continue
        found = {name: int(size) * 1024 / MB for name, size in SIZE.findall(rollup)}
        memory.pss[role] += found["Pss"]
        memory.anonymous[role] += found.get("Pss_Anon", found["Pss"])
        memory.peak[role] += peak / MB
    return Memory(dict(memory.pss), dict(memory.anonymous), dict(memory.peak))


def read_peak_bytes(pid: int) -> int:
    """A process's peak resident memory since the last call. Raises OSError if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"VmHWM:\s+(\d+)", status)
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    return int(found[1]) * 1024 if found else 0


def read_machine_seconds() -> float:
    """The CPU time of everything on this machine."""
    times = psutil.cpu_times()
    names = ("user", "nice", "system", "irq", "softirq", "steal")
    return float(sum(getattr(times, name, 0.0) for name in names))

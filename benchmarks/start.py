"""Measures the start of a new instance: time to the sign-in page, and memory when idle.

`python -m benchmarks.start` starts the launcher on an empty data folder, with the product's default
timings. It prints the seconds to the page, and the memory (PSS) of each process twenty seconds
later.
"""

import os
import shutil
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.faults.harness import new_folder
from tests.faults.programs import MANAGE, Program, free_port, proportional_bytes, python, until

# Seconds after the first page, when all modules are loaded.
REST_SECONDS = 20
MEGABYTE = 1e6


def shows_page(address: str) -> bool:
    """Return True if a browser gets the sign-in page."""
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:  # noqa: S310  # loopback
            return bool(answer.status == 200)
    except OSError:
        return False


def processes(pid: int) -> Iterator[int]:
    """A process and all of its descendants."""
    yield pid
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in listed.read_text(encoding="ascii").split():
            yield from processes(int(child))


def told(pid: int) -> str:
    """The end of a process's command line."""
    line = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
    return line.replace("\0", " ").strip()[-60:]


def measure(folder: Path) -> None:
    """Start an instance, print its figures, and end it."""
    port = free_port()
    env = {"PATH": os.environ["PATH"], "PALIMPSEST_DATA": str(folder / "data")}
    begun = time.monotonic()
    command = python(MANAGE, "serve", "--port", str(port))
    program = Program("serve", command, env=env, log=folder / "serve.log")
    try:
        address = f"http://127.0.0.1:{port}/login/"
        until(lambda: program.must_live() and shows_page(address), seconds=120)
        seconds = time.monotonic() - begun
        print(f"sign-in page after {seconds:.1f} s, load {os.getloadavg()[0]:.1f}")  # noqa: T201  # its output
        time.sleep(REST_SECONDS)
        taken = {pid: proportional_bytes(pid) / MEGABYTE for pid in processes(program.pid)}
        for pid, megabytes in taken.items():
            print(f"{megabytes:6.1f} MB  {told(pid)}")  # noqa: T201  # its output
        print(f"{sum(taken.values()):6.1f} MB  all of them")  # noqa: T201  # its output
    finally:
        program.terminate()


if __name__ == "__main__":
    own = new_folder()
    try:
        measure(own)
    finally:
        shutil.rmtree(own)

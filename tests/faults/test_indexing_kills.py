"""Indexing that is killed repeatedly indexes every message exactly once."""

import subprocess
from pathlib import Path

from tests.faults.programs import apart, python
from tests.support.repository import ROOT

ARGUMENTS = ("--messages", "3000", "--chats", "12", "--people", "3", "--kills", "3")


def test_each_message_is_found_once_after_kills(tmp_path: Path) -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "benchmarks.search", *ARGUMENTS, "--only", "index"),
        cwd=ROOT,
        env=apart(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 3,000 missing, 0 twice" in done.stdout

"""Indexing that is killed again and again leaves no message out and has none twice."""

import os
import subprocess

from tests.faults.programs import ROOT, python

ARGUMENTS = ("--messages", "3000", "--chats", "12", "--people", "3", "--kills", "3")


def test_each_message_is_found_once_after_kills() -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "tests.load.search", *ARGUMENTS, "--only", "index"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 of 3,000 missing, 0 twice" in done.stdout

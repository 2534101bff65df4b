"""A run of retention that is killed at any border goes on where it ended."""

import os
import subprocess

import pytest

from tests.faults.programs import ROOT, python


@pytest.mark.policy_case(27)
def test_a_killed_run_erases_everything_once_and_nothing_that_is_held() -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "tests.faults.retention_kills", "--kills", "15", "--chats", "12"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 doubled, the certificate holds" in done.stdout

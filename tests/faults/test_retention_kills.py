"""A retention run that is killed at any boundary resumes."""

import subprocess
from pathlib import Path

import pytest

from tests.faults.programs import apart, python
from tests.support.repository import ROOT


@pytest.mark.policy_case(27)
def test_a_killed_run_erases_everything_once_and_nothing_that_is_held(tmp_path: Path) -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "tests.faults.retention_kills", "--kills", "15", "--chats", "12"),
        cwd=ROOT,
        env=apart(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 doubled, the certificate holds" in done.stdout

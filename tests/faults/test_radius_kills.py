"""A count of chats that is killed and stopped resumes, and counts each chat once."""

import subprocess
from pathlib import Path

import pytest

from tests.faults.programs import apart, python
from tests.support.repository import ROOT


@pytest.mark.policy_case(7)
@pytest.mark.parametrize(
    ("chats", "kills", "seconds"),
    [
        pytest.param(120, 2, 100, id="some"),
        pytest.param(10_000, 3, 800, id="ten thousand", marks=pytest.mark.whole),
    ],
)
def test_every_chat_is_counted_once(chats: int, kills: int, seconds: int, tmp_path: Path) -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "benchmarks.radius", "--chats", str(chats), "--kills", str(kills)),
        cwd=ROOT,
        env=apart(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{chats} of {chats} chats counted once" in done.stdout
    # A child has the interpreter, Django, and one chat at a time.
    own = int(done.stdout.rpartition("(PSS), ")[2].split()[0])
    assert own < 200

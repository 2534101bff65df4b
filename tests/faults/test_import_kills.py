"""An import whose workers are killed resumes, and creates each chat once."""

import subprocess
from pathlib import Path

import pytest

from tests.faults.programs import ROOT, apart, python


@pytest.mark.parametrize(
    ("chats", "kills", "seconds", "more"),
    [
        pytest.param(150, 2, 100, [], id="some"),
        pytest.param(20, 1, 100, ["--apart"], id="in a separate process"),
        pytest.param(2_000, 20, 900, [], id="many", marks=pytest.mark.whole),
    ],
)
def test_every_chat_is_made_once(
    chats: int, kills: int, seconds: int, more: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "benchmarks.imports", "--chats", str(chats), "--kills", str(kills), *more),
        cwd=ROOT,
        env=apart(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{chats} of {chats} chats are here once" in done.stdout

"""Embeddings and suggested preferences after killed workers: none missing, none duplicated."""

import re
import subprocess
from pathlib import Path

from tests.faults.programs import ROOT, apart, python


def test_vectors_and_proposals_are_made_once_after_kills(tmp_path: Path) -> None:
    done = subprocess.run(  # our own command, no shell
        python("-m", "benchmarks.learning", "--messages", "400", "--kills", "3"),
        cwd=ROOT,
        env=apart(tmp_path),
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # A fast machine finishes before the last kill.
    assert re.search(r"vectors: [1-9] kills", done.stdout)
    assert re.search(r"preferences: [1-9] kills", done.stdout)

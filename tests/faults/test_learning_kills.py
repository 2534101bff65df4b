"""Embeddings and suggested preferences after killed workers: none missing, none duplicated."""

import re
from pathlib import Path

import pytest

from tests.faults.programs import apart, python, run


@pytest.mark.timeout(900)
def test_vectors_and_proposals_are_made_once_after_kills(tmp_path: Path) -> None:
    command = python("-m", "benchmarks.learning", "--messages", "400", "--kills", "3")
    said = run(command, env=apart(tmp_path), seconds=200)
    # A fast machine finishes before the last kill.
    assert re.search(r"vectors: [1-9] kills", said)
    assert re.search(r"preferences: [1-9] kills", said)

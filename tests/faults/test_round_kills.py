"""Agents that reply in turn or in parallel, killed at any boundary, also in a broken product."""

import os
import re
import subprocess

import pytest

from tests.faults.programs import python
from tests.faults.round_ways import WAYS
from tests.support.repository import ROOT

# The pattern in the output that shows each mistake.
NOTICED = {
    "forget-the-next": "the round was forgotten|the rounds are",
    "forget-what-was-seen": "a later attempt|a turn of a round was absorbed|was not shown",
    "go-on-later": "the round was forgotten|the rounds are",
    "look-anew": "lanes of a round do not see the same|a lane was shown|a later attempt",
    "stand-anywhere": "the lanes of a round do not stand in their order",
}


def round_kills(*options: str) -> subprocess.CompletedProcess[str]:
    """The output of the program, on an empty database."""
    return subprocess.run(  # our own command, no shell
        python("-m", "tests.faults.round_kills", *options),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(16)
def test_a_process_killed_at_any_border_loses_and_doubles_no_reply_of_a_round() -> None:
    done = round_kills("--rounds", "10", "--kills", "12")
    assert done.returncode == 0, done.stderr
    assert "0 hops lost, 0 doubled" in done.stdout


def test_every_naive_way_is_tried() -> None:
    assert set(NOTICED) == set(WAYS)


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=() if way == "forget-the-next" else pytest.mark.whole)
        for way in sorted(NOTICED)
    ],
)
def test_a_broken_round_is_noticed(way: str) -> None:
    said = []
    # The seed does not decide which of two processes is faster.
    for seed in ("1", "2", "3"):
        done = round_kills("--rounds", "50", "--kills", "100", "--seed", seed, "--naive", way)
        said.append(done.stderr)
        if done.returncode and re.search(f"laws.Violation: ({NOTICED[way]})", done.stderr):
            return
    pytest.fail("\n".join(said))

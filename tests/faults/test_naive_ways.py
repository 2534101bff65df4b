"""`crashes` detects a broken product: each naive change breaks a named promise."""

import os
import re
import subprocess

import pytest

from tests.faults.naive import WAYS
from tests.faults.programs import python
from tests.support.repository import ROOT

KILLS = ("--kills", "200", "--chats", "2")
FILES = ("--kills", "100", "--chats", "1", "--of", "files")
TOOLS = ("--kills", "60", "--chats", "1", "--of", "tools")
TOGETHER = ("--workers", "6", "--chats", "2", "--steps", "40")
# The detecting program and a pattern in its output.
NOTICED: dict[str, tuple[tuple[str, ...], str]] = {
    "publish-in-pieces": (KILLS, "no sound context"),
    "publish-without-comparison": (TOGETHER, "no sound context"),
    "keep-the-event-apart": (KILLS, "half-published"),
    "never-release-a-claim": (KILLS, "the claim of a dead process is not released"),
    "forget-the-claim-token": (TOGETHER, "half-published"),
    "hold-a-transaction": (KILLS, "a transaction is open while a summary is written"),
    "send-before-the-commit": (KILLS, "was sent inside a transaction"),
    "blank-what-was-folded": (KILLS, "the originals changed"),
    "believe-every-summary": (KILLS, "does not pass the verdict"),
    "leave-summaries-of-hidden-messages": (TOGETHER, "no sound context"),
    "undo-to-the-originals": (
        ("--workers", "1", "--chats", "2", "--steps", "1"),
        "an undo does not bring the exact prompt back",
    ),
    "undo-without-a-revision": (TOGETHER, "the summary changed without its revision"),
    "answer-before-the-end": (KILLS, "2 replies to 1 message"),
    # Depends on which comes first: the turn, or a call without a commitment.
    "forget-the-lease-token": (
        TOGETHER,
        "laws.Violation: (a turn |the ledger and its rows differ)",
    ),
    "never-take-a-turn-back": (KILLS, "a turn is running"),
    "forget-the-removal": (FILES, "bytes without a row stay forever"),
    "keep-the-bytes-later": (FILES, "the bytes of an accepted file would be removed"),
    "store-the-text-apart": (FILES, "a file that is pending has content"),
    "leave-copies-of-files": (FILES, "temporary files of killed processes stay"),
    "call-every-tool-again": (TOOLS, "a call ran 2 times"),
    "leave-calls-open": (TOOLS, "and calls are in progress"),
}


def test_every_naive_way_is_tried() -> None:
    assert set(NOTICED) == set(WAYS)


# Detected within seconds, whatever else the machine does.
QUICK = {
    "blank-what-was-folded",
    "hold-a-transaction",
    "publish-in-pieces",
    "send-before-the-commit",
    "undo-to-the-originals",
}


@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=() if w in QUICK else pytest.mark.whole) for w in sorted(WAYS)]
)
def test_a_broken_product_is_noticed(way: str) -> None:
    options, violation = NOTICED[way]
    heard = []
    # Concurrent processes race, and a run may miss the broken code, so it may need another start.
    for seed in range(1, 11):
        done = subprocess.run(  # our own command, no shell
            python("-m", "tests.faults.crashes", *options, "--naive", way, "--seed", str(seed)),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            timeout=110,
        )
        heard.append(done.stderr)
        if done.returncode != 0 and re.search(violation, done.stderr):
            return
    pytest.fail("not noticed as what it is:\n" + "\n".join(heard))

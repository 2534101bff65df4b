"""The matrix: a recording under every combination, and each kind of fault is detected."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contextpolicy.engine.compose import assembly
from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput, WindowNeeded
from contextpolicy.engine.compose.partition import PartitionError
from contextpolicy.engine.messages.messages import WireMessage
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import find_value_problems
from replay import in_memory, matrix, recordings
from replay.faults import FAULTS
from replay.in_memory import Tally
from tests.support.repository import ROOT

ORDERS = ROOT / "tests" / "recordings" / "orders.jsonl"
COUNTER = ApproximateCounter()
TURNS = in_memory.convert_recorded_turns(recordings.load_recording(ORDERS), counter=COUNTER)
Break = Callable[[AssembledContext], AssembledContext]


@pytest.mark.parametrize("combination", list(matrix.generate_policy_combinations()), ids=str)
def test_a_recording_breaks_no_law_in_any_combination(combination: matrix.Combination) -> None:
    assert find_value_problems(combination.values, model_window=None) == []
    tally = matrix.play_combination(combination, [TURNS], counter=COUNTER)
    assert (tally.faults.total(), tally.first_fault) == (0, "")
    assert (tally.calls, tally.refused) == (22, 0)
    assert 0 < tally.largest <= combination.limit


def without_question(made: AssembledContext) -> AssembledContext:
    last = made.messages[-1]
    return replace(made, messages=(*made.messages[:-1], last._replace(content="never mind")))


def without_result(made: AssembledContext) -> AssembledContext:
    lone = WireMessage("tool", "lost", tool_call_id="nobody's")
    return replace(made, messages=(made.messages[0], lone, *made.messages[1:]))


def with_more(made: AssembledContext) -> AssembledContext:
    head = made.messages[0]
    return replace(made, messages=(head._replace(content="word " * 9_000), *made.messages[1:]))


def with_a_date(made: AssembledContext) -> AssembledContext:
    head = made.messages[0]._replace(content=f"It is message {len(made.segments)}.")
    return replace(made, messages=(head, *made.messages[1:]))


def without_an_account(made: AssembledContext) -> AssembledContext:
    return replace(made, segments=tuple(s for s in made.segments if s.seq != 1))


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (without_question, "question lost"),
        (without_result, "group split"),
        (with_more, "over budget"),
        (with_a_date, "prefix"),
        (without_an_account, "unaccounted"),
    ],
)
def test_a_prompt_that_breaks_a_law_is_noticed(
    spoil: Break, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoiled(facts: ComposeInput) -> AssembledContext | WindowNeeded:
        made = assembly.compose_context(facts)
        return spoil(made) if isinstance(made, AssembledContext) else made

    monkeypatch.setattr(in_memory, "compose_context", spoiled)
    assert tally_of_sliding().faults[fault] > 0


@pytest.mark.parametrize(
    ("error", "fault"), [(PartitionError("gap"), "partition"), (KeyError("x"), "exception")]
)
def test_what_the_engine_raises_is_a_fault_too(
    error: Exception, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(facts: ComposeInput) -> AssembledContext:
        raise error

    monkeypatch.setattr(in_memory, "compose_context", broken)
    assert tally_of_sliding().faults == {fault: 1}


def tally_of_sliding() -> Tally:
    sliding = next(
        c for c in matrix.generate_policy_combinations() if c.strategy == "sliding_window"
    )
    return matrix.play_combination(sliding, [TURNS], counter=COUNTER)


@pytest.mark.processes
@pytest.mark.in_turn
def test_the_command_prints_a_row_for_each_combination_and_no_violation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "replay", "--matrix", str(ORDERS)],
        cwd=ROOT,
        env={**os.environ, "PALIMPSEST_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    heading, *rows, last = done.stdout.splitlines()
    assert heading == matrix.HEADING
    assert len(rows) == len(list(matrix.generate_policy_combinations())) == 60
    assert all(row.split()[-len(FAULTS) :] == ["0"] * len(FAULTS) for row in rows)
    assert last.startswith("1 conversations, 1,320 prompts, 0 violations")


@pytest.mark.processes
@pytest.mark.in_turn
def test_what_went_to_the_model_can_be_written_down(tmp_path: Path) -> None:
    values = json.dumps({"strategy": "sliding_window", "token_budget": 2500, "reserve_tokens": 500})
    command = [sys.executable, "manage.py", "replay", str(ORDERS), "--values", values]
    done = subprocess.run(
        [*command, "--limit", "3000", "--record", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PALIMPSEST_DATA": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / ORDERS.name).read_text().splitlines()]
    sent = [line["body"] for line in lines if line["ev"] == "request"]
    ended = [line["outcome"] for line in lines if line["ev"] == "end"]
    assert len(sent) == len(ended) == 22
    assert set(ended) == {"done"}
    assert sent[0]["messages"][-1]["content"] == recordings.load_recording(ORDERS)[0].text

"""Recorded conversations: reading them, and running them through the real pipeline."""

import os
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from replay.recordings import NO_REPLY, group_recorded_turns, load_recording
from tests.faults.programs import put_tables, run
from tests.support.repository import ROOT

ORDERS = ROOT / "tests" / "recordings" / "orders.jsonl"
REPLAY = [sys.executable, "manage.py", "replay"]


def test_every_user_message_is_a_turn() -> None:
    turns = load_recording(ORDERS)
    assert len(turns) == 19
    assert turns[0].steps[0].text == "I look them up."


def test_calls_meet_their_results_and_an_id_may_come_again() -> None:
    first, second, third, *_ = load_recording(ORDERS)
    assert [call.result is not None for call in first.steps[0].calls] == [True, True]
    assert "E-47" in (second.steps[0].calls[0].result or "")
    assert third.steps[0].calls[0].result is None


def test_a_turn_that_broke_off_is_ended() -> None:
    _, _, third, fourth, *_ = load_recording(ORDERS)
    assert third.steps[-1].text == NO_REPLY
    assert [step.text for step in fourth.steps] == [NO_REPLY]


def test_what_stands_before_the_first_question_is_left() -> None:
    assert group_recorded_turns([{"role": "assistant", "content": "Hello"}]) == []


USER = '{"role": "user", "content": "Hello"}'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no user message"),
        (f"{USER}\n{{", "line 2 is not JSON"),
        (f"{USER}\n\n[]", "line 3 is not a message"),
        ('{"type": "session"}', 'each line needs a "role"'),
        ('{"role": "user", "content": [{"text": "x"}]}', "a text as its"),
        (f'{USER}\n{{"role": "assistant", "tool_calls": [{{"id": "a"}}]}}', "tool call without"),
        (f'{USER}\n{{"role": "assistant", "tool_calls": "x"}}', "tool call without"),
    ],
)
def test_what_is_no_recording_is_said_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(CommandError, match=words):
        call_command("replay", str(file))


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"nowhere\.jsonl cannot be read"):
        call_command("replay", str(tmp_path / "nowhere.jsonl"))


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "policy",
    [
        "",
        *(
            pytest.param(slug, marks=pytest.mark.whole)
            for slug in ("simple-window", "sliding-window", "rounds")
        ),
    ],
)
@pytest.mark.in_turn
def test_a_recording_runs_through_with_every_message_accounted_for(
    policy: str, tmp_path: Path
) -> None:
    command = [*REPLAY, str(ORDERS), "--limit", "3000"]
    # Without them the command applies each migration, which takes most of its time.
    put_tables(tmp_path)
    env = {**os.environ, "PALIMPSEST_DATA": str(tmp_path)}
    said = run([*command, "--policy", policy], env=env, seconds=110)
    columns, row = (line.split() for line in said.splitlines()[:2])
    values = dict(zip([name for name in columns if name != "out"], row, strict=True))
    assert (values["turns"], values["errors"], values["faults"]) == ("19", "0", "0")
    assert int(values["largest"]) <= 3000
    if policy in {"", "rounds"}:
        assert int(values["summaries"]) >= 1


@pytest.mark.processes
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "strategies", [["in parts"], pytest.param([], marks=pytest.mark.whole, id="every one")]
)
@pytest.mark.in_turn
def test_inv_53_each_body_that_a_server_got_is_built_again_from_rows(
    strategies: list[str], tmp_path: Path
) -> None:
    # Without them the command applies each migration, which takes most of its time.
    put_tables(tmp_path)
    env = {**os.environ, "PALIMPSEST_DATA": str(tmp_path)}
    command = [*REPLAY, str(ORDERS), "--limit", "3000", "--rebuild", *strategies]
    *rows, last = run(command, env=env, seconds=150).splitlines()
    names = rows[0].split()[3:]
    found = [
        dict(zip(names, map(int, row.split()[-len(names) :]), strict=True)) for row in rows[1:]
    ]
    assert len(found) == 4 * (len(strategies) or 6)
    for row in found:
        assert row["same"] == row["received"] > row["retries"] > 0
        assert row["tools"] == row["replies"] >= 19
    assert sum(row["parts"] for row in found) >= 4
    assert last == f"{sum(row['received'] for row in found)} requests, 0 not rebuilt"

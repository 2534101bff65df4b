"""The team's task: stored, cut to 5,120 bytes at a character's boundary, passed to the hook."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextpolicy.engine.team.team import TEAM_TASK_BYTES, count_utf8_bytes, cut_team_task
from contextpolicy.engine.team.team_state import TeamState
from tests.engine.engine_builders import texts


@pytest.mark.requirement("S3.3")
def test_set_team_task_stores_task() -> None:
    state = TeamState()
    state.set_team_task("Build a boat")
    assert state.team_task == "Build a boat"


@pytest.mark.requirement("S3.3")
def test_set_team_task_truncates_at_5kb() -> None:
    state = TeamState()
    state.set_team_task("x" * 5_120)
    assert state.team_task == "x" * 5_120
    state.set_team_task("x" * 5_121)
    assert state.team_task == "x" * 5_120


@pytest.mark.requirement("S3.3")
@pytest.mark.parametrize(
    ("task", "kept"),
    [
        ("a" * 5_119 + "é", "a" * 5_119),
        ("a" * 5_118 + "😀", "a" * 5_118),
        ("a" * 5_100 + "👩‍👩‍👧", "a" * 5_100 + "👩‍👩‍👧"),
        ("a" * 5_103 + "👩‍👩‍👧", "a" * 5_103),
        ("a" * 5_119 + "e\u0301", "a" * 5_119),
        ("a" * 5_117 + "\ud83d\ude00", "a" * 5_117),
        ("\ud83d" * 2_000, "\ud83d" * 1_706),
    ],
    ids=["letter", "emoji", "joined_fits", "joined", "accent", "surrogate_pair", "lone_halves"],
)
def test_a_task_is_never_cut_inside_a_character(task: str, kept: str) -> None:
    assert cut_team_task(task) == kept


@pytest.mark.requirement("S3.3")
@given(texts().map(lambda text: text * 30) | st.text(min_size=1_000, max_size=3_000))
def test_a_cut_task_is_a_beginning_within_its_bytes(task: str) -> None:
    kept = cut_team_task(task)
    assert task.startswith(kept)
    assert count_utf8_bytes(kept) <= TEAM_TASK_BYTES
    assert kept == task or count_utf8_bytes(kept) > TEAM_TASK_BYTES - 4 * 128


@pytest.mark.requirement("S3.3")
@pytest.mark.requirement("S3.13")
def test_set_team_task_logs_warning_on_truncation(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="contextpolicy.engine"):
        TeamState().set_team_task("é" * 2_600)
    assert [record.getMessage() for record in caplog.records] == [
        "[ContextManager] TeamTask exceeded 5KB limit (5200 bytes), truncated to 5120 bytes"
    ]
    assert "é" not in caplog.text


@pytest.mark.requirement("S3.3")
def test_set_team_task_calls_on_team_task_changed_hook() -> None:
    told: list[str | None] = []
    state = TeamState(on_team_task_changed=told.append)
    state.set_team_task("x" * 6_000)
    assert told == ["x" * 5_120]


@pytest.mark.requirement("S3.3")
def test_get_team_task_returns_null_initially() -> None:
    assert TeamState().team_task is None

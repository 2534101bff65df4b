"""Clearing a team's chat, and copying its state to another chat."""

import json

import pytest

from contextpolicy.engine.team.team import TeamMessage
from contextpolicy.engine.team.team_state import InvalidSnapshot, TeamState
from tests.engine.team_builders import said, team

NOW_MS = 1_790_000_000_000


def snapshot(**changes: object) -> dict[str, object]:
    """A snapshot of two messages and a task."""
    state = team("one", "two")
    state.set_team_task("Build a boat")
    return {**state.export_snapshot(now_ms=NOW_MS), **changes}


def test_clear_removes_all_messages() -> None:
    state = team("one", "two")
    state.clear()
    assert state.messages() == []


def test_clear_resets_team_task() -> None:
    told: list[str | None] = []
    state = TeamState(on_team_task_changed=told.append)
    state.set_team_task("Build a boat")
    state.clear()
    state.clear()
    assert state.team_task is None
    assert told == ["Build a boat", None, None]


def test_clear_resets_message_id_counter() -> None:
    state = team("one", "two")
    state.clear()
    assert state.add_message(said("again")).id == "msg-1"


@pytest.mark.requirement("S3.9")
def test_export_snapshot_returns_serializable_object() -> None:
    made = snapshot()
    assert json.loads(json.dumps(made)) == made
    assert set(made) == {"messages", "teamTask", "timestamp", "version"}
    assert (made["timestamp"], made["version"]) == (NOW_MS, 1)
    assert made["messages"] == [
        {
            "id": f"msg-{n}",
            "content": content,
            "speaker": {"roleId": "ann", "roleName": "Ann", "type": "human"},
            "routing": {"resolvedAddressees": []},
        }
        for n, content in ((1, "one"), (2, "two"))
    ]


@pytest.mark.requirement("S3.9")
def test_import_snapshot_restores_messages() -> None:
    told: list[TeamMessage] = []
    state = TeamState(on_message_added=told.append)
    state.add_message(said("gone", to=("max", "sarah")))
    told.clear()
    state.import_snapshot(json.loads(json.dumps(snapshot())))
    assert state.messages() == team("one", "two").messages()
    assert told == []


@pytest.mark.requirement("S3.9")
def test_import_snapshot_restores_team_task() -> None:
    told: list[str | None] = []
    state = TeamState(on_team_task_changed=told.append)
    state.import_snapshot(snapshot())
    assert state.team_task == "Build a boat"
    state.import_snapshot(snapshot(teamTask="x" * 6_000))
    state.import_snapshot(snapshot(teamTask=None))
    assert told == ["Build a boat", "x" * 5_120, None]


@pytest.mark.requirement("S3.9")
@pytest.mark.parametrize(
    "bad",
    [
        None,
        {},
        [],
        "{}",
        snapshot(version=2),
        snapshot(version=True),
        snapshot(version="1"),
        snapshot(messages=None),
        snapshot(messages={}),
        snapshot(messages=[None]),
        snapshot(messages=[said("without an id")]),
        snapshot(messages=[said("x", id="")]),
        snapshot(messages=[said(5, id="msg-1")]),
        snapshot(messages=[said("x", id="msg-1"), said("y", id="msg-1")]),
        snapshot(teamTask=5),
    ],
    ids=range(15),
)
def test_import_snapshot_throws_on_invalid_format(bad: object) -> None:
    state = team("one")
    state.set_team_task("Build a boat")
    before = state.export_snapshot(now_ms=NOW_MS)
    with pytest.raises(InvalidSnapshot, match=r"^Invalid snapshot format$") as refusal:
        state.import_snapshot(bad)
    assert refusal.value.code == "invalid_snapshot"
    assert state.export_snapshot(now_ms=NOW_MS) == before


@pytest.mark.requirement("S3.9")
@pytest.mark.parametrize(
    ("ids", "following"),
    [
        ([], "msg-1"),
        (["msg-3", "msg-12", "msg-7"], "msg-13"),
        (["a", "msg-", "msg-x", "xmsg-9", "msg-4-2"], "msg-1"),
        (["msg-\u0665", "msg-2"], "msg-3"),
        (["msg-" + "9" * 5_000], "msg-1"),
    ],
    ids=["empty", "highest", "other_ids", "ascii_digits", "no_counter"],
)
def test_the_next_id_follows_the_highest_imported_number(ids: list[str], following: str) -> None:
    state = TeamState()
    state.import_snapshot(snapshot(messages=[said("x", id=own_id) for own_id in ids]))
    assert state.add_message(said("next")).id == following

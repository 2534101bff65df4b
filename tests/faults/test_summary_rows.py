"""Rows F4 and F22: summaries that are killed, refused, slow or bad."""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.faults.armed import Armed
from tests.faults.harness import Tree
from tests.faults.programs import python, run, until
from tests.faults.stores import Postgres, Row, count
from tests.support.repository import ROOT
from tests.support.summaries_of_processes import (
    LONG_WORDS,
    get_active_summary,
    list_summaries,
    send_and_wait,
    start_folding_chat,
)

# Claim, sweep and some margin: within this time a killed worker's attempt is closed.
SUMMARY_SECONDS = "3"
# The summariser fails in these ways, each in a separate chat.
FAULTS: dict[str, dict[str, Any]] = {
    "401": {"fault": "401"},
    "500": {"fault": "500"},
    "context": {"fault": "context"},
    "413": {"fault": "context413"},
    "tpm": {"fault": "context429"},
    "stall": {"fault": "stall"},
    "cut": {"fault": "cut"},
    "event": {"fault": "error_event"},
    "malformed": {"fault": "malformed"},
    "blank": {"fault": "whitespace"},
    "refusal": {"fault": "refusal"},
    "length": {"fault": "length"},
    "nothing": {"tokens": 0},
    "thought": {"tokens": 0, "reasoning": 50},
    "noise": {"tokens": 400},
}


@pytest.fixture
def short_claims(planted: Tree) -> Iterator[Tree]:
    """A tree whose claims on summaries expire soon."""
    planted.env["SUMMARY_SECONDS"] = SUMMARY_SECONDS
    planted.clear("worker")
    planted.clear("beat")
    yield planted
    del planted.env["SUMMARY_SECONDS"]
    planted.fake.configure(faults=[])
    planted.clear("worker")
    planted.clear("beat")


def originals(tree: Tree, chat: str) -> dict[str, str]:
    """The hash of every message of a chat, by id."""
    rows = tree.database.rows(
        "SELECT m.* FROM chats_message m JOIN chats_branch b ON b.id = m.branch_id"
        " WHERE b.chat_id = %s",
        [tree.key(chat)],
    )
    fields = ("seq", "role", "parts", "finish")
    return {
        str(row["id"]): hashlib.sha256(json.dumps([row[f] for f in fields]).encode()).hexdigest()
        for row in rows
    }


@pytest.mark.parametrize("place", ["before_summary", "after_summary", "in_publication"])
def test_f04_a_summary_that_is_killed_changes_nothing_and_the_next_one_works(
    place: str, short_claims: Tree, tree: Tree
) -> None:
    chat = start_folding_chat(tree)
    armed = Armed(tree, place)
    for number in range(2):
        send_and_wait(tree, chat, f"Round {number}")
    before = originals(tree, chat)
    armed.arm()
    send_and_wait(tree, chat, "Round 2")
    armed.wait_for_kill()
    after = originals(tree, chat)
    assert before.items() <= after.items()
    assert get_active_summary(tree, chat) is None
    until(lambda: is_closed(tree, chat), seconds=20, what="the end of the dead claim")
    send_and_wait(tree, chat, "Round 3")
    until(lambda: get_active_summary(tree, chat), seconds=20, what="another summary")
    assert after.items() <= originals(tree, chat).items()
    armed.disarm()


def is_closed(tree: Tree, chat: str) -> bool:
    """Return True if the killed attempt ended with a reason, or was completed and is active."""
    rows = list_summaries(tree, chat)
    return bool(rows) and all(row["status"] not in {"preparing"} for row in rows)


def test_f22_a_summariser_may_fail_in_any_way_and_the_chats_answer(
    short_claims: Tree, tree: Tree
) -> None:
    tree.fake.configure(
        faults=[
            {**options, "match": f"canary-{name}-", "model": "fake", "times": 1000}
            for name, options in FAULTS.items()
        ]
    )
    chats = {name: start_folding_chat(tree) for name in FAULTS}
    for number in range(4):
        turns = [
            tree.post(f"canary-{name}- {number} {LONG_WORDS} [[fake tokens=30]]", chat=chat)
            for name, chat in chats.items()
        ]
        for turn in turns:
            assert tree.wait_until_over(turn, seconds=60)["status"] == "completed"
    before = {name: originals(tree, chat) for name, chat in chats.items()}
    for name, chat in chats.items():
        until(partial(get_active_summary, tree, chat), seconds=60, what=f"a summary after {name}")
        rows = list_summaries(tree, chat)
        ended = [row for row in rows if row["status"] in {"failed", "rejected"}]
        assert ended, name
        assert all(row["reason"] for row in ended), name
        found = get_active_summary(tree, chat)
        assert found is not None
        assert found["rung"] == "extractive", name
        assert originals(tree, chat) == before[name]
    tree.fake.configure(faults=[])
    tree.desk.ask("save_account", slug="fake")


def by_model(tree: Tree, chat: str) -> list[Row]:
    """The attempts that called a model."""
    return [row for row in list_summaries(tree, chat) if row["rung"] != "extractive"]


def fold_one_more(tree: Tree, chat: str, number: int) -> None:
    """Send a message that is answered and leads to a summary that takes effect."""
    send_and_wait(tree, chat, f"canary-breaker- {number}")
    told = f"summary {number}"
    until(lambda: len(published(tree, chat)) == number, seconds=30, what=told)


def published(tree: Tree, chat: str) -> list[Row]:
    """The summaries that were ever published."""
    return [row for row in list_summaries(tree, chat) if row["published_at"]]


def test_f22_a_ladder_in_which_the_model_failed_opens_the_breaker_for_a_quarter_of_an_hour(
    tree: Tree,
) -> None:
    refused = {"fault": "refusal", "match": "canary-breaker-", "model": "fake", "times": 1000}
    tree.fake.configure(faults=[refused])
    chat = start_folding_chat(tree)
    for number in range(2):
        send_and_wait(tree, chat, f"canary-breaker- first {number}")
    assert not tree.desk.ask("rest", chat=chat)["is_open"]
    fold_one_more(tree, chat, 1)
    assert [row["status"] for row in by_model(tree, chat)] == ["rejected"]

    rest = tree.desk.ask("rest", chat=chat)
    assert (rest["is_open"], rest["failures"]) == (True, 3)
    assert 14 * 60 < rest["seconds"] <= 15 * 60
    # Summaries without a model continue, and so does the chat.
    assert not rest["stops_everything"]
    for number in (2, 3):
        fold_one_more(tree, chat, number)
    assert len(by_model(tree, chat)) == 1

    tree.desk.ask("reset_breaker", chat=chat)
    assert not tree.desk.ask("rest", chat=chat)["is_open"]
    fold_one_more(tree, chat, 4)
    assert len(by_model(tree, chat)) == 2
    tree.fake.configure(faults=[])


def being_written(tree: Tree, chat: str) -> int:
    """The number of running summaries of a chat."""
    where = "status = %s AND branch_id IN (SELECT id FROM chats_branch WHERE chat_id = %s)"
    return count(tree.database, "chats_compaction", where, "preparing", tree.key(chat))


def test_no_reply_waits_for_a_summariser_that_takes_half_a_minute(tree: Tree) -> None:
    tree.clear("worker")
    for _ in range(2):
        tree.worker(PROVIDER_FIRST_TOKEN_TIMEOUT="60", SUMMARY_SECONDS="60")
    tree.fake.configure(faults=[{"ttft": 30_000, "model": "fake", "times": 1000}])
    chat = start_folding_chat(tree)
    slowest = 0.0
    for number in range(3):
        send_and_wait(tree, chat, f"Round {number}")
    until(lambda: being_written(tree, chat))
    for number in range(6):
        begun = time.monotonic()
        send_and_wait(tree, chat, f"Meanwhile {number}")
        slowest = max(slowest, time.monotonic() - begun)
    assert being_written(tree, chat) == 1
    assert slowest < 10, f"a reply took {slowest:.1f} s beside a slow summariser"
    tree.fake.configure(faults=[])
    tree.clear("worker")


def on(short: str) -> pytest.MarkDecorator:
    """Both databases in the full form of the programs, only `short` in the short one."""
    kinds = [
        pytest.param("sqlite", marks=() if short == "sqlite" else pytest.mark.whole),
        pytest.param(
            "postgres",
            marks=[pytest.mark.services, *([] if short == "postgres" else [pytest.mark.whole])],
        ),
    ]
    return pytest.mark.parametrize("kind", kinds)


@on("sqlite")
def test_inv_51_a_process_killed_at_any_border_leaves_the_chat_as_it_was_or_compacted(
    kind: str, request: pytest.FixtureRequest
) -> None:
    said = crashes("--every", "9", "--kills", "6", "--chats", "1", kind=kind, request=request)
    assert "as before" in said


# Only there do transactions race: SQLite has one writer.
@on("postgres")
def test_inv_38_eight_processes_at_the_same_chats_break_no_law(
    kind: str, request: pytest.FixtureRequest
) -> None:
    options = ["--workers", "8", "--chats", "3", "--steps", "12"]
    said = crashes(*options, kind=kind, request=request)
    assert "branch.created" in said


def crashes(*options: str, kind: str, request: pytest.FixtureRequest) -> str:
    """The output of the program, which must have found no violation, on an empty database."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    database = None
    if kind == "postgres":
        database = Postgres(request.getfixturevalue("cluster"), "crashes")
        env["PALIMPSEST_TEST_DATABASE_URL"] = database.owner_url
    try:
        said = run(python("-m", "tests.faults.crashes", *options), env=env, seconds=250)
        assert "0 lost, 0 doubled, 0 half-published" in said
        return said
    finally:
        if database is not None:
            database.close()

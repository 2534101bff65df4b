"""Background jobs run in separate processes, never delay replies, and stop on request."""

import signal
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

import pytest

from chats.ground import queues
from project.launcher import build_worker_command
from tests.faults.harness import TIMINGS, Tree
from tests.faults.programs import Program, until
from tests.faults.stores import Row, SQLite, count
from tests.support.summaries_of_processes import (
    LONG_WORDS,
    get_active_summary,
    list_summaries,
    send_and_wait,
    start_folding_chat,
)

# The time a worker may need to end, beyond the time of its replies.
BEYOND = 5
DRAIN = float(TIMINGS["WORKER_DRAIN_SECONDS"])
# Claim, sweep and some margin.
HEALED = 2 + 0.5 + 5
SLACK = timedelta(seconds=1)
PATIENT: dict[str, Any] = {"PROVIDER_FIRST_TOKEN_TIMEOUT": "120", "SUMMARY_SECONDS": "120"}


@pytest.fixture
def apart(tree: Tree) -> Iterator[tuple[Program, Program]]:
    """A worker for replies and one for background jobs, as the launcher starts them."""
    # Pending summaries of other tests would take slots.
    until(lambda: is_quiet(tree), seconds=40, what="the end of all summaries")
    tree.clear("worker")
    replies, background = tree.replies(), tree.background(**PATIENT)
    yield replies, background
    tree.fake.configure(faults=[])
    tree.clear("worker")


def slow_summaries(tree: Tree, seconds: int) -> None:
    """Set the delay of the summary model."""
    tree.fake.configure(faults=[{"ttft": 1000 * seconds, "model": "fake", "times": 1000}])


def due(tree: Tree, chats: int = 1, *, person: str = "alice") -> list[str]:
    """Chats with a summary that was just requested."""
    found = [tree.new_chat(model="locked", person=person) for _ in range(chats)]
    for chat in found:
        tree.desk.ask("fold_early", chat=chat)
    for number in range(3):
        text = f"Round {number} {LONG_WORDS} [[fake tokens=30]]"
        for turn in [tree.post(text, chat=chat, person=person) for chat in found]:
            assert tree.wait_until_over(turn)["status"] == "completed"
    return found


def is_quiet(tree: Tree) -> bool:
    """Return True if no summary is running or queued."""
    return not being_written(tree) and not count(
        tree.database, "chats_branch", "summary_due_at IS NOT NULL"
    )


def being_written(tree: Tree) -> int:
    """The number of running summaries."""
    return count(tree.database, "chats_compaction", "status = %s", "preparing")


def is_written(tree: Tree, chat: str) -> bool:
    """Return True if a summary of the chat is running."""
    return any(row["status"] == "preparing" for row in list_summaries(tree, chat))


def first_words(tree: Tree) -> float:
    """Seconds from a message in a new chat to the first saved text of its reply."""
    begun = time.monotonic()
    turn = tree.post("Quickly [[fake tokens=8]]", model="locked")
    assert tree.wait_until_over(turn)["status"] == "completed"
    return time.monotonic() - begun


def test_replies_go_on_beside_ten_slow_summaries(
    apart: tuple[Program, Program], tree: Tree
) -> None:
    before = median(first_words(tree) for _ in range(5))
    slow_summaries(tree, 60)
    due(tree, 10)
    until(lambda: being_written(tree) == 4, what="as many summaries as a person has places")
    # Other tests run on the machine. Without a free thread all of the replies would wait.
    after = median(first_words(tree) for _ in range(5))
    # A turn whose lease expired on a busy machine is retried later.
    assert being_written(tree) >= 3
    assert after < max(3 * before, before + 2), (
        f"{after:.2f} s beside summaries, {before:.2f} alone"
    )


def test_one_worker_for_everything_keeps_threads_for_replies(tree: Tree) -> None:
    until(lambda: is_quiet(tree), seconds=40, what="the end of all summaries")
    tree.clear("worker")
    tree.worker(build_worker_command(threads=8), SUMMARIES_PER_USER="100", **PATIENT)
    slow_summaries(tree, 60)
    due(tree, 10)
    until(lambda: being_written(tree) == 6, what="three quarters of eight threads")
    # Two threads are left. The due jobs and the other summaries pass through them too.
    assert median(first_words(tree) for _ in range(5)) < 2
    tree.fake.configure(faults=[])
    tree.clear("worker")


def test_a_thread_that_is_free_again_takes_the_next_task_at_once(tree: Tree) -> None:
    """A full worker asked the broker only once a second."""
    until(lambda: is_quiet(tree), seconds=40, what="the end of all summaries")
    tree.clear("worker")
    tree.worker(build_worker_command(queues.REPLIES, threads=1))
    first_words(tree)
    turns = [tree.post(f"Next {n} [[fake tokens=2]]", model="locked") for n in range(12)]
    rows = sorted((tree.wait_until_over(turn) for turn in turns), key=lambda row: row["started_at"])
    pauses = [
        (moment(after, "started_at") - moment(before, "finished_at")).total_seconds()
        for before, after in pairwise(rows)
    ]
    assert median(pauses) < 0.4, pauses
    tree.clear("worker")


def test_the_summary_of_one_person_does_not_wait_for_the_chats_of_another(
    apart: tuple[Program, Program], tree: Tree
) -> None:
    slow_summaries(tree, 60)
    due(tree, 6)
    until(lambda: being_written(tree) == 4, what="all of Alice's places")
    (chat,) = due(tree, person="charlie")
    until(lambda: is_written(tree, chat), seconds=5, what="a summary of Charlie's")


@pytest.mark.parametrize("kind", ["replies", "background"])
def test_a_worker_told_to_end_is_gone_in_time_whatever_runs(
    kind: str, apart: tuple[Program, Program], tree: Tree
) -> None:
    slow_summaries(tree, 60)
    (chat,) = due(tree)
    until(lambda: is_written(tree, chat), what="a summary in the making")
    turn = tree.post("Long [[fake tokens=100 ms=50]]", model="locked")
    tree.wait_for_text(turn)
    leaving = apart[0] if kind == "replies" else apart[1]
    assert leaving.terminate() < DRAIN + BEYOND
    if kind == "replies":
        assert tree.turn(turn)["status"] == "queued"
        return
    rows = list_summaries(tree, chat)
    assert [(row["status"], row["reason"]) for row in rows] == [("failed", "handed_back")]
    # The next worker writes it without a request by a person.
    tree.fake.configure(faults=[])
    tree.background(**PATIENT)
    until(lambda: get_active_summary(tree, chat), seconds=15, what="the summary of the next worker")


def test_a_killed_workers_summary_is_closed_in_time_and_written_by_the_next(
    apart: tuple[Program, Program], tree: Tree
) -> None:
    slow_summaries(tree, 60)
    (chat,) = due(tree)
    until(lambda: is_written(tree, chat), what="a summary in the making")
    apart[1].kill()
    tree.fake.configure(faults=[])
    until(lambda: ends(tree, chat) == ["worker_lost"], seconds=HEALED, what="the end of the claim")
    tree.background(**PATIENT)
    until(lambda: get_active_summary(tree, chat), seconds=15, what="the summary of the next worker")


def ends(tree: Tree, chat: str) -> list[str]:
    """The reasons of ended attempts."""
    return [row["reason"] for row in list_summaries(tree, chat) if row["status"] != "preparing"]


def test_a_summary_that_takes_longer_than_a_lease_keeps_its_claim(
    apart: tuple[Program, Program], tree: Tree
) -> None:
    slow_summaries(tree, 8)
    (chat,) = due(tree)
    until(
        lambda: get_active_summary(tree, chat), seconds=30, what="a summary that took four leases"
    )
    slow = [row for row in list_summaries(tree, chat) if row["rung"] == "model"]
    assert [row["duration_ms"] > 7000 for row in slow] == [True]
    # The model's output was used, and no sweep released the claim.
    assert slow[0]["reason"] != "worker_lost"


def test_time_never_runs_backwards_along_a_chain(
    apart: tuple[Program, Program], tree: Tree
) -> None:
    slow_summaries(tree, 2)
    chats = [start_folding_chat(tree) for _ in range(2)]
    for number in range(6):
        for chat in chats:
            send_and_wait(tree, chat, f"Round {number}")
    for chat in chats:
        until(lambda chat=chat: get_active_summary(tree, chat), seconds=20, what="a summary")  # type: ignore[misc]  # bound now
    rows = tree.database.rows("SELECT * FROM contextpolicy_auditevent ORDER BY scope, seq")
    assert any(row["type"] == "compaction.published" for row in rows)
    assert not list(steps_back(rows))


def steps_back(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """Each event of a chain with an earlier time than its predecessor.

    A process reads the clock before it waits for a lock, so less than a second does not count.
    """
    for before, after in pairwise(rows):
        if before["scope"] == after["scope"] and moment(after) < moment(before) - SLACK:
            yield (after["scope"], after["seq"], before["type"], after["type"])


def moment(event: Row, column: str = "at") -> datetime:
    """When an event happened; SQLite writes times as text."""
    at = event[column]
    return at if isinstance(at, datetime) else datetime.fromisoformat(at)


def test_a_stopped_worker_that_comes_back_writes_nothing(
    apart: tuple[Program, Program], tree: Tree
) -> None:
    slow_summaries(tree, 6)
    (chat,) = due(tree)
    until(lambda: is_written(tree, chat), what="a summary in the making")
    stop_between_transactions(apart[1], tree)
    until(lambda: "worker_lost" in ends(tree, chat), seconds=HEALED, what="the end of the claim")
    apart[1].send(signal.SIGCONT)
    until(lambda: get_active_summary(tree, chat), seconds=30, what="the summary of a new claim")
    lost = [row for row in list_summaries(tree, chat) if row["reason"] == "worker_lost"]
    assert [(row["status"], row["text"]) for row in lost] == [("failed", "")]


def stop_between_transactions(program: Program, tree: Tree) -> None:
    """Stop a process, but not while it holds SQLite's lock, which would block all writers."""
    program.send(signal.SIGSTOP)
    while isinstance(tree.database, SQLite) and not tree.database.takes_writers():
        program.send(signal.SIGCONT)
        time.sleep(0.05)
        program.send(signal.SIGSTOP)


@pytest.fixture
def titling(tree: Tree) -> Iterator[Program]:
    """A background worker, and a worker for replies whose first reply requests a title."""
    until(lambda: is_quiet(tree), seconds=40, what="the end of all summaries")
    tree.clear("worker")
    tree.replies(TITLES_BY_MODEL="1")
    yield tree.background(**PATIENT)
    tree.fake.configure(faults=[])
    tree.clear("worker")


@pytest.mark.parametrize("way", ["told to end", "killed"])
def test_a_title_that_a_worker_could_not_finish_is_closed_and_the_first_words_stay(
    way: str, titling: Program, tree: Tree
) -> None:
    chat = tree.new_chat(model="locked")
    tree.desk.ask("fold_early", chat=chat)
    slow_summaries(tree, 60)
    text = f"The first words {way} [[fake tokens=5]]"
    turn = tree.post(text, chat=chat)
    assert tree.wait_until_over(turn)["status"] == "completed"
    until(lambda: titles_asked_for(tree) == 1, what="a call for a title")
    if way == "killed":
        titling.kill()
    else:
        assert titling.terminate() < DRAIN + BEYOND
    until(lambda: titles_asked_for(tree) == 0, seconds=HEALED, what="the end of the call")
    assert tree.database.rows("SELECT id FROM chats_chat WHERE title = %s", [text])


def titles_asked_for(tree: Tree) -> int:
    """The number of unfinished calls for titles."""
    return count(tree.database, "chats_receipt", "step = 0 AND call = 0 AND outcome = %s", "open")

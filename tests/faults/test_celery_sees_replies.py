"""Celery's tools show replies: a task lasts as long as its turn."""

import json
import time
from typing import Any

from project.launcher import build_worker_command
from tests.faults.harness import Tree
from tests.faults.programs import python, run, until
from tests.faults.promises import tokens_of


def inspect(tree: Tree, method: str) -> list[dict[str, Any]]:
    """Return the merged result of `celery inspect` for all workers."""
    command = python("-m", "celery", "-A", "project", "inspect", "--json", "--timeout", "1", method)
    said = run(command, env=tree.env)
    return [task for tasks in json.loads(said).values() for task in tasks]


def turns_of(tasks: list[dict[str, Any]]) -> set[str]:
    """Return the turns that tasks work on."""
    return {task["kwargs"]["turn_id"] for task in tasks if task["name"] == "chats.run_turn"}


def test_a_reply_that_streams_is_an_active_task_until_its_end(tree: Tree) -> None:
    tree.clear("worker")
    tree.worker()
    turns = {tree.post(f"Reply {n} [[fake tokens=250 ms=40]]") for n in range(3)}
    for turn in turns:
        tree.wait_for_text(turn)
    assert turns_of(inspect(tree, "active")) == turns
    for turn in turns:
        tree.wait_until_over(turn, seconds=30)
    until(lambda: not turns_of(inspect(tree, "active")), seconds=10, what="the tasks' end")


def test_a_warm_shutdown_hands_a_reply_back_and_another_worker_ends_it(tree: Tree) -> None:
    tree.clear("worker")
    leaving = tree.worker(WORKER_DRAIN_SECONDS="1")
    turn = tree.post("A long one [[fake tokens=400 ms=40]]")
    tree.wait_for_text(turn)
    assert turns_of(inspect(tree, "active")) == {turn}
    tree.worker()
    assert leaving.terminate() < 10
    row = tree.wait_until_over(turn, seconds=30)
    assert (row["status"], row["losses"], tokens_of(tree, turn)) == ("completed", 0, 400)
    assert row["attempt"] == 2


def test_what_a_full_worker_has_no_thread_for_stays_in_the_broker(tree: Tree) -> None:
    tree.clear("worker")
    tree.worker(build_worker_command(threads=1))
    first = tree.post("The first [[fake tokens=2000 ms=40]]")
    tree.wait_for_text(first)
    waiting = [tree.post(f"Behind it {n} [[fake tokens=3]]") for n in range(2)]
    time.sleep(1)  # long enough for a worker that takes more than it can work on
    assert turns_of(inspect(tree, "reserved")) == set()
    tree.worker()
    for turn in waiting:
        tree.wait_until_over(turn, seconds=20)
    assert tree.turn(first)["status"] == "running"

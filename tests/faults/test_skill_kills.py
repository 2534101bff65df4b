"""Workers are killed while a model loads a skill: the chat has one call and one result."""

import json
import random
import time
from typing import Any

import pytest

from tests.faults.harness import Tree
from tests.faults.programs import Program

KILLS = [
    pytest.param(5, id="some"),
    pytest.param(40, id="many", marks=[pytest.mark.whole, pytest.mark.timeout(1500)]),
]
SEED = 20261129
TEXT = "Ask for the order number first."


def list_parts(tree: Tree, turn: str) -> list[dict[str, Any]]:
    """Return the parts of a turn's messages."""
    query = "SELECT parts FROM chats_message WHERE turn_id = %s AND seq IS NOT NULL ORDER BY seq"
    found: list[dict[str, Any]] = []
    for row in tree.database.rows(query, [tree.key(turn)]):
        parts: Any = row["parts"]
        found += json.loads(parts) if isinstance(parts, str) else parts
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", KILLS)
def test_a_skill_is_loaded_once_although_workers_are_killed(tree: Tree, kills: int) -> None:
    dice = random.Random(SEED)  # noqa: S311  # repeatable kills
    tree.clear("worker")
    worker: Program = tree.worker(None, wait=True)
    interrupted = 0
    for number in range(kills):
        chat = tree.new_chat()
        tree.desk.ask("choose_skill", chat=chat, text=TEXT)
        text = f"Refund number {number}. [[fake tokens=40 ms=40]]"
        call = {"id": f"load-{number}", "name": "skill_load", "arguments": {"name": "refunds"}}
        tree.fake.configure(replies=[{"match": text[:18], "tool_calls": [call]}])
        turn = tree.post(text, chat=chat)
        time.sleep(0.1 + dice.random() * 1.5)
        worker.kill()
        worker = tree.worker(None, wait=True)
        assert tree.wait_until_over(turn)["status"] == "completed", turn
        parts = list_parts(tree, turn)
        calls = [part for part in parts if part["type"] == "tool_call"]
        results = [part["content"] for part in parts if part["type"] == "tool_result"]
        assert len(calls) == len(results) == 1, parts
        assert TEXT in results[0]
        interrupted += tree.turn(turn)["attempt"] > 1
    assert interrupted, "no worker was killed during a turn"
    tree.clear("worker")

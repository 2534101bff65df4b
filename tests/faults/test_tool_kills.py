"""Workers that call tools of servers are killed: no call is repeated, and none is forgotten."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes.tool_server import FakeToolServer, describe, serving_tools
from tests.faults.harness import Tree
from tests.faults.programs import Program

KILLS = [
    pytest.param(6, id="some"),
    pytest.param(50, id="many", marks=[pytest.mark.whole, pytest.mark.timeout(1500)]),
]
SEED = 20261128
CALL_SECONDS = 0.8


@pytest.fixture
def tools() -> Iterator[FakeToolServer]:
    """A slow server with a tool that may be repeated, and one that may not."""
    with serving_tools() as fake:
        fake.tools = [describe("write"), describe("look", idempotentHint=True)]
        fake.fault, fake.slow_seconds = "slow", CALL_SECONDS
        yield fake


def ask(tree: Tree, tools: FakeToolServer, number: int) -> str:
    """Post a message for which the model calls both tools; return its turn."""
    chat = tree.new_chat()
    tree.desk.ask("allow_tools", chat=chat, url=tools.url)
    calls = [
        {"id": f"{name}-{number}", "name": f"kills__{name}", "arguments": {"text": f"{number}"}}
        for name in ("write", "look")
    ]
    replies = [{"match": f"Work number {number}.", "tool_calls": calls}]
    tree.fake.configure(replies=replies)
    return tree.post(f"Work number {number}.", chat=chat)


def list_results(tree: Tree, turn: str) -> dict[str, str]:
    """Return the results of a turn's calls in its chat, by tool."""
    query = "SELECT parts FROM chats_message WHERE turn_id = %s"
    found: dict[str, str] = {}
    for row in tree.database.rows(query, [tree.key(turn)]):
        parts: Any = row["parts"]
        for part in json.loads(parts) if isinstance(parts, str) else parts:
            if part["type"] == "tool_result":
                found[part["name"]] = part["content"]
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", KILLS)
def test_a_call_of_a_killed_worker_is_made_once(
    tree: Tree, tools: FakeToolServer, kills: int
) -> None:
    dice = random.Random(SEED)  # noqa: S311  # repeatable kills
    allowed = {"ALLOWED_PRIVATE_PROVIDERS": f"{tree.env['ALLOWED_PRIVATE_PROVIDERS']},{tools.host}"}
    tree.clear("worker")
    unknown = 0
    worker: Program = tree.worker(None, wait=True, **allowed)
    for number in range(kills):
        turn = ask(tree, tools, number)
        time.sleep(dice.random() * 2.5 * CALL_SECONDS)
        worker.kill()
        worker = tree.worker(None, wait=True, **allowed)
        assert tree.wait_until_over(turn)["status"] == "completed", turn
        results = list_results(tree, turn)
        assert set(results) == {"kills__write", "kills__look"}
        made = Counter(
            call["name"] for call in tools.calls if call["arguments"]["text"] == f"{number}"
        )
        # A call that was made is not repeated, unless its tool is idempotent.
        rows = tree.database.rows(
            "SELECT tool, outcome FROM chats_toolcall WHERE turn_id = %s",
            [tree.key(turn)],
        )
        outcomes = {str(row["tool"]): str(row["outcome"]) for row in rows}
        assert len(rows) == len(outcomes) == 2
        assert set(outcomes.values()) <= {"ok", "unknown"}, outcomes
        is_unknown = outcomes["write"] == "unknown"
        assert made["write"] <= 1
        assert is_unknown or made["write"] == 1
        assert 1 <= made["look"] <= 2
        assert f"echo: {number}" in results["kills__look"]
        unknown += is_unknown
    assert unknown, "no call was interrupted"
    # The settings of this worker are not those of other tests.
    tree.clear("worker")

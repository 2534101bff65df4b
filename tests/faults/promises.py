"""The product's promises to users, as checks of the stores after all work has ended."""

import base64
import json
import re
import zlib
from collections import Counter
from typing import Any

from tests.faults.harness import Tree
from tests.faults.programs import until
from tests.faults.stores import Row, count

TOKEN = re.compile(r" (\d+)@\d+;")
OVER = {"completed", "stopped", "failed", "absorbed"}
# Outcomes of an incomplete reply; the page labels it and offers to continue.
LABELLED = {"incomplete", "stopped", "limit", "length"}


def assert_promises(tree: Tree) -> None:
    """Check outcomes of messages, completeness of replies, and receipts of calls."""
    until(lambda: not unfinished(tree), seconds=30, what=f"{unfinished(tree)} to end")
    turns = {str(row["id"]): row for row in tree.database.rows("SELECT * FROM chats_turn")}
    said = tree.database.rows("SELECT * FROM chats_message")
    assert_each_message_has_one_outcome(tree, turns, said)
    assert_order_without_gaps(said)
    assert_replies_are_no_mixture(turns, said)
    assert count(tree.database, "chats_receipt", "outcome = 'open'") == 0
    assert tree.desk.ask("verify") == []


def unfinished(tree: Tree) -> list[str]:
    """The turns that have not ended."""
    rows = tree.database.rows(
        "SELECT id, status FROM chats_turn WHERE status IN ('queued', 'running')"
    )
    return [f"{row['id']} ({row['status']})" for row in rows]


def assert_each_message_has_one_outcome(tree: Tree, turns: dict[str, Row], said: list[Row]) -> None:
    """Each message is accepted, stored and handled once, and is answered or fails once."""
    stored = Counter(str(row["id"]) for row in said if row["role"] == "user")
    for message in map(tree.key, tree.accepted):
        assert stored[message] == 1, f"{message} was accepted and is stored {stored[message]} times"
    own = {str(turn["trigger_id"]): turn for turn in turns.values()}
    for row in said:
        if row["role"] != "user":
            continue
        turn = turns[str(row["turn_id"])] if row["turn_id"] else own[str(row["id"])]
        assert turn["status"] in OVER
        # The message of a turn that was stopped before it began waits for the next turn.
        assert row["seq"] is not None or turn["status"] == "stopped"


def assert_order_without_gaps(said: list[Row]) -> None:
    """The seqs of each branch are 1, 2, 3, …"""
    branches: dict[str, list[int]] = {}
    for row in said:
        if row["seq"] is not None:
            branches.setdefault(str(row["branch_id"]), []).append(row["seq"])
    for branch, seqs in branches.items():
        assert sorted(seqs) == list(range(1, len(seqs) + 1)), f"branch {branch}: {sorted(seqs)}"


def assert_replies_are_no_mixture(turns: dict[str, Row], said: list[Row]) -> None:
    """Each step has the text of one attempt, and each completed turn has a reply."""
    steps: Counter[str] = Counter()
    for row in said:
        if row["role"] == "assistant":
            steps[str(row["turn_id"])] += 1
            assert_whole(row)
    for turn_id, turn in turns.items():
        assert steps[turn_id] <= max(turn["step"], 1), f"turn {turn_id} wrote a step twice"
        assert turn["status"] != "completed" or turn["reply_id"]
        assert turn["status"] != "failed" or turn["error_code"]
        assert turn["status"] != "failed" or turn["error_sentence"]


def assert_whole(reply: Row) -> None:
    """Numbered tokens are complete and in order; labelled replies have them up to a cut."""
    text = text_of(reply)
    numbers = [int(number) for number in TOKEN.findall(text)]
    assert numbers == list(range(len(numbers))), f"reply {reply['id']} is mixed: {text[:500]}"
    if numbers and reply["finish"] not in LABELLED:
        assert TOKEN.sub("", text).strip() == ""


def text_of(message: Row) -> str:
    """The visible text of a message's row."""
    return "".join(part["text"] for part in parts_of(message) if part["type"] == "text")


def parts_of(message: Row) -> list[dict[str, Any]]:
    """The parts of a message's row. One database returns them as text, and long ones are packed."""
    parts = message["parts"]
    found = json.loads(parts) if isinstance(parts, str) else parts
    if isinstance(found, dict):
        found = json.loads(zlib.decompress(base64.b64decode(found["deflated"])))
    listed: list[dict[str, Any]] = found
    return listed


def reply_of(tree: Tree, turn_id: str) -> Row:
    """The reply of a turn."""
    query = "SELECT m.* FROM chats_message m JOIN chats_turn t ON t.reply_id = m.id WHERE t.id = %s"
    return tree.database.rows(query, [tree.key(turn_id)])[0]


def tokens_of(tree: Tree, turn_id: str) -> int:
    """The number of numbered tokens in a turn's reply."""
    return len(TOKEN.findall(text_of(reply_of(tree, turn_id))))


def receipts_of(tree: Tree, turn_id: str) -> list[Row]:
    """The receipts of a turn's calls."""
    query = "SELECT * FROM chats_receipt WHERE turn_id = %s ORDER BY attempt, step, call"
    return tree.database.rows(query, [tree.key(turn_id)])


def events_of(tree: Tree, turn_id: str) -> list[str]:
    """The ledger's events of a turn, in order."""
    query = "SELECT type FROM contextpolicy_auditevent WHERE turn_id = %s ORDER BY id"
    return [row["type"] for row in tree.database.rows(query, [tree.key(turn_id)])]

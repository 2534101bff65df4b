"""Summaries that real worker processes write."""

from tests.faults.harness import Tree
from tests.faults.stores import Row

LONG_WORDS = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo. " * 8


def start_folding_chat(tree: Tree) -> str:
    """A chat compacted after two rounds; replies and summaries use different accounts."""
    chat = tree.new_chat(model="locked")
    tree.desk.ask("fold_early", chat=chat)
    return chat


def send_and_wait(tree: Tree, chat: str, text: str) -> Row:
    """Send a message that must be answered."""
    row = tree.wait_until_over(tree.post(f"{text} {LONG_WORDS} [[fake tokens=30]]", chat=chat))
    assert row["status"] == "completed", row["error_code"]
    return row


def list_summaries(tree: Tree, chat: str) -> list[Row]:
    """The attempts at summaries of a chat, oldest first."""
    return tree.database.rows(
        "SELECT c.*, b.active_compaction_id FROM chats_compaction c"
        " JOIN chats_branch b ON b.id = c.branch_id"
        " WHERE b.chat_id = %s AND c.kind = 'summary' ORDER BY c.created_at, c.attempt",
        [tree.key(chat)],
    )


def get_active_summary(tree: Tree, chat: str) -> Row | None:
    """The active summary, which must be complete."""
    for row in list_summaries(tree, chat):
        if row["id"] == row["active_compaction_id"]:
            assert (row["status"], bool(row["text"])) == ("published", True)
            return row
    return None

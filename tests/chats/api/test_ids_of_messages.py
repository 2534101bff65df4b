"""Lists of other products with repeated, empty or strange ids are imported completely."""

import json
from typing import Any

import pytest

from tests.chats.api.bringing import bring, brought, refused
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_ui_message, join_json_lines, list_path_texts

pytestmark = pytest.mark.usefixtures("streams")


def say(own: Any, text: str) -> dict[str, Any]:
    """Return a message with any id; without one for None."""
    message = {**build_ui_message("x", text), "id": own}
    return message if own is not None else {n: v for n, v in message.items() if n != "id"}


def texts(made: dict[str, Any]) -> list[str]:
    """Return the texts of the active path."""
    return [text for _, text in list_path_texts(made["chat"])]


def test_a_repeated_id_is_replaced_and_reported(of_alice: Program) -> None:
    listed = [say("a", "One"), say("b", "Two"), say("a", "Three"), say("a", "One")]
    data = json.dumps(listed).encode()
    made = brought(of_alice, data)
    assert texts(made) == ["One", "Two", "Three", "One"]
    assert made["losses"] == ["id_twice:a", "id_twice:a"]
    # A longer export continues the same chat.
    found = bring(of_alice, json.dumps([*listed, say("c", "Five")]).encode())
    assert (found.chats[0]["chat"], found.row["messages"]) == (made["chat"], 1)


def test_an_exact_repetition_is_ignored(of_alice: Program) -> None:
    listed = [say("a", "One"), say("a", "One"), say("b", "Two")]
    made = brought(of_alice, json.dumps({"id": "c", "messages": listed}).encode())
    assert (texts(made), made["losses"]) == (["One", "Two"], [])


def test_messages_without_a_valid_id_get_one(of_alice: Program) -> None:
    ids = ["", None, 7, "message-5", "", "x" * 300, "a\x7f", True, ["a"]]
    listed = [say(own, f"Text {place}") for place, own in enumerate(ids)]
    made = brought(of_alice, json.dumps(listed).encode())
    assert texts(made) == [f"Text {place}" for place in range(len(ids))]
    assert made["losses"] == []


@pytest.mark.parametrize("second", ["a", "", "x" * 300])
def test_lines_need_unique_and_valid_ids(second: str, of_alice: Program) -> None:
    code, _ = refused(of_alice, join_json_lines(say("a", "One"), say(second, "Two")))
    assert code == "import_malformed"

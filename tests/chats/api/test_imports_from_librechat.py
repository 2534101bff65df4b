"""Exports of LibreChat: trees and lists of messages."""

import io
import json
import zipfile
from typing import Any

import pytest

from chats.models import Branch
from tests.chats.api.bringing import bring, brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import list_path_texts

pytestmark = pytest.mark.usefixtures("streams")
ROOT = "00000000-0000-0000-0000-000000000000"


def said(own: str, *children: Any, above: str = ROOT, **more: Any) -> dict[str, Any]:
    """Return a message with the messages below it."""
    return {
        "messageId": own,
        "parentMessageId": above,
        "isCreatedByUser": own.startswith("u"),
        "text": f"{own} speaks",
        "children": list(children),
        **more,
    }


def tree(own: str, *messages: Any, **more: Any) -> dict[str, Any]:
    """Return a chat as LibreChat exports it by default."""
    about = {"conversationId": own, "endpoint": "openAI", "title": own, "recursive": True}
    return {**about, "messagesTree": list(messages), **more}


def grown(own: str) -> dict[str, Any]:
    """Return a chat with a question and two answers."""
    return tree(own, said("u1", said("a1", above="u1"), said("a2", above="u1")))


def zipped(*chats: Any) -> bytes:
    """Return a ZIP archive with a file for each chat."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for place, chat in enumerate(chats):
            archive.writestr(f"fish {place}.json", json.dumps(chat, indent=2))
    return held.getvalue()


@pytest.mark.parametrize("indent", [None, 2])
def test_a_tree_of_messages_is_imported(indent: int | None, of_alice: Program) -> None:
    made = brought(of_alice, json.dumps(grown("l1"), indent=indent).encode())
    assert (made["messages"], made["losses"]) == (3, [])
    assert Branch.objects.filter(chat=made["chat"]).count() == 2
    assert list_path_texts(made["chat"])[0] == ("user", "u1 speaks")


def test_trees_in_an_archive_and_in_an_array_are_imported(of_alice: Program) -> None:
    for data in (zipped(grown("z1"), grown("z2")), json.dumps([grown("z3"), grown("z4")]).encode()):
        found = bring(of_alice, data)
        assert (found.row["form"], found.row["added"], found.not_taken) == ("librechat", 2, [])


def test_a_message_without_a_parent_follows_the_message_that_contains_it(of_alice: Program) -> None:
    answer = said("a1")
    del answer["parentMessageId"]
    made = brought(of_alice, json.dumps(tree("l2", said("u1", answer))).encode())
    assert [text for _, text in list_path_texts(made["chat"])] == ["u1 speaks", "a1 speaks"]


def test_an_empty_tree_does_not_hide_a_list(of_alice: Program) -> None:
    chat = tree("l3", messages=[said("u1"), said("a1", above="u1")])
    assert brought(of_alice, json.dumps(chat).encode())["messages"] == 2

"""Exports of LibreChat: trees and lists of messages."""

import io
import json
import zipfile
from typing import Any

import pytest

from chats.exchange import bounds, deep_trees
from chats.exchange.drafts import ImportRefused
from chats.models import Branch, Message
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


def nested(own: str, turns: int, **more: Any) -> dict[str, Any]:
    """Return a chat in which each message contains the next."""
    message: dict[str, Any] | None = None
    for turn in range(turns, 0, -1):
        kind = "a" if turn % 2 == 0 else "u"
        above = f"{'u' if turn % 2 == 0 else 'a'}{turn - 1}" if turn > 1 else ROOT
        message = said(f"{kind}{turn}", *([message] if message else []), above=above)
    return tree(own, message, **more)


@pytest.mark.parametrize("turns", [60, 400])
def test_a_long_tree_is_imported_with_all_messages(turns: int, of_alice: Program) -> None:
    found = bring(of_alice, json.dumps(nested("long", turns)).encode())
    assert (found.row["state"], found.row["messages_imported"]) == ("done", turns)
    (made,) = found.chats
    path = [text.partition(" ")[0][1:] for _, text in list_path_texts(made["chat"])]
    assert path == [str(turn) for turn in range(1, turns + 1)]


@pytest.mark.parametrize("own_id", ["kept", "absent", "empty"])
def test_a_long_tree_without_parents_keeps_its_branches(own_id: str, of_alice: Program) -> None:
    chat = nested("long", 60)
    message = chat["messagesTree"][0]
    message["children"].append(said("a61"))
    waiting = [message]
    while waiting:
        message = waiting.pop()
        waiting += message["children"]
        del message["parentMessageId"]
        if own_id == "absent":
            del message["messageId"]
        elif own_id == "empty":
            message["messageId"] = ""
    made = brought(of_alice, json.dumps(chat).encode())
    assert Branch.objects.filter(chat=made["chat"]).count() == 2
    path = [text for _, text in list_path_texts(made["chat"])]
    assert path == ["u1 speaks", "a61 speaks"]


def test_a_long_tree_in_an_array_keeps_no_other_chat_out(of_alice: Program) -> None:
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    listed = [nested("one", 60), tree("deep", said("u1", content=deep)), grown("two")]
    for data in (json.dumps(listed).encode(), zipped(listed)):
        found = bring(of_alice, data)
        assert found.row["state"] == "done"
        assert [made["title"] for made in found.chats] == ["one", "two"]
        assert found.not_taken == [("Chat 2", "import_too_deep")]


def test_a_tree_of_more_than_two_mebibytes_is_imported(of_alice: Program) -> None:
    chat = nested("big", 120)
    chat["messagesTree"][0]["text"] = "x" * 2_500_000
    assert brought(of_alice, json.dumps(chat).encode())["messages"] == 120


def test_only_lists_of_messages_are_unfolded() -> None:
    argument = {"children": [{"text": 'a "children":[ in a text'}], "messages": [1]}
    inner = said("a2", above="u1", content=[{"type": "x", "x": argument}])
    chat = tree("f", said("u1", inner, "stray", said("a3")), [], said("u4"), options={"a": [{}]})
    flat = json.loads(deep_trees.flatten_tree(json.dumps(chat).encode(), place="x"))
    listed = flat.pop("messagesTree")
    del chat["messagesTree"]
    assert flat == chat
    assert [item and item["messageId"] for item in listed] == ["u1", "a2", None, "a3", None, "u4"]
    assert listed[1] == inner


@pytest.mark.parametrize(
    "text", ['[{"messages":[{}]}]', '{"messagesTree":[{"children":[', "]", "1"]
)
def test_incomplete_data_is_not_unfolded(text: str) -> None:
    assert deep_trees.flatten_tree(text.encode(), place="x") == text.encode()


def test_a_tree_with_too_many_messages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LINES", 3)
    data = json.dumps(nested("many", 4)).encode()
    with pytest.raises(ImportRefused) as refusal:
        deep_trees.flatten_tree(data, place="x")
    assert refusal.value.code == "import_too_many"


def test_files_of_messages_are_imported_by_name(of_alice: Program) -> None:
    photo = {"file_id": "f1", "filename": "cat.png", "filepath": "/i/f1", "type": "image/png"}
    chart = {"file_id": "f2", "filename": "plot.png", "toolCallId": "t", "type": "image/png"}
    found = {"type": "web_search", "web_search": {"results": []}}
    inline = {"type": "image_file", "image_file": {"file_id": "f3", "filename": "b.png"}}
    answer = said("a1", above="u1", attachments=[chart, found], content=[inline])
    chat = tree("files", said("u1", answer, text="", files=[photo, photo]))
    made = brought(of_alice, json.dumps(chat).encode())
    assert made["losses"] == ["file_by_name_only"] * 2 + [
        "content_dropped:web_search",
        "file_by_name_only",
    ]
    rows = Message.objects.filter(branch__chat=made["chat"]).order_by("seq")
    files = [[(part["media_type"], part["name"]) for part in row.parts] for row in rows]
    assert files == [
        [("image/png", "cat.png")],
        [("image/*", "b.png"), ("image/png", "plot.png")],
    ]

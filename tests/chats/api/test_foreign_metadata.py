"""Metadata of a front end is kept, and means nothing here."""

import json
from typing import Any

import pytest

from chats.models import Branch, Chat, Message
from tests.chats.api.bringing import brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import (
    build_ui_message,
    export_chat,
    join_json_lines,
    list_path_texts,
)

pytestmark = pytest.mark.usefixtures("streams")
FOREIGN: dict[str, Any] = {
    "userId": 42,
    "ts": "2024-05-01",
    "kind": "question",
    "pinned": True,
    "excluded": True,
    "erased": True,
    "active": True,
    "parentId": "elsewhere",
    "chatId": "their chat",
    "addressees": ["Mia"],
    "speaker": {"roleId": "r", "roleName": "Mia", "type": "ai"},
    "foreignMetadata": {"a": 1},
    "mood": "fine",
}


def say(own: str, text: str, role: str = "user", **metadata: Any) -> dict[str, Any]:
    """Return a message of the AI SDK."""
    return {**build_ui_message(own, text, role), "metadata": metadata}


def assert_plain(chat_id: str, *, metadata: dict[str, Any], client: Program) -> None:
    """Check that no value was interpreted, and that each comes back."""
    for row in Message.objects.filter(branch__chat__pk=chat_id):
        flags = (row.pinned_at, row.erased_at, row.excluded, row.speaker, row.addressees)
        assert flags == (None, None, False, None, [])
    shown = client.get(f"ui-chats/{chat_id}").json()["messages"][0]["metadata"]
    assert {**shown, "ts": metadata.get("ts")} == metadata


def test_metadata_in_a_list_of_messages_is_kept_and_means_nothing(of_alice: Program) -> None:
    listed = [say("a", "One", **FOREIGN), say("b", "Two", "assistant", active=True), say("c", "3")]
    made = brought(of_alice, json.dumps(listed).encode())
    assert [text for _, text in list_path_texts(made["chat"])] == ["One", "Two", "3"]
    assert Branch.objects.filter(chat=made["chat"]).count() == 1
    assert_plain(made["chat"], metadata=FOREIGN, client=of_alice)
    # Neither does it in our own export, which brings it back.
    written = export_chat(of_alice, made["chat"])
    again = brought(of_alice, written.replace(b'"id":"a"', b'"id":"a9"'))
    assert_plain(again["chat"], metadata=FOREIGN, client=of_alice)
    assert export_chat(of_alice, again["chat"]).replace(b"a9", b"a") == written


def test_metadata_in_a_request_is_kept_and_means_nothing(of_alice: Program) -> None:
    body = {"id": "front-end", "messages": [say("m", "One", **FOREIGN)]}
    answer = of_alice.post("ui-chats", body)
    assert answer.status_code == 200, answer.content
    chat = str(Chat.objects.get().pk)
    assert_plain(chat, metadata=FOREIGN, client=of_alice)
    kept = Message.objects.get().metadata["source"]["metadata"]
    assert {"chatId", "kind", "parentId"}.isdisjoint(kept)


def test_lines_and_marked_lists_are_read_as_ours(of_alice: Program) -> None:
    told = [say("a", "One", pinned=True), say("b", "Two"), say("c", "Other", parentId="a")]
    marked = [{**each, "id": f"{each['id']}2", "metadata": {**each["metadata"]}} for each in told]
    marked[0]["metadata"]["channel"] = "palimpsest"
    marked[2]["metadata"]["parentId"] = "a2"
    for data in (join_json_lines(*told), json.dumps(marked).encode()):
        made = brought(of_alice, data)
        assert Branch.objects.filter(chat=made["chat"]).count() == 2
        pinned = Message.objects.filter(branch__chat=made["chat"], pinned_at__isnull=False)
        assert pinned.count() == 1


def test_our_export_as_json_is_read_as_ours(of_alice: Program) -> None:
    told = [say("a", "One", pinned=True), say("b", "Two"), say("c", "Other", parentId="a")]
    made = brought(of_alice, join_json_lines(*told))
    written = json.loads(export_chat(of_alice, made["chat"], form="json"))
    again = brought(of_alice, json.dumps({**written, "id": "another"}).encode())
    assert Branch.objects.filter(chat=again["chat"]).count() == 2

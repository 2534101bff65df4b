"""Chats that are pinned or archived in another product are so after the import."""

import json
from typing import Any

import pytest

from chats.models import Chat
from tests.chats.api.bringing import brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import build_chatgpt_node

pytestmark = pytest.mark.usefixtures("streams")


def chatgpt(**more: Any) -> Any:
    """Return a ChatGPT conversation."""
    node = build_chatgpt_node("u", None, [], "user", "Cats?")
    return {"conversation_id": "g", "title": "C", "mapping": {"u": node}, **more}


def claude(**more: Any) -> Any:
    """Return a Claude conversation."""
    said = {"uuid": "m", "sender": "human", "text": "Dogs?"}
    return {"uuid": "c", "name": "C", "chat_messages": [said], **more}


def webui(**more: Any) -> Any:
    """Return an Open WebUI chat."""
    said = {"id": "b", "role": "user", "content": "Birds?"}
    return {"id": "w", "chat": {"history": {"messages": {"b": said}}}, **more}


def grok(**more: Any) -> Any:
    """Return a Grok conversation."""
    said = {"_id": "r", "sender": "human", "message": "Fish?"}
    return {"conversation": {"id": "k", **more}, "responses": [{"response": said}]}


@pytest.mark.parametrize(
    ("export", "pinned", "archived"),
    [
        (grok(starred=True), True, False),
        (chatgpt(is_starred=True, is_archived=True), True, True),
        (chatgpt(is_starred=None, is_archived=False), False, False),
        (claude(is_starred=True), True, False),
        (webui(pinned=True, archived=True), True, True),
        (webui(pinned="yes", archived=1), False, False),
    ],
)
def test_pins_and_archived_chats_are_kept(
    export: Any, pinned: bool, archived: bool, of_alice: Program
) -> None:
    made = brought(of_alice, json.dumps([export]).encode())
    chat = Chat.objects.get(pk=made["chat"])
    assert (chat.pinned, chat.archived, made["losses"]) == (pinned, archived, [])


@pytest.mark.parametrize(
    "export",
    [
        chatgpt(conversation_template_id="g-p-1"),
        claude(project_uuid="p"),
        webui(folder_id="f"),
    ],
)
def test_a_folder_whose_name_is_not_in_the_file_is_reported(export: Any, of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([export]).encode())
    assert made["losses"] == ["project_left_out"]


def test_a_folder_with_its_name_is_kept_and_a_gpt_is_none(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([claude(project={"name": "Pets"})]).encode())
    folder = Chat.objects.get(pk=made["chat"]).folder
    assert folder is not None
    assert (folder.name, made["losses"]) == ("Pets", [])
    made = brought(of_alice, json.dumps([chatgpt(gizmo_id="g-7")]).encode())
    assert made["losses"] == []

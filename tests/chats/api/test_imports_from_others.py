"""Imports from other products: message trees, tools, and reported losses."""

import io
import json
import zipfile
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from chats.models import Branch, Message, MessageImage
from chats.record.images import format_data_url
from tests.chats.api.bringing import bring, brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import (
    PNG,
    build_chatgpt_node,
    build_pictured_chat,
    join_json_lines,
    list_path_texts,
    zip_entries,
)

pytestmark = pytest.mark.usefixtures("streams")


GPT = {
    "title": "Cats",
    "conversation_id": "gpt-1",
    "current_node": "a1",
    "mapping": {
        node["id"]: node
        for node in (
            build_chatgpt_node("root", None, ["sys"]),
            build_chatgpt_node(
                "sys", "root", ["u1"], "system", "", is_visually_hidden_from_conversation=True
            ),
            build_chatgpt_node("u1", "sys", ["a1", "a2"], "user", "What do cats eat?\0"),
            build_chatgpt_node("a1", "u1", [], "assistant", "Fish."),
            build_chatgpt_node("call", "u2", ["tool"], "assistant", '{"q": 1}', recipient="search"),
            build_chatgpt_node("tool", "call", ["a3"], "tool", "found it"),
            build_chatgpt_node("a3", "tool", [], "assistant", "Look.", model_slug="gpt-x"),
            build_chatgpt_node("a2", "u1", ["u2"], "assistant", "Meat."),
            build_chatgpt_node(
                "u2",
                "a2",
                ["call"],
                "user",
                content={
                    "content_type": "multimodal_text",
                    "parts": ["And this?", {"asset_pointer": "file-service://x"}],
                },
            ),
        )
    },
}
CLAUDE = {
    "uuid": "claude-1",
    "name": "Dogs",
    "chat_messages": [
        {
            "uuid": "m1",
            "sender": "human",
            "text": "What do dogs eat?",
            "created_at": "2024-01-02T03:04:05Z",
            "attachments": [{"file_name": "list.txt", "extracted_content": "bones"}],
        },
        {
            "uuid": "m2",
            "sender": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}},
                {"type": "tool_result", "tool_use_id": "t1", "content": "seen"},
                {"type": "text", "text": "Bones."},
                {"type": "hologram"},
            ],
        },
    ],
}
WEBUI = {
    "id": "w-1",
    "title": "Birds",
    "chat": {
        "history": {
            "currentId": "b2",
            "messages": {
                "b1": {
                    "id": "b1",
                    "parentId": None,
                    "childrenIds": ["b2"],
                    "role": "user",
                    "content": "Birds?",
                    "timestamp": 1_700_000_000,
                },
                "b2": {
                    "id": "b2",
                    "parentId": "b1",
                    "childrenIds": [],
                    "role": "assistant",
                    "content": "Seeds.",
                    "model": "m",
                },
            },
        }
    },
}
LIBRE = {
    "conversationId": "l-1",
    "title": "Fish",
    "messages": [
        {
            "messageId": "f1",
            "parentMessageId": "00000000-0000-0000-0000-000000000000",
            "isCreatedByUser": True,
            "text": "Fish?",
            "children": [
                {"messageId": "f2", "parentMessageId": "f1", "sender": "x", "text": "Algae."},
                {
                    "messageId": "f3",
                    "parentMessageId": "f1",
                    "content": [{"type": "text", "text": {"value": "Worms."}}],
                },
            ],
        }
    ],
}
CODE = join_json_lines(
    {"type": "summary", "summary": "Tidy up", "leafUuid": "x"},
    {
        "type": "user",
        "uuid": "c1",
        "parentUuid": None,
        "sessionId": "s-1",
        "isSidechain": False,
        "message": {"role": "user", "content": "Tidy up"},
    },
    {
        "type": "assistant",
        "uuid": "c2",
        "parentUuid": "c1",
        "message": {
            "role": "assistant",
            "model": "m",
            "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"c": "ls"}}],
        },
    },
    {
        "type": "user",
        "uuid": "c3",
        "parentUuid": "c2",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a b"}],
        },
    },
    {
        "type": "assistant",
        "uuid": "c4",
        "parentUuid": "c3",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    },
)
PI = join_json_lines(
    {"type": "session", "id": "pi-1"},
    {"type": "message", "message": {"role": "user", "content": "Tidy up"}},
    {
        "type": "message",
        "message": {
            "role": "assistant",
            "content": [{"type": "toolCall", "id": "t", "name": "bash", "arguments": {"c": 1}}],
        },
    },
    {
        "type": "message",
        "message": {
            "role": "toolResult",
            "toolCallId": "t",
            "content": [{"type": "text", "text": "a b"}],
        },
    },
    {"type": "message", "message": {"role": "assistant", "content": "Done."}},
)
CODEX = join_json_lines(
    {"type": "session_meta", "payload": {"id": "cx-1"}},
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Tidy up"}],
        },
    },
    {
        "type": "response_item",
        "payload": {"type": "function_call", "call_id": "t", "name": "shell", "arguments": "{}"},
    },
    {
        "type": "response_item",
        "payload": {"type": "function_call_output", "call_id": "t", "output": "a b"},
    },
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Done."}],
        },
    },
)
PLAIN = join_json_lines(
    {"role": "system", "content": "Obey."},
    {"role": "user", "content": "Tidy up"},
    {"role": "assistant", "content": "Done."},
)
ALL = {
    "chatgpt": (json.dumps([GPT]).encode(), 6, 2),
    "claude": (json.dumps([CLAUDE]).encode(), 2, 1),
    "open_webui": (json.dumps([WEBUI], indent=1).encode(), 2, 1),
    "librechat": (json.dumps(LIBRE).encode(), 3, 2),
    "claude_code": (CODE, 3, 1),
    "pi": (PI, 3, 1),
    "codex": (CODEX, 3, 1),
    "plain": (PLAIN, 2, 1),
}


@pytest.mark.parametrize("form", list(ALL))
def test_each_form_is_told_by_its_content_and_taken_once(form: str, of_alice: Program) -> None:
    data, messages, branches = ALL[form]
    found = bring(of_alice, data)
    assert (found.row["state"], found.row["form"], found.row["found"]) == ("done", form, 1)
    (made,) = found.outcomes
    assert made["messages"] == found.row["messages"] == messages
    assert Branch.objects.filter(chat=made["chat"]).count() == branches
    again = bring(of_alice, data)
    assert (again.row["added"], again.row["were_here"]) == (0, 1)
    assert again.chats[0]["was_here"]
    assert Message.objects.count() == messages


def test_a_tree_of_chatgpt_keeps_its_branches_and_tools(of_alice: Program) -> None:
    chat = brought(of_alice, zip_entries(conversations_dot_json=json.dumps([GPT]).encode()))
    assert chat["title"] == "Cats"
    assert chat["losses"] == ["file_by_name_only"]
    assert list_path_texts(chat["chat"]) == [
        ("user", "What do cats eat?\ufffd"),
        ("assistant", "Fish."),
    ]
    call = Message.objects.get(metadata__source__id="call")
    assert [part["type"] for part in call.parts] == ["tool_call", "tool_result"]
    assert (call.parts[0]["name"], call.parts[1]["content"]) == ("search", "found it")
    assert Message.objects.get(metadata__source__id="a3").model_name == "gpt-x"
    assert Message.objects.get(metadata__source__id="u1").created_at.year == 2023


def test_images_in_the_archive_of_chatgpt_are_imported(
    of_alice: Program, settings: Settings
) -> None:
    settings.GATEWAY_IMAGE_BYTES = len(PNG)
    data = build_pictured_chat(
        "file-service://file-Ab1", "sediment://file_000c", "file-service://file-Big", "other://x"
    )
    entries = {
        "conversations.json": data,
        "file-Ab1-cat photo.png": PNG,
        "user-1/file_000c-0000-sanitized.png": PNG,
        "file-Big.png": PNG + b"0",
    }
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    chat = brought(of_alice, held.getvalue())
    kinds = sorted(loss.partition(":")[0] for loss in chat["losses"])
    assert kinds == ["file_by_name_only", "file_by_name_only", "image_dropped"]
    (image,) = MessageImage.objects.filter(message__branch__chat=chat["chat"])
    assert bytes(image.data) == PNG
    row = Message.objects.get(role="user")
    names = [part["name"] for part in row.parts if part["type"] == "file"]
    assert names[:2] == ["cat photo.png", "0000-sanitized.png"]


def test_files_of_open_webui_are_imported(of_alice: Program) -> None:
    files = [
        {"type": "image", "url": format_data_url("image/png", PNG)},
        {"type": "file", "name": "a.pdf", "file": {"data": {"content": "The fee is 42."}}},
        {"type": "file", "name": "b.pdf", "url": "/api/v1/files/b"},
    ]
    said: list[dict[str, Any]] = [
        {"id": "u", "role": "user", "content": "Read", "files": files, "childrenIds": ["a"]},
        {"id": "a", "role": "assistant", "content": "42.", "parentId": "u"},
    ]
    history = {"currentId": "a", "messages": {each["id"]: each for each in said}}
    chat = brought(of_alice, json.dumps([{"id": "w", "chat": {"history": history}}]).encode())
    assert chat["losses"] == ["file_by_name_only"]
    assert list_path_texts(chat["chat"])[0] == ("user", "Read\n\na.pdf\n\nThe fee is 42.")
    assert bytes(MessageImage.objects.get().data) == PNG


def test_what_claude_attached_stays_and_what_is_unknown_is_named(of_alice: Program) -> None:
    chat = brought(of_alice, json.dumps(CLAUDE).encode())
    assert chat["losses"] == ["content_dropped:hologram"]
    assert list_path_texts(chat["chat"])[0] == ("user", "What do dogs eat?\n\nlist.txt\n\nbones")
    reply = Message.objects.get(role="assistant")
    kinds = [part["type"] for part in reply.parts]
    assert kinds == ["reasoning", "tool_call", "tool_result", "text"]


def test_one_bad_chat_of_many_keeps_no_other_out(of_alice: Program) -> None:
    empty = {"title": "Nothing", "mapping": {"r": {"message": None, "parent": None}}}
    bad = {"mapping": 7, "title": "Bad\0"}
    found = bring(of_alice, json.dumps([empty, GPT, bad]).encode())
    assert [made["title"] for made in found.chats] == ["Cats"]
    assert found.not_taken == [("Nothing", "import_malformed"), ("Bad\ufffd", "import_malformed")]
    counts = ("found", "done", "added", "were_here", "not_taken")
    assert [found.row[name] for name in counts] == [3, 3, 1, 0, 2]


def test_S21_loops_and_strange_values_do_no_harm(of_alice: Program) -> None:
    loop = {
        "mapping": {
            "a": build_chatgpt_node("a", "b", ["b"], "user", "x"),
            "b": build_chatgpt_node("b", "a", ["a", 5, "z"], "assistant", "y"),  # type: ignore[list-item]  # a number among texts, as a broken export has it
            "c": build_chatgpt_node("c", None, ["c"], "user", {"text": 4}, "ok"),
        },
        "title": 7,
    }
    chat = brought(of_alice, json.dumps([loop]).encode())
    assert list_path_texts(chat["chat"]) == [("user", "ok")]

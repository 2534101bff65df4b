"""Chats without an id in imports: each stays a separate chat, and is recognised again."""

import json
import time
from typing import Any

import pytest

from chats.exchange.draft_builder import Builder
from chats.exchange.entry_values import SourceEntry
from chats.exchange.line_reader import LineReader
from chats.models import Chat, Message
from tests.chats.api.bringing import bring
from tests.chats.api.programs import Program
from tests.support.exchange_files import (
    build_chatgpt_node,
    build_ui_message,
    join_json_lines,
    zip_entries,
)

pytestmark = pytest.mark.usefixtures("streams")


def claude(*words: str) -> dict[str, Any]:
    """Return a chat of Claude without ids."""
    senders = ("human", "assistant")
    messages = [{"sender": senders[at % 2], "text": text} for at, text in enumerate(words)]
    return {"uuid": "", "name": words[0], "chat_messages": messages}


def open_webui(*words: str) -> dict[str, Any]:
    """Return a chat of Open WebUI whose ids are missing or positions."""
    messages: dict[str, Any] = {
        str(at): {
            "id": str(at),
            "parentId": str(at - 1) if at else None,
            "childrenIds": [],
            "role": ("user", "assistant")[at % 2],
            "content": text,
        }
        for at, text in enumerate(words)
    }
    history = {"currentId": str(len(words) - 1), "messages": messages}
    return {"id": "", "title": words[0], "chat": {"id": "", "history": history}}


def librechat(*words: str) -> dict[str, Any]:
    """Return a chat of LibreChat without ids."""
    messages = [{"isCreatedByUser": at % 2 == 0, "text": text} for at, text in enumerate(words)]
    return {"conversationId": None, "title": words[0], "messages": messages}


def codex(*words: str) -> bytes:
    """Return a session of Codex without `session_meta`."""
    kinds = (("user", "input_text"), ("assistant", "output_text"))
    return join_json_lines(
        *(
            {
                "type": "response_item",
                "payload": {
                    "type": "message",
                    "role": kinds[at % 2][0],
                    "content": [{"type": kinds[at % 2][1], "text": text}],
                },
            }
            for at, text in enumerate(words)
        )
    )


def chatgpt(*words: str) -> dict[str, Any]:
    """Return a chat of ChatGPT without ids and times. The ids of its messages are positions."""
    nodes = [build_chatgpt_node("client-created-root", None, ["0"])]
    for at, text in enumerate(words):
        parent = str(at - 1) if at else "client-created-root"
        children = [str(at + 1)] if at + 1 < len(words) else []
        role = ("user", "assistant")[at % 2]
        nodes.append(build_chatgpt_node(str(at), parent, children, role, text))
    return {"title": words[0], "mapping": {node["id"]: node for node in nodes}}


def ui(*words: str) -> bytes:
    """Return a file of UI messages without the id of the chat. Their ids are positions."""
    return join_json_lines(
        *(
            build_ui_message(str(at), role=("user", "assistant")[at % 2], text=text)
            for at, text in enumerate(words)
        )
    )


def bundle(*words: str) -> bytes:
    """Return a bundle without the id of the chat."""
    meta = json.dumps({"version": 1}).encode()
    return zip_entries(**{"history.jsonl": ui(*words), "meta.json": meta})


FIRST, SECOND = ("What do cats eat?", "Fish."), ("What do dogs eat?", "Bones.")


def list_texts() -> list[list[str]]:
    """Return the texts of each chat in order."""
    return sorted(
        [row.text for row in Message.objects.filter(branch__chat=chat).order_by("seq")]
        for chat in Chat.objects.all()
    )


@pytest.mark.parametrize("make", [claude, open_webui, librechat, chatgpt])
def test_chats_without_an_id_in_one_file_are_not_merged(make: Any, of_alice: Program) -> None:
    data = json.dumps([make(*FIRST), make(*SECOND)]).encode()
    for _ in range(2):
        bring(of_alice, data)
        assert list_texts() == [list(FIRST), list(SECOND)]


@pytest.mark.parametrize("make", [claude, open_webui, librechat, codex, chatgpt, ui, bundle])
def test_chats_without_an_id_in_several_files_are_not_merged(make: Any, of_alice: Program) -> None:
    for words in (FIRST, SECOND, FIRST):
        made = make(*words)
        bring(of_alice, made if isinstance(made, bytes) else json.dumps([made]).encode())
    assert list_texts() == [list(FIRST), list(SECOND)]


@pytest.mark.parametrize("make", [claude, open_webui, codex, chatgpt, ui, bundle])
def test_a_longer_export_of_such_a_chat_continues_it(make: Any, of_alice: Program) -> None:
    longer = (*FIRST, "And birds?", "Seeds.")
    for words in (FIRST, longer):
        made = make(*words)
        bring(of_alice, made if isinstance(made, bytes) else json.dumps([made]).encode())
    assert list_texts() == [list(longer)]


@pytest.mark.parametrize("make", [claude, open_webui, chatgpt])
def test_a_renamed_chat_without_an_id_is_not_imported_again(make: Any, of_alice: Program) -> None:
    renamed = {
        key: "Pets" if key in {"name", "title"} else value for key, value in make(*FIRST).items()
    }
    for made in (make(*FIRST), renamed, renamed):
        bring(of_alice, json.dumps([made]).encode())
    assert list_texts() == [list(FIRST)]


def test_new_ids_for_repeated_ones_are_found_in_linear_time() -> None:
    taken = [f"a~{number}" for number in range(20_000)]
    reader = LineReader(tick=lambda: None, is_foreign=True)
    reader.ids.update(["a", *taken])
    builder = Builder()
    builder.entries.update((own_id, SourceEntry(own_id, None)) for own_id in ["b", *taken])
    builder.entries.update((f"b~{n}", SourceEntry("", None)) for n in range(20_000, 80_000))
    begin = time.process_time()
    for _ in range(5_000):
        reader.ids.add(reader.find_free_id("a"))
        free = builder.find_free_id("b")
        builder.entries[free] = SourceEntry(free, None)
    # Each search began at the first number before.
    assert time.process_time() - begin < 2
    assert len(reader.ids) == 25_001

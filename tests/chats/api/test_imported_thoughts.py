"""Reasoning in the text of an imported reply is stored as reasoning and not sent or searched."""

import json
import uuid
from typing import Any

import pytest

from chats.compaction import indexing
from chats.models import Message
from tests.chats.api.bringing import brought
from tests.chats.api.programs import Program

ANSWER = "A heron stands still."
OPEN_WEBUI = (
    '<details type="reasoning" done="true">\n<summary>Thought for 2 seconds</summary>\n'
    "> Zebras first.\n&gt; Then birds.\n</details>\n"
)


def webui(text: str, *, question: str = "Birds?") -> bytes:
    """Return an Open WebUI export with one reply."""
    said: list[dict[str, Any]] = [
        {"id": "b1", "parentId": None, "childrenIds": ["b2"], "role": "user", "content": question},
        {"id": "b2", "parentId": "b1", "childrenIds": [], "role": "assistant", "content": text},
    ]
    history = {"currentId": "b2", "messages": {one["id"]: one for one in said}}
    chat = {"id": "w-1", "title": "Birds", "chat": {"history": history}}
    return json.dumps([chat]).encode()


def ui_messages(text: str) -> bytes:
    """Return messages in the format of the AI SDK."""
    said = [("user", "Birds?"), ("assistant", text)]
    listed = [
        {"id": f"m{n}", "role": role, "parts": [{"type": "text", "text": words}]}
        for n, (role, words) in enumerate(said)
    ]
    return json.dumps(listed).encode()


def reply_in(chat: dict[str, Any]) -> Message:
    """Return the reply of an imported chat."""
    return Message.objects.get(branch__chat=chat["chat"], role="assistant")


@pytest.mark.parametrize("form", [webui, ui_messages])
@pytest.mark.parametrize(
    ("text", "thoughts", "answer"),
    [
        (f"<think>Zebras first.</think>\n\n{ANSWER}", ["Zebras first."], ANSWER),
        (f"<thinking>\nZebras first.\n</thinking>{ANSWER}", ["Zebras first."], ANSWER),
        (f"Zebras first.\n</think>\n\n{ANSWER}", ["Zebras first."], ANSWER),
        (f"<think>Zebras first.</thinking>\n\n{ANSWER}", ["Zebras first."], ANSWER),
        (f"<think>\n\n</think>\n\n{ANSWER}", [], ANSWER),
        (f"<think>One.</think><think>Zebras.</think>{ANSWER}", ["One.", "Zebras."], ANSWER),
        (f"{OPEN_WEBUI}{ANSWER}", ["Zebras first.\nThen birds."], ANSWER),
        ("<think>Zebras first, then", ["Zebras first, then"], ""),
        (
            "Write `<think>` like this:\n\n    <think>",
            [],
            "Write `<think>` like this:\n\n    <think>",
        ),
        ("```\n</think>\n```", [], "```\n</think>\n```"),
    ],
)
def test_thoughts_in_the_text_of_a_reply_become_reasoning(
    of_alice: Program, form: Any, text: str, thoughts: list[str], answer: str
) -> None:
    reply = reply_in(brought(of_alice, form(text)))
    assert [p["text"] for p in reply.parts if p["type"] == "reasoning"] == thoughts
    assert reply.text == answer


def test_imported_thoughts_are_neither_sent_nor_found(of_alice: Program) -> None:
    chat = brought(of_alice, webui(f"<think>Zebras first.</think>{ANSWER}"))["chat"]
    sent = of_alice.post(f"chats/{chat}/context", {"question": "Why?"}).json()
    said = json.dumps(sent["messages"])
    assert ANSWER in said
    assert "Zebras" not in said
    indexing.update_chat_index(chat_id=uuid.UUID(chat))
    found = {q: of_alice.get("search", q=q).json()["data"] for q in ("zebras", "heron")}
    assert not found["zebras"]
    assert found["heron"]


def test_what_a_person_wrote_stays_as_it_is(of_alice: Program) -> None:
    question = "<think>mine</think> What is this tag?"
    chat = brought(of_alice, webui("A tag.", question=question))["chat"]
    assert Message.objects.get(branch__chat=chat, role="user").text == question

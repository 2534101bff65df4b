"""Tool results of imported chats: pictures, several results of a call, and empty ones."""

import json
import time
from typing import Any

import pytest

from chats.exchange.draft_builder import Builder
from chats.exchange.drafts import ChatDraft
from chats.exchange.tool_results import ResultCollector
from chats.models import Message, MessageImage
from contextpolicy.engine.messages.messages import (
    FilePart,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    find_result_images,
    parse_parts,
)
from tests.chats.api.bringing import bring, brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import PNG, build_chatgpt_node, zip_entries

pytestmark = pytest.mark.usefixtures("streams")
PICTURE = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_abc1"}


def run_tool(*contents: Any, recipient: str = "dalle.text2im", **about: Any) -> dict[str, Any]:
    """Return a ChatGPT conversation with a call and a tool message for each content."""
    code = {"content_type": "code", "text": '{"prompt": "a cat"}'}
    nodes = [
        build_chatgpt_node("u", None, ["c"], "user", "Go"),
        build_chatgpt_node("c", "u", ["t0"], "assistant", content=code, recipient=recipient),
    ]
    last = "c"
    for place, content in enumerate(contents):
        last = f"t{place}"
        before = f"t{place - 1}" if place else "c"
        nodes.append(build_chatgpt_node(last, before, [], "tool", content=content, **about))
    nodes.append(build_chatgpt_node("a", last, [], "assistant", "Done."))
    mapping = {node["id"]: node for node in nodes}
    return {"title": "T", "conversation_id": "t", "current_node": "a", "mapping": mapping}


def list_results(chat: Any) -> tuple[list[str], list[int]]:
    """Return the texts of the results, and the offsets of their pictures."""
    rows = Message.objects.filter(branch__chat=chat["chat"], role="assistant")
    parts = [part for row in rows for part in parse_parts(row.parts)]
    shown = find_result_images(parts)
    texts = [part.content for part in parts if isinstance(part, ToolResultPart)]
    return texts, [offset for found in shown.values() for offset, _ in found]


def quote(text: str) -> dict[str, Any]:
    """Return a page of the web, as the tool shows it."""
    return {"content_type": "tether_quote", "url": "https://a.example", "text": text}


def show(text: str) -> dict[str, Any]:
    """Return the display of the browsing tool."""
    return {"content_type": "tether_browsing_display", "result": text, "summary": None}


def test_a_generated_picture_and_the_text_after_it_are_the_result(of_alice: Program) -> None:
    contents = (
        {"content_type": "multimodal_text", "parts": [PICTURE]},
        {"content_type": "text", "parts": ["The picture is shown."]},
    )
    data = json.dumps([run_tool(*contents)]).encode()
    archive = zip_entries(conversations_dot_json=data, file_abc1_dot_png=PNG)
    found = bring(of_alice, archive)
    (made,) = found.chats
    assert (made["losses"], found.row["messages_imported"]) == ([], 5)
    text = "The picture is shown."
    assert list_results(made) == ([text], [len(text)])
    (image,) = MessageImage.objects.filter(message__branch__chat=made["chat"])
    assert bytes(image.data) == PNG


def test_a_generated_picture_that_the_file_lacks_is_named(of_alice: Program) -> None:
    content = {"content_type": "multimodal_text", "parts": [PICTURE]}
    made = brought(of_alice, json.dumps([run_tool(content)]).encode())
    assert made["losses"] == ["file_by_name_only"]
    row = Message.objects.get(metadata__source__id="c")
    assert [(part["type"], part.get("reference", "")) for part in row.parts] == [
        ("tool_call", ""),
        ("file", "sediment://file_abc1"),
        ("tool_result", ""),
    ]


def test_pictures_that_code_made_belong_to_its_result(of_alice: Program) -> None:
    run = {
        "messages": [
            {"message_type": "stream", "text": "x"},
            {"message_type": "image", "image_url": "file-service://file-Plot1"},
            {"message_type": "image", "image_url": "file-service://file-Plot2"},
        ]
    }
    output = {"content_type": "execution_output", "text": "<Figure>"}
    chat = run_tool(output, recipient="python", aggregate_result=run)
    entries = {
        "conversations_dot_json": json.dumps([chat]).encode(),
        "file-Plot1_dot_png": PNG,
        "file-Plot2_dot_png": PNG + b"2",
    }
    made = brought(of_alice, zip_entries(**entries))
    assert (made["losses"], list_results(made)) == ([], (["<Figure>"], [8, 8]))


def test_an_empty_result_takes_no_call(of_alice: Program) -> None:
    chat = run_tool(show(""), quote("Page one"), quote("Page two"), quote("Page two"))
    made = brought(of_alice, json.dumps([chat]).encode())
    assert (made["losses"], list_results(made)) == ([], (["Page one\n\nPage two"], []))


def test_a_call_with_only_empty_results_is_answered(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([run_tool(show(""), show(" "))]).encode())
    assert (made["losses"], list_results(made)) == ([], ([""], []))


def test_the_display_of_a_page_is_the_result(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([run_tool(show("L0: cats"))]).encode())
    assert list_results(made) == (["L0: cats"], [])


def test_a_result_whose_content_is_unknown_counts_as_lost(of_alice: Program) -> None:
    found = bring(of_alice, json.dumps([run_tool({"content_type": "hologram"})]).encode())
    (made,) = found.chats
    assert made["losses"] == ["content_dropped:hologram"]
    assert (found.row["messages_imported"], found.row["messages_in_file"]) == (3, 4)


def test_calls_made_together_get_one_result_each(of_alice: Program) -> None:
    chat = run_tool(quote("one"), quote("two"), quote("three"))
    second = build_chatgpt_node("d", "c", ["t0"], "assistant", "{}", recipient="browser")
    chat["mapping"] = {"d": second, **chat["mapping"]}
    chat["mapping"]["t0"]["parent"] = "d"
    made = brought(of_alice, json.dumps([chat]).encode())
    assert sorted(list_results(made)[0]) == ["one\n\nthree", "two"]


def test_further_results_of_a_call_of_claude_are_kept(of_alice: Program) -> None:
    blocks = [
        {"type": "tool_use", "id": "t", "name": "search", "input": {}},
        {"type": "tool_use", "id": "x", "name": "search", "input": {}},
        {"type": "tool_result", "tool_use_id": "t", "content": "one"},
        {"type": "tool_result", "tool_use_id": "t", "content": "two"},
        {"type": "tool_result", "content": "other"},
        {"type": "tool_result", "content": "stray"},
    ]
    said = {"uuid": "m", "sender": "assistant", "content": blocks}
    made = brought(of_alice, json.dumps([{"uuid": "c", "chat_messages": [said]}]).encode())
    assert list_results(made) == (["one\n\ntwo", "other"], [])
    assert made["losses"] == ["stray_result"]


def test_results_for_which_a_message_has_no_room_are_left_out(of_alice: Program) -> None:
    pages = [quote(f"{number}" + "x" * 999_999) for number in range(9)]
    found = bring(of_alice, json.dumps([run_tool(*pages, quote("short"))]).encode())
    (made,) = found.chats
    assert made["losses"] == ["result_dropped:c"] * 2
    assert (found.row["messages_imported"], found.row["messages_in_file"]) == (11, 13)
    ((text,), _) = list_results(made)
    assert [piece[:1] for piece in text.split("\n\n")] == [*"0123456", "s"]


def test_results_in_a_message_of_claude_have_a_limit_too(of_alice: Program) -> None:
    results = [
        {"type": "tool_result", "tool_use_id": "t", "content": f"{number}" + "x" * 999_999}
        for number in range(9)
    ]
    called = {"type": "tool_use", "id": "t", "name": "search", "input": {}}
    said = {"uuid": "m", "sender": "assistant", "content": [called, *results]}
    made = brought(of_alice, json.dumps([{"uuid": "c", "chat_messages": [said]}]).encode())
    assert made["losses"] == ["result_dropped:t"] * 2


def test_many_results_of_a_call_are_joined_once() -> None:
    parts: list[Part] = [ToolCallPart("c", "find", "{}")]
    collector = ResultCollector(parts, [])
    begin = time.process_time()
    for number in range(20_000):
        file = FilePart("image/*", "", f"https://a.example/{number}")
        collector.add(ToolCallPart("c", "find", "{}"), f"{number}" + "x" * 100, [file])
    assert collector.finish() == 0
    # Copying the joined text for each result takes minutes.
    assert time.process_time() - begin < 10
    assert len(parts) == 20_002


def test_results_without_a_call_are_searched_for_in_a_part_of_the_chat() -> None:
    builder = Builder()
    before = None
    for number in range(5_000):
        parts = [TextPart("x")]
        before = builder.add(f"m{number}", parent=before, role="user", parts=parts)
        builder.result("", "stray", own_id=f"r{number}", parent=before)
    draft = builder.draft(source="s", title="")
    assert isinstance(draft, ChatDraft)
    assert (draft.counted, draft.lost) == (10_000, 5_000)

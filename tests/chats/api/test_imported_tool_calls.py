"""Tool calls in the replies of Open WebUI and LibreChat become calls, not text."""

import html
import json
import time
from typing import Any

import pytest

from chats.exchange.draft_builder import Builder
from chats.exchange.openwebui import iter_details_blocks
from chats.exchange.response_items import ReplyParts
from chats.models import Message, MessageImage
from chats.record.images import format_data_url
from contextpolicy.engine.messages.messages import ToolCallPart, find_result_images, parse_parts
from tests.chats.api.bringing import brought
from tests.chats.api.programs import Program
from tests.support.exchange_files import PNG

pytestmark = pytest.mark.usefixtures("streams")


def webui(text: str, **more: Any) -> bytes:
    """Return an Open WebUI export with one reply."""
    said: list[dict[str, Any]] = [
        {"id": "b1", "parentId": None, "childrenIds": ["b2"], "role": "user", "content": "Birds?"},
        {"id": "b2", "parentId": "b1", "role": "assistant", "content": text, **more},
    ]
    history = {"currentId": "b2", "messages": {one["id"]: one for one in said}}
    return json.dumps([{"id": "w-1", "title": "Birds", "chat": {"history": history}}]).encode()


def libre(*blocks: Any) -> bytes:
    """Return a LibreChat export with one reply."""
    said = [
        {"messageId": "u", "isCreatedByUser": True, "text": "Birds?"},
        {"messageId": "a", "parentMessageId": "u", "content": list(blocks)},
    ]
    return json.dumps({"conversationId": "l", "title": "Birds", "messages": said}).encode()


def reply_of(made: dict[str, Any]) -> Message:
    """Return the reply of an imported chat."""
    return Message.objects.get(branch__chat=made["chat"], role="assistant")


def list_parts(made: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the type of each part of the reply and its values other than ids."""
    left_out = {"call_id"}
    return [
        tuple(value for name, value in part.items() if name not in left_out)
        for part in reply_of(made).parts
    ]


def block(kind: str, body: str = "", *, summary: str = "Tool Executed", **given: object) -> str:
    """Return a block as Open WebUI writes it into a reply."""
    listed = "".join(
        f' {name}="{html.escape(value if isinstance(value, str) else json.dumps(value))}"'
        for name, value in given.items()
    )
    return (
        f'<details type="{kind}" done="true"{listed}>\n'
        f"<summary>{summary}</summary>\n{html.escape(body)}\n</details>"
    )


CALL = ("tool_call", "find", '{"q": "heron"}')
EXPECTED = [
    ("text", "Let me look.\n"),
    CALL,
    ("tool_result", "find", "grey"),
    ("text", "It is grey."),
]


@pytest.mark.parametrize(
    "called",
    [
        block("tool_calls", id="c1", name="find", arguments='{"q": "heron"}', result='"grey"'),
        block("tool_calls", '"grey"', id="c1", name="find", arguments='"{\\"q\\": \\"heron\\"}"'),
        block("tool_calls", "grey", name="find", arguments='{"q": "heron"}', files="", embeds="x"),
    ],
)
def test_a_call_in_the_text_of_a_reply_becomes_a_call(called: str, of_alice: Program) -> None:
    made = brought(of_alice, webui(f"Let me look.\n{called}\nIt is grey."))
    assert (list_parts(made), made["losses"]) == (EXPECTED, [])


def test_blocks_anywhere_in_a_text_become_parts(of_alice: Program) -> None:
    text = "\n".join(
        [
            block("reasoning", "> First & foremost", summary="Thought for 1 second"),
            "One.",
            block("reasoning", "> Then", summary="Thought"),
            block("code_interpreter", "```python\n1 < 2\n```", output='{"result": "True"}'),
            block("code_interpreter", "1"),
            "<details><summary>Mine</summary>kept</details>",
            '<details type="tool_calls" done="false" name="find">',
        ]
    )
    made = brought(of_alice, webui(text))
    assert list_parts(made) == [
        ("reasoning", "First & foremost"),
        ("text", "One.\n"),
        ("reasoning", "Then"),
        ("tool_call", "code_interpreter", '{"language":"python","code":"1 < 2"}'),
        ("tool_result", "code_interpreter", '{"result": "True"}'),
        ("tool_call", "code_interpreter", '{"language":"","code":"1"}'),
        (
            "text",
            "<details><summary>Mine</summary>kept</details>\n"
            '<details type="tool_calls" done="false" name="find">',
        ),
    ]


def test_the_output_of_a_reply_is_read_in_place_of_its_text(of_alice: Program) -> None:
    picture = format_data_url("image/png", PNG)
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": "hm"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Let me look.\n"}]},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": '{"q": "heron"}'},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "grey"}],
            "files": [{"type": "image", "url": picture}],
        },
        {"type": "function_call_output", "call_id": "other", "output": "stray"},
        {"type": "open_webui:code_interpreter", "code": "1", "lang": "python", "output": "one"},
        {"type": "web_search_call"},
        7,
        {"type": "message", "content": [{"type": "output_text", "text": "It is grey."}]},
    ]
    made = brought(of_alice, webui("<details>raw</details>", output=output))
    found = [part for part in list_parts(made) if part[0] != "file"]
    assert found == [
        ("reasoning", "hm"),
        *EXPECTED[:3],
        ("tool_call", "code_interpreter", '{"language":"python","code":"1"}'),
        ("tool_result", "code_interpreter", "one"),
        EXPECTED[3],
    ]
    kinds = ["stray_result:other", "content_dropped:web_search_call", "content_dropped:value"]
    assert made["losses"] == kinds
    assert bytes(MessageImage.objects.get().data) == PNG
    shown = find_result_images(parse_parts(reply_of(made).parts))
    assert [offset for offset, _ in shown["c"]] == [4]


@pytest.mark.parametrize(
    "content",
    [
        "It is grey.",
        block("reasoning", "> hm", summary="Thought") + "\nIt is grey.",
        block("tool_calls", id="c", name="find", arguments="{}", result='"x"') + "\nIt is grey.",
    ],
)
def test_the_answer_is_kept_if_the_output_has_none(of_alice: Program, content: str) -> None:
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": '{"q": "heron"}'},
        {"type": "function_call_output", "call_id": "c", "output": "grey"},
    ]
    made = brought(of_alice, webui(content, output=output))
    assert list_parts(made) == [("reasoning", "hm"), *EXPECTED[1:]]


def test_results_of_a_repeated_id_belong_to_the_call_before_them(of_alice: Program) -> None:
    output = [
        {"type": "function_call", "call_id": "call_0", "name": "search", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": "r1"},
        {"type": "function_call", "call_id": "call_0-2", "name": "open", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0-2", "output": "r2"},
        {"type": "function_call", "call_id": "call_0", "name": "fetch", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_0", "output": "r3"},
    ]
    made = brought(of_alice, webui("Done.", output=output))
    results = [part for part in list_parts(made) if part[0] == "tool_result"]
    assert results == [
        ("tool_result", "search", "r1"),
        ("tool_result", "open", "r2"),
        ("tool_result", "fetch", "r3"),
    ]


def test_new_ids_of_calls_are_unique() -> None:
    reply = ReplyParts("r", Builder())
    for given in ("c", "c-3", "c", "c", "c-4", ""):
        reply.add_call(given, "find", "{}")
    ids = [part.call_id for part in reply.parts if isinstance(part, ToolCallPart)]
    assert len(set(ids)) == 6


@pytest.mark.parametrize(
    "text",
    [
        "```html\n{}\n```\nThat was an example.",
        "~~~~\n~~~\n{}\n~~~~~\nThat was an example.",
        "```\n{}",
        "In a line: {}",
    ],
)
def test_a_block_in_code_or_in_a_line_is_text(text: str, of_alice: Program) -> None:
    text = text.replace("{}", block("reasoning", "> Mine", summary="Thought"))
    made = brought(of_alice, webui(text))
    assert list_parts(made) == [("text", text)]


def test_a_block_after_code_and_a_block_after_a_block_are_read(of_alice: Program) -> None:
    thought = block("reasoning", "> Then", summary="Thought")
    made = brought(of_alice, webui(f"```\n{thought}\n```\n{thought}{thought}End"))
    kinds = [part[0] for part in list_parts(made)]
    assert kinds == ["text", "reasoning", "reasoning", "text"]


@pytest.mark.parametrize("end", ["", "</details>"])
@pytest.mark.parametrize("kind", ["reasoning", "mine"])
def test_many_unclosed_blocks_are_read_in_linear_time(kind: str, end: str) -> None:
    text = f'<details type="{kind}">\n' * 80_000 + end
    begin = time.process_time()
    blocks = list(iter_details_blocks(text))
    assert time.process_time() - begin < 2
    assert len(blocks) == (1 if end and kind == "reasoning" else 0)


def test_files_in_a_block_belong_to_the_result(of_alice: Program) -> None:
    files = [format_data_url("image/png", PNG)]
    made = brought(of_alice, webui(block("tool_calls", id="c", name="draw", files=files)))
    assert list(find_result_images(parse_parts(reply_of(made).parts))) == ["c"]


def test_the_text_of_a_person_keeps_its_blocks(of_alice: Program) -> None:
    text = block("tool_calls", "x", name="find")
    data = webui("Fine.").replace(b'"Birds?"', json.dumps(text).encode())
    made = brought(of_alice, data)
    assert Message.objects.get(branch__chat=made["chat"], role="user").text == text


def test_tool_calls_of_librechat_become_calls(of_alice: Program) -> None:
    call = {"id": "c", "name": "find", "args": '{"q": "heron"}', "output": "grey"}
    function = {"name": "find", "arguments": '{"q": "heron"}', "output": "grey"}
    code = {"input": "1", "outputs": [{"type": "logs", "logs": "one"}]}
    made = brought(
        of_alice,
        libre(
            {"type": "think", "think": "hm"},
            {"type": "text", "text": {"value": "Let me look.\n"}},
            {"type": "tool_call", "tool_call": call},
            {"type": "tool_call", "tool_call": {"id": "c", "function": function}},
            {"type": "tool_call", "tool_call": {"id": "d", "name": "find", "args": {}}},
            {"type": "tool_call", "tool_call": {"code_interpreter": code}},
            {"type": "text", "text": "It is grey."},
        ),
    )
    assert list_parts(made) == [
        ("reasoning", "hm"),
        *EXPECTED[:3],
        *EXPECTED[1:3],
        ("tool_call", "find", "{}"),
        ("tool_call", "code_interpreter", '{"language":"python","code":"1"}'),
        ("tool_result", "code_interpreter", '[{"type":"logs","logs":"one"}]'),
        EXPECTED[3],
    ]
    assert made["losses"] == []

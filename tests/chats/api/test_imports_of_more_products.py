"""Imports of DeepSeek, Grok, Gemini, opencode, aider, llama.cpp, AI SDK, compacted sessions."""

import json
from datetime import datetime
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from chats.exchange import aider, assistants, bounds, foreign, jsonstream, line_reader
from chats.models import Branch, Compaction, Message, MessageImage
from chats.record.images import format_data_url
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.chats.api.bringing import bring, brought, refused
from tests.chats.api.programs import Program
from tests.support.exchange_files import (
    PNG,
    export_chat,
    join_json_lines,
    list_path_texts,
    zip_entries,
)
from tests.support.streamed_responses import read_content

pytestmark = pytest.mark.usefixtures("streams")


def fragment_node(own: str, parent: str | None, *fragments: tuple[str, str]) -> dict[str, Any]:
    """Return a node of DeepSeek's tree."""
    listed = [{"type": kind, "content": text} for kind, text in fragments]
    message = {"model": "deepseek-chat", "files": [], "fragments": listed} if listed else None
    return {"id": own, "parent": parent, "children": [], "message": message}


DEEPSEEK = {
    "id": "ds-1",
    "title": "Quay",
    "inserted_at": "2026-05-01T10:00:00+08:00",
    "mapping": {
        node["id"]: node
        for node in (
            fragment_node("root", None),
            fragment_node("1", "root", ("REQUEST", "What is a quay?")),
            fragment_node("2", "1", ("THINK", "hm"), ("RESPONSE", "A landing place.[citation:1]")),
            fragment_node("3", "1", ("RESPONSE", "A wharf.")),
        )
    },
}
GROK = {
    "conversations": [
        {
            "conversation": {"id": "g-1", "title": "Tides"},
            "responses": [
                {
                    "response": {
                        "_id": "r1",
                        "sender": "human",
                        "message": "When is high tide?",
                        "create_time": {"$date": {"$numberLong": "1760000000000"}},
                    }
                },
                {
                    "response": {
                        "_id": "r2",
                        "sender": "ASSISTANT",
                        "message": 'At six. <grok:render card_id="1"><a>2</a></grok:render>',
                        "model": "grok-x",
                    }
                },
            ],
        }
    ],
    "projects": [],
}


def activity(time: str, title: str, html: str = "", **more: object) -> dict[str, Any]:
    """Return an activity of Gemini."""
    items = [{"html": html}] if html else []
    return {"header": "Gemini Apps", "title": title, "time": time, "safeHtmlItem": items, **more}


CHAT = {"details": [{"name": "x", "url": "https://gemini.google.com/app/abc1"}]}
GEMINI = [
    activity("2026-03-05T09:00:00.000Z", "Prompted And then?", "<p>Then <b>six</b>.</p>", **CHAT),
    activity("2026-03-04T08:00:00.000Z", "Prompted When?", "<ul><li>At five</li></ul>", **CHAT),
    activity("2026-03-04T07:00:00.000Z", "Prompted Elsewhere?", "<pre>a  b</pre>"),
    {"header": "Search", "title": "Searched", "time": "2026-03-04T07:00:00.000Z"},
]
OPENCODE = {
    "info": {"id": "ses_1", "title": "Fix the crane"},
    "messages": [
        {
            "info": {"id": "m1", "role": "user", "time": {"created": 1_760_000_000_000}},
            "parts": [{"type": "text", "text": "Fix it"}],
        },
        {
            "info": {"id": "m2", "role": "assistant", "modelID": "small"},
            "parts": [
                {"type": "step-start"},
                {"type": "reasoning", "text": "Look first."},
                {
                    "type": "tool",
                    "callID": "c1",
                    "tool": "read",
                    "state": {"status": "completed", "input": {"file": "a"}, "output": "words"},
                },
                {"type": "text", "text": "Fixed."},
                {"type": "step-finish"},
            ],
        },
    ],
}
LLAMA = join_json_lines(
    {"type": "session", "harness": "llama.app", "id": "ll", "name": "Quay", "currNode": "n4"},
    {"type": "message", "message": {"id": "n1", "parent": "n0", "role": "user", "content": "Hi"}},
    {
        "type": "message",
        "message": {"id": "n2", "parent": "n1", "role": "assistant", "content": "One"},
    },
    {
        "type": "message",
        "message": {"id": "n3", "parent": "n1", "role": "assistant", "content": "Two"},
    },
    {"type": "message", "message": {"id": "n4", "parent": "n3", "role": "user", "content": "On"}},
)
OLD_LLAMA = [
    {
        "conv": {"id": "old", "name": "Old", "currNode": 3},
        "messages": [
            {"id": 1, "type": "root", "parent": -1, "role": "system", "content": ""},
            {"id": 2, "parent": 1, "role": "user", "content": "Hi", "children": [3]},
            {"id": 3, "parent": 2, "role": "assistant", "content": "Hello", "thinking": "hm"},
        ],
    }
]
AIDER = b"""
# aider chat started at 2026-01-02 03:04:05

> aider v0.86 started
> Add a file? (Y)es/(N)o [Yes]: y

#### Move the crane
#### to the left

I move it.

```python
x = 1
```

> Applied edit to crane.py

# aider chat started at 2026-01-03 03:04:05

> nothing was said

# aider chat started at 2026-01-04 03:04:05

#### Thanks
"""
UI = [
    {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Obey."}]},
    {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
    {
        "id": "a",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {
                "type": "tool-get_weather",
                "toolCallId": "c",
                "state": "output-available",
                "input": {"city": "A"},
                "output": "sunny",
            },
            {"type": "text", "text": "ok"},
        ],
    },
]
BODY = {"id": "chat-9", "messages": UI[1:], "trigger": "submit-message", "messageId": "a"}
PLAIN = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
FILES: dict[str, tuple[bytes, str, int, int]] = {
    "deepseek": (json.dumps([DEEPSEEK]).encode(), "deepseek", 3, 2),
    "grok": (json.dumps(GROK).encode(), "grok", 2, 1),
    "opencode": (json.dumps(OPENCODE, indent=2).encode(), "opencode", 2, 1),
    "llama.cpp": (LLAMA, "llama_app", 4, 2),
    "llama.cpp before": (json.dumps(OLD_LLAMA).encode(), "llama_app", 2, 1),
    "AI SDK": (json.dumps(UI).encode(), "ui", 2, 1),
    "useChat": (json.dumps(BODY).encode(), "ui", 2, 1),
    "plain list": (json.dumps(PLAIN).encode(), "plain", 2, 1),
    "request body": (json.dumps({"model": "m", "messages": PLAIN}).encode(), "plain", 2, 1),
    "a chat a line": (json.dumps(DEEPSEEK).encode() + b"\n", "deepseek", 3, 2),
}


@pytest.mark.parametrize("name", list(FILES))
def test_each_form_is_recognised_and_imported_once(name: str, of_alice: Program) -> None:
    data, form, messages, branches = FILES[name]
    found = bring(of_alice, data)
    assert (found.row["state"], found.row["form"], found.row["found"]) == ("done", form, 1)
    (made,) = found.chats
    assert made["messages"] == messages
    assert Branch.objects.filter(chat=made["chat"]).count() == branches
    again = bring(of_alice, data)
    assert (again.row["were_here"], again.row["messages"]) == (1, 0)


def test_chats_one_a_line_are_all_imported(of_alice: Program) -> None:
    other = {**DEEPSEEK, "id": "ds-2", "title": "Pier"}
    found = bring(of_alice, join_json_lines(DEEPSEEK, other))
    assert [made["title"] for made in found.chats] == ["Quay", "Pier"]


def test_deepseek_keeps_thoughts_and_search_results_become_links(of_alice: Program) -> None:
    node = fragment_node("2", "1", ("THINK", "hm"), ("RESPONSE", "Here [citation:1] [citation:2]."))
    results = [{"cite_index": 1, "url": "https://quay.example/a", "title": "Quays"}]
    node["message"]["fragments"].insert(0, {"type": "SEARCH", "results": results})
    chat = {**DEEPSEEK, "mapping": {**DEEPSEEK["mapping"], "2": node}}  # type: ignore[dict-item]  # JSON
    brought(of_alice, json.dumps([chat]).encode())
    row = Message.objects.get(metadata__source__id="2")
    assert [part["type"] for part in row.parts] == ["reasoning", "text"]
    assert row.text == "Here ([Quays](https://quay.example/a))."
    assert row.model_name == "deepseek-chat"


def test_grok_keeps_moments_and_no_cards(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps(GROK).encode())
    assert list_path_texts(made["chat"]) == [
        ("user", "When is high tide?"),
        ("assistant", "At six."),
    ]
    assert Message.objects.get(role="user").created_at.year == 2025


def test_gemini_is_grouped_by_conversation_or_by_day(of_alice: Program) -> None:
    found = bring(of_alice, json.dumps(GEMINI).encode())
    titles = {made["title"]: made["chat"] for made in found.chats}
    assert set(titles) == {"When?", "Gemini, 2026-03-04"}
    assert list_path_texts(titles["When?"]) == [
        ("user", "When?"),
        ("assistant", "- At five"),
        ("user", "And then?"),
        ("assistant", "Then **six**."),
    ]
    assert list_path_texts(titles["Gemini, 2026-03-04"])[1] == ("assistant", "```\na  b\n```")


def test_opencode_keeps_calls_with_their_results(of_alice: Program) -> None:
    brought(of_alice, json.dumps(OPENCODE).encode())
    row = Message.objects.get(role="assistant")
    kinds = ["reasoning", "tool_call", "text", "tool_result"]
    assert [part["type"] for part in row.parts] == kinds
    assert (row.parts[1]["name"], row.parts[3]["content"]) == ("read", "words")


def test_llama_cpp_shows_the_branch_that_was_shown(of_alice: Program) -> None:
    made = brought(of_alice, LLAMA)
    assert [text for _, text in list_path_texts(made["chat"])] == ["Hi", "Two", "On"]
    assert made["losses"] == []


def test_each_start_of_aider_with_words_is_a_chat(of_alice: Program) -> None:
    found = bring(of_alice, AIDER)
    assert (found.row["form"], found.row["found"]) == ("aider", 2)
    assert list_path_texts(found.chats[0]["chat"]) == [
        ("user", "Move the crane\nto the left"),
        ("assistant", "I move it.\n\n```python\nx = 1\n```"),
    ]
    grown = AIDER + b"\nYou are welcome.\n"
    assert bring(of_alice, grown).row["grown"] == 1
    assert list_path_texts(found.chats[1]["chat"])[1] == ("assistant", "You are welcome.")


# Parts of which a stored message has only a part, as `ai` 5, 6 and 7 write them.
UNUSUAL: list[dict[str, Any]] = [
    {
        "id": "u1",
        "role": "user",
        "metadata": {"a": {"b": [1]}},
        "parts": [
            {"type": "data-mood", "id": "d", "data": {"m": 1}},
            {"type": "text", "text": "Look", "providerMetadata": {"x": {"y": 1}}},
            {"type": "file", "mediaType": "image/png", "url": "https://a.example/b", "size": 5},
        ],
    },
    {
        "id": "a1",
        "role": "assistant",
        "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm", "state": "done"},
            {
                "type": "tool-weather",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"b": 2, "a": 1},
                "output": {"z": 3, "list": [1, None]},
                "callProviderMetadata": {"q": {}},
            },
            {
                "type": "dynamic-tool",
                "toolName": "search",
                "toolCallId": "c2",
                "state": "output-error",
                "input": {"q": "x"},
                "errorText": "Nothing found.",
            },
            {
                "type": "tool-ask",
                "toolCallId": "c3",
                "state": "output-denied",
                "input": {},
                "approval": {"id": "ap", "approved": False, "reason": "no"},
            },
            {"type": "source-url", "sourceId": "s1", "url": "https://a.example", "title": "A"},
            {"type": "source-document", "sourceId": "s2", "mediaType": "a/b", "title": "B"},
            {"type": "reasoning-file", "mediaType": "image/png", "url": "https://a.example/i"},
            {"type": "custom", "kind": "x.y", "providerMetadata": {"x": {"a": 1}}},
            {"type": "step-start"},
            {"type": "text", "text": "Done.", "state": "done"},
            {"type": "data-x", "data": [1, "😀"]},
        ],
    },
]


@pytest.mark.parametrize("in_memory", [0, 2_000])
@pytest.mark.parametrize("is_list", [True, False], ids=["list", "lines"])
def test_ui_messages_come_back_without_loss(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch, in_memory: int, is_list: bool
) -> None:
    monkeypatch.setattr(line_reader, "IN_MEMORY", in_memory)
    data = json.dumps(UNUSUAL).encode() if is_list else join_json_lines(*UNUSUAL)
    made = brought(of_alice, data)
    assert made["losses"] == []
    back = of_alice.get(f"ui-chats/{made['chat']}").json()["messages"]
    assert [each["parts"] for each in back] == [each["parts"] for each in UNUSUAL]
    written = export_chat(of_alice, made["chat"])
    again = brought(of_alice, written.replace(b'"id":"u1"', b'"id":"u9"'))
    assert export_chat(of_alice, again["chat"]) == written.replace(b'"id":"u1"', b'"id":"u9"')
    # An erasure erases all of it.
    row = Message.objects.get(branch__chat=made["chat"], role="assistant")
    assert "Nothing found." in json.dumps(row.metadata)
    answer = of_alice.post(f"chats/{made['chat']}/messages/{row.pk}/erase", {})
    row.refresh_from_db()
    assert (answer.status_code, row.parts) == (200, []), answer.content
    assert "Nothing found." not in json.dumps(row.metadata)


def build_files_message(*urls: str) -> bytes:
    """Return a list with one user message that has a text and files."""
    files = [
        {"type": "file", "mediaType": "image/x", "filename": "12:30.png", "url": url}
        for url in urls
    ]
    parts = [*files, {"type": "text", "text": "Look"}]
    return json.dumps([{"id": "u", "role": "user", "parts": parts}]).encode()


def test_images_in_data_urls_become_images_of_the_message(of_alice: Program) -> None:
    # Longer than the parts of a message may be.
    data = PNG + b"0" * 2_000_000
    made = brought(of_alice, build_files_message(format_data_url("image/x", data)))
    assert made["losses"] == []
    image = MessageImage.objects.get(message__branch__chat=made["chat"])
    assert (image.media_type, bytes(image.data)) == ("image/png", data)
    (message,) = of_alice.get(f"ui-chats/{made['chat']}").json()["messages"]
    shown = message["parts"][0]
    assert (shown["filename"], shown["mediaType"]) == ("12:30.png", "image/x")
    content = of_alice.get(shown["url"].removeprefix("/api/v1/"))
    assert read_content(content) == data


def test_images_that_cannot_be_used_are_left_out_alone(
    of_alice: Program, settings: Settings
) -> None:
    settings.GATEWAY_IMAGE_BYTES = len(PNG)
    large, long = PNG + b"0", "data:application/pdf;base64," + "A" * 1_200_000
    urls = [format_data_url("image/png", PNG), format_data_url("image/png", large), long]
    made = brought(of_alice, build_files_message(*urls))
    assert sorted(loss.partition(":")[0] for loss in made["losses"]) == [
        "file_by_name_only",
        "image_dropped",
    ]
    assert bytes(MessageImage.objects.get().data) == PNG
    assert list_path_texts(made["chat"]) == [("user", "Look")]


def test_images_in_data_urls_are_scanned(of_alice: Program, settings: Settings) -> None:
    settings.FILE_SCAN = "/bin/false"
    made = brought(of_alice, build_files_message(format_data_url("image/png", PNG)))
    assert [loss.partition(":")[0] for loss in made["losses"]] == ["image_refused"]
    assert not MessageImage.objects.exists()
    assert AuditEvent.objects.filter(type="file.refused").count() == 1


@pytest.mark.parametrize("messages", [UI[1:], PLAIN], ids=["ui", "plain"])
def test_a_large_request_body_with_large_messages_is_imported(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch, messages: list[Any]
) -> None:
    monkeypatch.setattr(jsonstream, "WHOLE", 64)
    monkeypatch.setattr(jsonstream, "LARGE", 16)
    made = brought(of_alice, json.dumps({"id": "large", "messages": messages}).encode())
    assert (made["messages"], made["messages_in_file"], made["losses"]) == (2, 2, [])


def test_a_system_message_of_the_ai_sdk_is_reported(of_alice: Program) -> None:
    found = bring(of_alice, json.dumps(UI).encode())
    assert found.chats[0]["losses"] == ["system_moved"]
    assert (found.row["messages_imported"], found.row["messages_in_file"]) == (2, 3)


def test_a_long_list_of_messages_is_refused_before_it_fills_the_memory(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "LINES", 10)
    assert refused(of_alice, json.dumps(PLAIN * 6).encode())[0] == "import_too_many"


def entry(own: str, parent: str | None, role: str, text: object, **more: object) -> dict[str, Any]:
    """Return a line of Claude Code."""
    message = {"role": role, "content": text}
    line = {"type": role, "uuid": own, "parentUuid": parent, "sessionId": "s", "message": message}
    return {**line, **more}


SUMMARY = (
    "This session is being continued from a previous conversation. The user asked about cranes and"
    " the reply named three of them."
)
LONG = "The cranes of the harbour stand in a row, and each of them lifts eighty tons. " * 20
COMPACTED = [
    entry("u1", None, "user", f"First question. {LONG}"),
    entry("a1", "u1", "assistant", f"First answer. {LONG}"),
    {
        "type": "system",
        "subtype": "compact_boundary",
        "uuid": "b1",
        "parentUuid": None,
        "logicalParentUuid": "a1",
        "content": "Conversation compacted",
    },
    entry("c1", "b1", "user", SUMMARY, isCompactSummary=True),
    entry("u2", "c1", "user", "Second question"),
    entry("a2", "u2", "assistant", "Second answer"),
]


def test_a_compacted_session_is_one_chat_with_its_summary(
    of_alice: Program, with_summaries: None
) -> None:
    made = brought(of_alice, join_json_lines(*COMPACTED))
    assert made["losses"] == []
    assert [text[:14] for _, text in list_path_texts(made["chat"])] == [
        "First question",
        "First answer. ",
        "Second questio",
        "Second answer",
    ]
    row = Compaction.objects.get(branch__chat=made["chat"])
    assert (row.text, row.from_seq, row.to_seq, row.status) == (SUMMARY, 1, 2, "published")


def test_of_two_compactions_the_newer_summary_counts(
    of_alice: Program, with_summaries: None
) -> None:
    newer = [
        {"type": "system", "uuid": "b2", "parentUuid": None, "logicalParentUuid": "a2"},
        entry("c2", "b2", "user", SUMMARY.replace("three", "four"), isCompactSummary=True),
        entry("u3", "c2", "user", "Third question"),
    ]
    made = brought(of_alice, join_json_lines(*COMPACTED, *newer))
    assert made["losses"] == ["summary_replaced"]
    row = Compaction.objects.get(branch__chat=made["chat"])
    assert (row.from_seq, row.to_seq, "four" in row.text) == (1, 4, True)


def test_a_summary_that_the_policy_forbids_is_reported(of_alice: Program, now: datetime) -> None:
    values = {"strategy": "dynamic_summary", "turn_threshold": None, "edit_right": "nobody"}
    made = create_policy(slug="q", name="Q", values=values, actor="system", now=now)
    assign_policy(policy=made, level="instance", actor="system", now=now)
    chat = brought(of_alice, join_json_lines(*COMPACTED))
    assert [loss.partition(":")[0] for loss in chat["losses"]] == ["summary_left_out"]
    assert len(list_path_texts(chat["chat"])) == 4


def test_a_session_of_an_agent_goes_on_in_its_main_chain(of_alice: Program) -> None:
    side = entry("x", "u1", "user", "A task of its own", isSidechain=True)
    made = brought(of_alice, join_json_lines(*COMPACTED[:2], side))
    assert [role for role, _ in list_path_texts(made["chat"])] == ["user", "assistant"]
    assert Branch.objects.filter(chat=made["chat"]).count() == 2


def test_a_session_that_was_compacted_since_gets_its_summary(
    of_alice: Program, with_summaries: None
) -> None:
    made = brought(of_alice, join_json_lines(*COMPACTED[:2]))
    found = bring(of_alice, join_json_lines(*COMPACTED))
    assert (found.chats[0]["messages"], found.chats[0]["losses"]) == (2, [])
    row = Compaction.objects.get(branch__chat=made["chat"])
    assert (row.from_seq, row.to_seq) == (1, 2)


def test_an_older_compaction_that_names_nothing_is_joined_too(of_alice: Program) -> None:
    boundary = {**COMPACTED[2], "logicalParentUuid": None}
    made = brought(of_alice, join_json_lines(*COMPACTED[:2], boundary, *COMPACTED[3:]))
    assert len(list_path_texts(made["chat"])) == 4
    assert Branch.objects.filter(chat=made["chat"]).count() == 1


@pytest.mark.parametrize("loop", [[("", None)], [("x", "y"), ("y", "x")]])
def test_a_loop_before_a_compaction_ends(
    loop: list[tuple[str, str | None]], of_alice: Program
) -> None:
    said = {"role": "user", "content": "Hello."}
    lines = [
        *[{"uuid": own, "parentUuid": parent, "type": "progress"} for own, parent in loop],
        {"uuid": "a", "sessionId": "s", "type": "user", "message": said},
        {
            "uuid": "b",
            "parentUuid": loop[0][0],
            "type": "user",
            "isCompactSummary": True,
            "message": {"role": "user", "content": "Earlier."},
        },
    ]
    # The first line shows the format.
    lines = [lines[-2], *lines[:-2], lines[-1]]
    found = bring(of_alice, join_json_lines(*lines))
    assert (found.row["form"], found.row["added"]) == ("claude_code", 1)


def test_activities_as_html_are_refused_with_advice(of_alice: Program) -> None:
    name = "Takeout__My Activity__Gemini Apps__MyActivity_dot_html"
    code, sentence = refused(of_alice, zip_entries(**{name: b"<p>x</p>"}))
    assert (code, "choose JSON" in sentence) == ("import_unknown_form", True)


@pytest.mark.parametrize(
    "document",
    [
        {"info": {"id": "o"}, "messages": [{"info": {"role": "user"}, "parts": [{"type": []}]}]},
        {
            "uuid": "c",
            "chat_messages": [{"uuid": "m", "sender": "human", "parent_message_uuid": {}}],
        },
        [
            {
                "id": "a",
                "role": "user",
                "parts": [],
                "metadata": {"channel": "palimpsest", "parentId": []},
            }
        ],
    ],
)
def test_values_of_strange_types_are_refused_without_a_fault(
    document: object, of_alice: Program
) -> None:
    found = bring(of_alice, json.dumps(document).encode())
    codes = {found.row["code"], *(code for _, code in found.not_taken)} - {""}
    assert codes == {"import_malformed"}


def grok_chat(own: str, number: str) -> dict[str, Any]:
    """Return a chat of Grok with one message, whose time is this number."""
    time = {"$date": {"$numberLong": number}}
    message = {"_id": "r", "sender": "human", "message": "Hi", "create_time": time}
    about = {"id": own, "title": own}
    return {"conversation": about, "responses": [{"response": message}]}


def test_a_time_of_too_many_digits_is_no_time(of_alice: Program) -> None:
    data = json.dumps({"conversations": [grok_chat("long", "9" * 5_000), grok_chat("b", "1")]})
    found = bring(of_alice, data.encode())
    assert (found.row["state"], found.row["added"]) == ("done", 2)


@pytest.mark.parametrize(
    ("name", "product"), [("parse_grok_chat", "grok"), ("parse_gemini_activities", "gemini")]
)
def test_a_fault_of_a_parser_holds_up_no_other_chat(
    name: str, product: str, of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = getattr(assistants, name)

    def read_or_fail(value: Any) -> Any:
        if "bad" in json.dumps(value):
            raise TypeError("bad words")
        return read(value)

    monkeypatch.setattr(assistants, name, read_or_fail)
    monkeypatch.setitem(foreign.READERS, "grok", read_or_fail)
    documents: dict[str, Any] = {
        "grok": {"conversations": [grok_chat("bad", "1"), grok_chat("good", "1")]},
        "gemini": [
            activity("2026-05-01T10:00:00Z", "Prompted bad"),
            activity("2026-05-02T10:00:00Z", "Prompted good"),
        ],
    }
    found = bring(of_alice, json.dumps(documents[product]).encode())
    assert (found.row["state"], found.row["added"]) == ("done", 1)
    assert [code for _, code in found.not_taken] == ["import_fault"]


def test_a_fault_at_one_entry_of_an_archive_holds_up_no_other(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = aider.is_aider_history

    def read_or_fail(file: Any) -> bool:
        if file.name.startswith("bad"):
            raise KeyError("bad words")
        return read(file)

    monkeypatch.setattr(aider, "is_aider_history", read_or_fail)
    line = join_json_lines({"role": "user", "content": "One?"})
    found = bring(of_alice, zip_entries(bad_dot_jsonl=line, good_dot_jsonl=line))
    assert (found.row["state"], found.row["added"]) == ("done", 1)
    assert found.not_taken == [("bad.jsonl", "import_fault")]

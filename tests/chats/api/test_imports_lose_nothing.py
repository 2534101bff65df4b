"""Imports report every lost message: trees, grown chats, split archives, markup in texts."""

import io
import json
import re
import zipfile
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from chats.exchange.entry_values import parse_milliseconds
from chats.exchange.import_sources import limit_losses
from chats.models import Branch, Chat, Message
from chats.turns import start
from tests.chats.api.bringing import Brought, bring, brought, refused
from tests.chats.api.programs import Program
from tests.support.exchange_files import (
    build_chatgpt_node,
    build_ui_message,
    join_json_lines,
    list_path_texts,
)

pytestmark = pytest.mark.usefixtures("streams")


def gpt(own: str, turns: int, *, children: bool = True, **more: Any) -> dict[str, Any]:
    """Return a ChatGPT conversation with this number of consecutive turns."""
    nodes = [build_chatgpt_node("root", None, ["n0"] if children else [])]
    for turn in range(turns):
        below = [f"n{turn + 1}"] if children and turn + 1 < turns else []
        before = f"n{turn - 1}" if turn else "root"
        role = "assistant" if turn % 2 else "user"
        nodes.append(build_chatgpt_node(f"n{turn}", before, below, role, f"{own} says {turn}"))
    mapping = {node["id"]: node for node in nodes}
    return {
        "title": own,
        "conversation_id": own,
        "current_node": f"n{turns - 1}",
        "mapping": mapping,
        **more,
    }


def archive(**entries: object) -> bytes:
    """Return a ZIP archive. `_dash_` stands for a hyphen, `__` for a slash."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        for name, value in entries.items():
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            name = name.replace("_dash_", "-").replace("__", "/").replace("_dot_", ".")
            made.writestr(name, data)
    return held.getvalue()


def counts(found: Brought) -> tuple[int, int]:
    """Return the number of stored messages and of those in the file."""
    return found.row["messages_imported"], found.row["messages_in_file"]


def texts(chat_id: str) -> list[str]:
    """Return the texts of the active path."""
    return [text for _, text in list_path_texts(chat_id)]


@pytest.mark.parametrize("width", [1, 3])
def test_an_archive_in_several_files_is_imported_as_one(width: int, of_alice: Program) -> None:
    named = {
        f"export__conversations_dash_{number:0{width}}_dot_json": [gpt(f"c{number}", 2)]
        for number in range(3)
    }
    found = bring(of_alice, archive(**named, user_dot_json={}, chat_dot_html=b"<p>", x_dot_png=b""))
    assert [made["title"] for made in found.chats] == ["c0", "c1", "c2"]
    assert (found.row["form"], found.row["found"], counts(found)) == ("chatgpt", 3, (6, 6))


def test_an_archive_of_sessions_is_imported_file_by_file(of_alice: Program) -> None:
    plain = join_json_lines(
        {"role": "user", "content": "One?"}, {"role": "assistant", "content": "Two."}
    )
    entries = {"a_dot_jsonl": plain, "b__c_dot_json": gpt("tree", 2), "d_dot_json": {"x": 1}}
    found = bring(of_alice, archive(**entries, readme_dot_txt=b"x"))
    assert [row["messages"] for row in found.chats] == [2, 2]
    assert found.not_taken == [("d.json", "import_unknown_form")]


def test_a_name_of_an_entry_can_contain_a_time(of_alice: Program) -> None:
    entries = {"export__conversations_dash_1_dot_json": [gpt("c", 2)]}
    data = archive(**entries, **{"Screenshot 12:30_dot_png": b"x"})
    assert counts(bring(of_alice, data)) == (2, 2)
    for name in ("c:", "C:__x"):
        code, _ = refused(of_alice, archive(**entries, **{name: b"x"}))
        assert code == "import_bad_archive"


def test_a_chat_of_an_archive_with_several_formats_is_recognised(of_alice: Program) -> None:
    line = {"role": "user", "content": "One?"}
    entries = {"a_dot_jsonl": join_json_lines(line), "b_dot_json": gpt("tree", 2)}
    assert counts(bring(of_alice, archive(**entries))) == (3, 3)
    alone = bring(of_alice, json.dumps([gpt("tree", 4)]).encode())
    assert (alone.row["added"], alone.row["grown"], alone.row["messages"]) == (0, 1, 2)


def test_a_chat_that_cannot_be_stored_holds_up_no_other_of_its_archive(of_alice: Program) -> None:
    bad = {**build_ui_message("m", "x"), "metadata": {"note": "y" * 30_000}}
    entries = {
        f"{name}_dot_jsonl": join_json_lines(build_ui_message(name, "One?")) for name in ("a", "c")
    }
    found = bring(of_alice, archive(b_dot_jsonl=join_json_lines(bad), **entries))
    assert (found.row["state"], found.row["added"]) == ("done", 2)
    assert [code for _, code in found.not_taken] == ["import_too_large"]


def test_a_result_of_a_tool_of_any_stored_length_is_imported(
    of_alice: Program, settings: Settings
) -> None:
    tool = {"type": "tool-find", "toolCallId": "t", "state": "output-available", "input": {}}
    output = "x" * settings.TOOL_RESULT_BYTES
    reply = {"id": "b", "role": "assistant", "parts": [{**tool, "output": output}]}
    found = bring(of_alice, join_json_lines(build_ui_message("a", "Find x."), reply))
    assert (found.row["added"], found.row["messages"], found.not_taken) == (1, 2, [])


def test_a_long_id_of_a_tool_call_is_shortened(of_alice: Program) -> None:
    own = f"chatcmpl-tool-{'a' * 32}"
    content = [
        {"type": "tool_use", "id": own, "name": "find", "input": {}},
        {"type": "tool_result", "tool_use_id": own, "content": "Found."},
    ]
    said = [{"uuid": "a", "sender": "assistant", "content": content}]
    found = brought(of_alice, json.dumps([{"uuid": "c", "chat_messages": said}]).encode())
    parts = Message.objects.get(branch__chat=found["chat"]).parts
    first, second = (part["call_id"] for part in parts)
    assert first == second
    assert len(first) <= 40


def test_a_new_id_for_a_duplicate_replaces_no_message(of_alice: Program) -> None:
    said = [
        {"uuid": own, "sender": "human", "text": text}
        for own, text in (("a~2", "One."), ("a", "Two."), ("a", "Three."))
    ]
    chat = {"uuid": "c", "name": "c", "chat_messages": said}
    found = brought(of_alice, json.dumps([chat]).encode())
    assert texts(found["chat"]) == ["One.", "Two.", "Three."]


def test_the_name_of_a_model_keeps_no_chat_out(of_alice: Program) -> None:
    chat = gpt("c", 2)
    for node in chat["mapping"].values():
        if node.get("message"):
            node["message"].setdefault("metadata", {})["model_slug"] = "gpt\0\ud800"
    found = bring(of_alice, json.dumps([chat]).encode())
    assert (found.row["added"], found.not_taken) == (1, [])


def test_a_report_lists_so_many_losses_and_counts_the_others(of_alice: Program) -> None:
    chat = gpt("c", 61)
    for number in range(1, 61):
        content = {"content_type": f"{number}x", "data": "y"}
        chat["mapping"][f"n{number}"]["message"]["content"] = content
    (outcome,) = bring(of_alice, json.dumps([chat]).encode()).outcomes
    *losses, further = outcome["losses"]
    assert (len(losses), further) == (50, "further_losses:10")
    assert limit_losses([f"content_dropped:{'x' * 900}"])[0][150:] == "x" * 50


def test_a_tree_is_made_of_parents(of_alice: Program) -> None:
    found = bring(of_alice, json.dumps([gpt("bare", 6, children=False)]).encode())
    assert counts(found) == (6, 6)
    assert texts(found.chats[0]["chat"]) == [f"bare says {turn}" for turn in range(6)]


def test_children_name_the_parent_of_a_node_that_names_none(of_alice: Program) -> None:
    chat = gpt("half", 4)
    for node in chat["mapping"].values():
        node["parent"] = None
    found = bring(of_alice, json.dumps([chat]).encode())
    assert texts(found.chats[0]["chat"]) == [f"half says {turn}" for turn in range(4)]


@pytest.mark.parametrize("has_children", [True, False])
def test_a_node_that_names_itself_follows_the_node_whose_child_it_is(
    has_children: bool, of_alice: Program
) -> None:
    chat = gpt("self", 4, children=has_children)
    chat["mapping"]["n2"]["parent"] = "n2"
    found = bring(of_alice, json.dumps([chat]).encode())
    (made,) = found.chats
    first = 0 if has_children else 2
    assert texts(made["chat"]) == [f"self says {turn}" for turn in range(first, 4)]
    assert (counts(found), made["losses"]) == (
        (4, 4),
        [] if has_children else ["parent_missing:n2"],
    )


def test_children_order_the_branches_and_nothing_else(of_alice: Program) -> None:
    nodes = [
        build_chatgpt_node("late", "u", [], "assistant", "Second reply"),
        build_chatgpt_node("early", "u", [], "assistant", "First reply"),
        build_chatgpt_node("u", "root", ["early", "gone", "late"], "user", "Question"),
        build_chatgpt_node("root", None, []),
    ]
    chat = {"title": "t", "conversation_id": "o", "mapping": {node["id"]: node for node in nodes}}
    made = brought(of_alice, json.dumps(chat).encode())
    rows = Message.objects.order_by("accepted")
    assert [row.text for row in rows] == ["Question", "First reply", "Second reply"]
    assert Branch.objects.filter(chat=made["chat"]).count() == 2


def test_a_message_without_its_predecessor_is_kept_and_reported(of_alice: Program) -> None:
    chat = gpt("torn", 4)
    del chat["mapping"]["n1"]
    found = bring(of_alice, json.dumps(chat).encode())
    (made,) = found.chats
    assert (made["losses"], counts(found)) == (["parent_missing:n2"], (3, 3))
    assert {row.text for row in Message.objects.all()} == {
        "torn says 0",
        "torn says 2",
        "torn says 3",
    }


def test_open_webui_goes_by_parents(of_alice: Program) -> None:
    messages: dict[str, Any] = {
        f"w{turn}": {
            "id": f"w{turn}",
            "parentId": f"w{turn - 1}" if turn else None,
            "childrenIds": [],
            "role": "assistant" if turn % 2 else "user",
            "content": f"pier {turn}",
        }
        for turn in range(4)
    }
    chat = {"id": "w", "title": "Pier", "chat": {"history": {"messages": messages}}}
    found = bring(of_alice, json.dumps([chat]).encode())
    assert texts(found.chats[0]["chat"]) == [f"pier {turn}" for turn in range(4)]


def test_librechat_may_list_a_reply_before_its_question(of_alice: Program) -> None:
    told = [
        {"messageId": "b", "parentMessageId": "a", "text": "answer"},
        {"messageId": "c", "parentMessageId": "b", "isCreatedByUser": True, "text": "again"},
        {
            "messageId": "a",
            "parentMessageId": "00000000-0000-0000-0000-000000000000",
            "isCreatedByUser": True,
            "text": "question",
        },
    ]
    chat = {"conversationId": "l", "title": "t", "messages": told}
    made = brought(of_alice, json.dumps(chat).encode())
    assert texts(made["chat"]) == ["question", "answer", "again"]
    assert made["losses"] == []


def test_claude_may_list_a_reply_before_its_question(of_alice: Program) -> None:
    told = [
        {"uuid": "b", "parent_message_uuid": "a", "sender": "assistant", "text": "answer"},
        {
            "uuid": "a",
            "parent_message_uuid": "00000000-0000-4000-8000-000000000000",
            "sender": "human",
            "text": "question",
        },
    ]
    chat = {"uuid": "k", "name": "t", "chat_messages": told, "current_leaf_message_uuid": "b"}
    assert texts(brought(of_alice, json.dumps(chat).encode())["chat"]) == ["question", "answer"]


REFERENCE = {
    "matched_text": "\ue200cite\ue202turn0search3\ue202turn0search8\ue201",
    "items": [{"title": "lamps [old]", "url": "https://lamps.example/1893"}],
}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (
            "Built in 1893. \ue200cite\ue202turn0search3\ue202turn0search8\ue201 Next",
            "Built in 1893. ([lamps \\[old\\]](https://lamps.example/1893)) Next",
        ),
        ('By \ue200entity\ue202["people","Ada Keeper",0]\ue201.', "By Ada Keeper."),
        ("By \ue200entity\ue2025\ue201.", "By."),
        ('By \ue200entity\ue202{"people": 0}\ue201.', "By."),
        ("Seen \ue200cite\ue202turn9search1\ue201. End", "Seen. End"),
        ("Seen【12†source】 here", "Seen here"),
        ("A \ue203stray\ue206 mark", "A stray mark"),
        ("Two spaces  \nstay", "Two spaces  \nstay"),
    ],
)
def test_marks_of_citations_become_links_or_go(written: str, read: str, of_alice: Program) -> None:
    nodes = [
        build_chatgpt_node("u", None, ["a"], "user", "When?"),
        build_chatgpt_node("a", "u", [], "assistant", written, content_references=[REFERENCE]),
    ]
    chat = {"title": "t", "conversation_id": "c", "mapping": {node["id"]: node for node in nodes}}
    assert texts(brought(of_alice, json.dumps([chat]).encode())["chat"])[1] == read


@pytest.mark.parametrize("items", [[{"url": "javascript:alert(1)"}], 5, {"url": 1}, "x"])
def test_a_link_of_a_citation_is_one_of_the_web(items: object, of_alice: Program) -> None:
    bad = {"matched_text": "\ue200cite\ue202x\ue201", "items": items}
    nodes = [build_chatgpt_node("u", None, [], "assistant", "A \ue200cite\ue202x\ue201.")]
    nodes[0]["message"]["metadata"]["content_references"] = [bad]
    chat = {"title": "t", "conversation_id": "c", "mapping": {"u": nodes[0]}}
    assert texts(brought(of_alice, json.dumps([chat]).encode())["chat"]) == ["A."]


def test_a_grown_chat_gets_what_is_new(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([gpt("grows", 4)]).encode())
    found = bring(of_alice, json.dumps([gpt("grows", 8)]).encode())
    (again,) = found.chats
    assert (again["chat"], again["messages"], again["was_here"]) == (made["chat"], 4, True)
    assert (found.row["added"], found.row["were_here"], found.row["grown"]) == (0, 1, 1)
    assert counts(found) == (8, 8)
    assert texts(made["chat"]) == [f"grows says {turn}" for turn in range(8)]
    assert Branch.objects.count() == 1
    third = bring(of_alice, json.dumps([gpt("grows", 8)]).encode())
    assert (third.row["messages"], Message.objects.count()) == (0, 8)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time")
def test_a_grown_chat_is_locked_before_its_person(of_alice: Program) -> None:
    bring(of_alice, json.dumps([gpt("c", 2)]).encode())
    with CaptureQueriesContext(connection) as asked:
        assert bring(of_alice, json.dumps([gpt("c", 4)]).encode()).row["grown"] == 1
    said = [row["sql"] for row in asked.captured_queries if "FOR NO KEY UPDATE" in row["sql"]]
    tables = [re.search(r'FROM "(\w+)"', sql)[1] for sql in said]  # type: ignore[index]  # it matches
    first = tables.index("chats_chat")
    assert tables[first : first + 2] == ["chats_chat", "auth_user"]


def test_a_grown_chat_that_went_on_here_gets_a_branch(
    of_alice: Program, now: datetime, alice: Any
) -> None:
    made = brought(of_alice, json.dumps([gpt("grows", 2)]).encode())
    chat = Chat.objects.get(pk=made["chat"])
    start.start_turn(user=alice, chat=chat, text="Mine", now=now)
    bring(of_alice, json.dumps([gpt("grows", 4)]).encode())
    assert Branch.objects.filter(chat=chat).count() == 2
    chat.refresh_from_db()
    assert chat.active_branch is not None
    assert chat.active_branch.parent is None
    branch = Branch.objects.get(parent__isnull=False)
    assert (branch.fork_seq, branch.last_seq) == (2, 4)
    assert Message.objects.filter(branch=branch).count() == 2
    listed = [row.text for row in Message.objects.all()]
    assert len(listed) == len(set(listed))


def test_a_new_reply_to_an_old_question_is_a_branch(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([gpt("grows", 2)]).encode())
    newer = gpt("grows", 2)
    newer["mapping"]["n0"]["children"].append("other")
    newer["mapping"]["other"] = build_chatgpt_node("other", "n0", [], "assistant", "Another reply")
    newer["current_node"] = "other"
    bring(of_alice, json.dumps([newer]).encode())
    assert texts(made["chat"]) == ["grows says 0", "Another reply"]
    assert Branch.objects.filter(chat=made["chat"]).count() == 2


def test_a_newer_file_brings_no_erased_message_back(of_alice: Program) -> None:
    made = brought(of_alice, json.dumps([gpt("grows", 4)]).encode())
    row = Message.objects.get(branch__chat=made["chat"], seq=2)
    assert of_alice.post(f"chats/{made['chat']}/messages/{row.pk}/erase", {}).status_code == 200
    found = bring(of_alice, json.dumps([gpt("grows", 6)]).encode())
    assert found.row["messages"] == 2
    assert not [row for row in Message.objects.all() if row.text == "grows says 1"]


def test_a_chat_that_is_deleted_here_is_not_reported_as_imported(of_alice: Program) -> None:
    data = json.dumps([gpt("c", 2), gpt("d", 2)]).encode()
    chat = bring(of_alice, data).chats[0]["chat"]
    assert of_alice.call("DELETE", f"chats/{chat}").status_code in (200, 204)
    again = bring(of_alice, data)
    assert (again.row["state"], again.row["were_here"]) == ("done", 1)
    assert (again.not_taken, counts(again)) == ([("c", "import_deleted")], (2, 4))
    assert of_alice.post(f"chats/{chat}/restore").status_code == 200
    assert bring(of_alice, data).row["were_here"] == 2


def test_a_grown_list_of_ui_messages_is_continued(of_alice: Program) -> None:
    first = [build_ui_message("a", "One?", chatId="x"), build_ui_message("b", "Two.", "assistant")]
    made = brought(of_alice, join_json_lines(*first))
    found = bring(
        of_alice,
        join_json_lines(
            *first, build_ui_message("c", "Three?"), build_ui_message("d", "Four.", "assistant")
        ),
    )
    assert found.chats[0]["messages"] == 2
    assert texts(made["chat"]) == ["One?", "Two.", "Three?", "Four."]


def test_other_words_of_a_known_message_are_reported(of_alice: Program) -> None:
    brought(of_alice, json.dumps([gpt("grows", 2)]).encode())
    newer = gpt("grows", 2)
    newer["mapping"]["n1"]["message"]["content"]["parts"] = ["Edited"]
    (again,) = bring(of_alice, json.dumps([newer]).encode()).chats
    assert again["losses"] == ["message_changed:1"]


def test_unknown_forms_are_refused_by_name(of_alice: Program) -> None:
    other = {"type": "session", "harness": "harbour", "id": "1"}
    code, sentence = refused(of_alice, join_json_lines(other, {"type": "message"}))
    assert (code, "a session from harbour" in sentence) == ("import_unknown_form", True)
    code, sentence = refused(of_alice, json.dumps([{"pier": 1, "quay": 2}]).encode())
    assert (code, '"pier", "quay"' in sentence) == ("import_unknown_form", True)
    strange = {"mapping": {"a": {"message": {"words": "x"}}}}
    assert refused(of_alice, json.dumps([strange]).encode())[0] == "import_unknown_form"


def test_what_is_lost_is_counted(of_alice: Program) -> None:
    chat = gpt("lost", 2)
    chat["mapping"]["t"] = build_chatgpt_node("t", "n1", [], "tool", "A result without a call")
    found = bring(of_alice, json.dumps([chat]).encode())
    assert (counts(found), found.chats[0]["losses"]) == ((2, 3), ["stray_result:t"])


STRANGE: dict[str, Any] = {
    "chatgpt message": ("message", 7),
    "chatgpt kind": ("message", {"author": {"role": "user"}, "content": {"content_type": "new"}}),
    "chatgpt part": (
        "message",
        {"author": {"role": "user"}, "content": {"content_type": "text", "parts": [{"x": 1}, 5]}},
    ),
}


@pytest.mark.parametrize(("field", "value"), STRANGE.values(), ids=STRANGE)
def test_a_message_of_unknown_form_is_counted(field: str, value: object, of_alice: Program) -> None:
    chat = gpt("strange", 3)
    chat["mapping"]["n1"][field] = value
    found = bring(of_alice, json.dumps([chat]).encode())
    assert counts(found) == (2, 3)
    assert all("dropped:" in loss for loss in found.chats[0]["losses"])


@pytest.mark.parametrize("value", [7, True, {"text": 5}, [{"type": "text", "text": {}}, 4]])
@pytest.mark.parametrize("form", ["claude", "open_webui", "librechat", "deepseek", "llama", "code"])
def test_content_of_an_unknown_type_is_counted(form: str, value: object, of_alice: Program) -> None:
    texts_in: list[Any] = ["Hello?", value]
    roles = ("user", "assistant")
    chat: Any = {
        "claude": {
            "uuid": "c",
            "chat_messages": [
                {"uuid": f"m{n}", "sender": ("human", "assistant")[n], "content": text}
                for n, text in enumerate(texts_in)
            ],
        },
        "open_webui": {
            "id": "w",
            "chat": {
                "history": {
                    "messages": {
                        f"w{n}": {"id": f"w{n}", "role": roles[n], "content": text}
                        for n, text in enumerate(texts_in)
                    }
                }
            },
        },
        "librechat": {
            "conversationId": "l",
            "messages": [
                {"messageId": f"l{n}", "isCreatedByUser": not n, "text": text}
                for n, text in enumerate(texts_in)
            ],
        },
        "deepseek": {
            "id": "d",
            "mapping": {
                f"d{n}": {
                    "message": {
                        "inserted_at": "2026-01-01T00:00:00Z",
                        "fragments": [{"type": ("REQUEST", "RESPONSE")[n], "content": text}],
                    }
                }
                for n, text in enumerate(texts_in)
            },
        },
        "llama": {
            "conv": {"id": "x"},
            "messages": [
                {"id": n, "role": roles[n], "content": text} for n, text in enumerate(texts_in)
            ],
        },
    }
    code = join_json_lines(
        *(
            {
                "type": roles[n],
                "sessionId": "s",
                "uuid": f"c{n}",
                "message": {"role": roles[n], "content": text},
            }
            for n, text in enumerate(texts_in)
        )
    )
    found = bring(of_alice, code if form == "code" else json.dumps(chat[form]).encode())
    assert (counts(found), texts(found.chats[0]["chat"])) == ((1, 2), ["Hello?"])
    assert all("content_dropped:" in loss for loss in found.chats[0]["losses"])


def test_values_of_a_list_of_messages_that_are_none_are_counted(of_alice: Program) -> None:
    said_here = [{"role": "user", "content": "Hi"}, 7, None, {"role": "assistant", "content": "Ho"}]
    found = bring(of_alice, json.dumps(said_here).encode())
    assert (counts(found), found.chats[0]["losses"]) == ((2, 4), ["message_dropped"] * 2)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 60, "18446744073709551616"])
def test_an_impossible_number_keeps_no_chat_out(number: str, of_alice: Program) -> None:
    chat = gpt("numbers", 2)
    chat["mapping"]["n1"]["message"] |= {"create_time": "NUMBER", "weight": "NUMBER"}
    data = json.dumps([chat]).replace('"NUMBER"', number).encode()
    made = brought(of_alice, data)
    assert (made["messages"], made["losses"]) == (2, [])
    told = json.dumps(UI_CALL).replace('"NUMBER"', number).encode()
    again = brought(of_alice, told)
    exported = of_alice.get(f"chats/{again['chat']}/messages").content
    assert b"Infinity" not in exported


UI_CALL = {
    "id": "u",
    "role": "assistant",
    "metadata": {"x": "NUMBER"},
    "parts": [
        {
            "type": "tool-f",
            "toolCallId": "c",
            "state": "output-available",
            "input": {"n": "NUMBER"},
            "output": "x",
        }
    ],
}


@pytest.mark.parametrize(
    ("written", "year"),
    [
        (1_700_000_000, 2023),
        (1_700_000_000.5, 2023),
        (1_700_000_000_000, 2023),
        (1_700_000_000_000_000, 2023),
        (1_700_000_000_000_000_000, 2023),
        ("1700000001", 2023),
        ("1700000000.25", 2023),
        ("2023-11-14T22:13:20Z", 2023),
        ("2023-11-14 22:13:20", 2023),
        ("0001-01-01T00:00:00+14:00", None),
        ("1960-01-01", None),
        (-5, None),
        (True, None),
        (float(10**30), None),
        ("soon", None),
        ("1712110101530", 2024),
        ("1512110101530.5", 2017),
        ("20240501", 2024),
    ],
)
def test_times_are_read_in_every_form(written: Any, year: int | None) -> None:
    found = parse_milliseconds(written)
    assert (datetime.fromtimestamp(found / 1000, UTC).year if found else None) == year


PLAIN = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "More?"},
    {"role": "assistant", "content": "Yes."},
]


@pytest.mark.parametrize("form", ["plain", "ui"])
def test_a_grown_chat_without_an_id_is_continued(form: str, of_alice: Program) -> None:
    listed: list[Any] = PLAIN
    if form == "ui":
        listed = [
            build_ui_message(f"m{n}", one["content"], one["role"]) for n, one in enumerate(PLAIN)
        ]
    made = brought(of_alice, json.dumps(listed[:2]).encode())
    found = bring(of_alice, json.dumps(listed).encode())
    assert (found.chats[0]["chat"], found.chats[0]["messages"]) == (made["chat"], 2)
    assert bring(of_alice, json.dumps(listed).encode()).row["messages"] == 0
    assert texts(made["chat"]) == ["Hi", "Hello", "More?", "Yes."]


def test_chats_without_an_id_that_only_begin_alike_stay_apart(of_alice: Program) -> None:
    brought(of_alice, json.dumps(PLAIN[:2]).encode())
    other = [PLAIN[0], {"role": "assistant", "content": "Good day"}, *PLAIN[2:]]
    brought(of_alice, json.dumps(other).encode())
    assert Chat.objects.count() == 2

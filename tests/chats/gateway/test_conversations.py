"""Conversations by id: items, replies, metadata, deletion, end users and repetitions."""

import json
import uuid
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from openai.types.conversations import Conversation
from openai.types.conversations.conversation_item import ConversationItem
from openai.types.responses import Response
from pydantic import TypeAdapter

from chats.actions import erasure, marks
from chats.models import Chat, GatewayChat, KeptText, Message, Turn
from chats.providers.base import Finished, TextDelta
from contextpolicy import holds
from contextpolicy.models import AuditEvent
from tests.chats.gateway.conftest import MakeProgram, Program, calling, user
from tests.chats.gateway.test_responses import TOOL, ask, output, whole

pytestmark = pytest.mark.django_db

ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)


def call(
    program: Program, method: str, path: str = "", body: Any = None, **headers: str
) -> tuple[int, Any]:
    """Send a request below /v1/conversations, and return status and JSON."""
    client = Client(headers={"Authorization": f"Bearer {program.secret}", **headers})
    data = b"" if body is None else json.dumps(body).encode()
    answer = client.generic(method, f"/v1/conversations{path}", data, "application/json")
    return answer.status_code, answer.json()


def create(program: Program, **body: Any) -> str:
    """Create a conversation and return its id."""
    status, told = call(program, "POST", body=body)
    assert status == 200, told
    return str(Conversation.model_validate(told).id)


def list_texts(program: Program, named: str, **query: Any) -> list[tuple[str, str]]:
    """Return role and text of the message items of a conversation, oldest first."""
    path = f"/{named}/items?{urlencode({'order': 'asc', **query})}"
    status, told = call(program, "GET", path)
    assert status == 200, told
    for item in told["data"]:
        ITEM.validate_python(item)
    return [
        (item["role"], item["content"][0]["text"])
        for item in told["data"]
        if item["type"] == "message"
    ]


def get_code(told: Any) -> tuple[str, str | None]:
    return told["error"]["code"], told["error"]["param"]


def test_a_conversation_continues_by_its_id(program: Program) -> None:
    named = create(program, metadata={"topic": "trip"})
    first = ask(program, "Hello", conversation=named)
    assert first.headers["X-Context-Decision"] == "continue"
    assert first.json["conversation"] == {"id": named}
    # Only the new input is sent. Both forms of the field work.
    second = ask(program, "And?", conversation={"id": named}, store=False)
    assert program.prompt == [("user", "Hello"), ("assistant", "reply 1"), ("user", "And?")]
    assert first.chat == second.chat
    assert list_texts(program, named) == [
        ("user", "Hello"),
        ("assistant", "reply 1"),
        ("user", "And?"),
        ("assistant", "reply 2"),
    ]
    assert Chat.objects.count() == 1
    chat = first.chat
    assert (chat.title, chat.archived, chat.erase_at) == ("Hello", False, None)
    stored = call_response(program, whole(first).id)
    assert stored["conversation"] == {"id": named}
    Response.model_validate(stored)


def call_response(program: Program, response_id: str) -> Any:
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    return client.get(f"/v1/responses/{response_id}").json()


def test_items_are_added_without_a_reply(program: Program) -> None:
    given = [user("My name is Ann."), {"role": "assistant", "content": "Noted."}]
    named = create(program, items=given)
    chat = Chat.objects.get()
    assert (chat.archived, chat.title) == (True, "My name is Ann.")
    status, told = call(program, "POST", f"/{named}/items", {"items": [user("I live in Rome.")]})
    assert (status, told["has_more"], len(told["data"])) == (200, False, 1)
    assert Turn.objects.count() == 0
    # A reply to the last item needs no input.
    answer = program.open({"model": "demo", "conversation": named}, path="responses")
    program.work(answer["X-Context-Report-Id"])
    assert program.close(answer).status == 200
    assert [text for _, text in program.prompt] == ["My name is Ann.", "Noted.", "I live in Rome."]
    events = AuditEvent.objects.filter(type="gateway.items_added", chat_id=chat.pk)
    assert [event.data["messages"] for event in events.order_by("pk")] == [2, 1]
    # Each message has a commitment in the ledger, so that a change by SQL is noticed.
    assert all(row.commitment for row in Message.objects.filter(role="user"))


def test_results_complete_the_calls_of_a_reply(program: Program) -> None:
    named = create(program)
    ask(program, "Weather?", *calling("a", "b"), conversation=named, tools=[TOOL])
    both = [output("a", "rain"), output("b", "sun")]
    ask(program, both, conversation=named, tools=[TOOL])
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain", "sun"]
    # Results can be added as items, too.
    ask(program, "Again?", *calling("c"), conversation=named, tools=[TOOL])
    status, told = call(program, "POST", f"/{named}/items", {"items": [output("c", "fog")]})
    assert status == 200
    assert [i["type"] for i in told["data"]] == ["function_call", "function_call_output"]
    ask(program, "So?", conversation=named, tools=[TOOL])
    assert [text for _, text in program.prompt][-4:] == ["Again?", "", "fog", "So?"]
    assert Chat.objects.count() == 1
    ask(program, "More?", *calling("d"), conversation=named, tools=[TOOL])
    missing = ask(program, "Never mind", conversation=named, tools=[TOOL])
    assert (missing.status, missing.json["error"]["code"]) == (400, "invalid_value")


def test_a_repeated_request_is_stored_once(program: Program) -> None:
    named = create(program)
    ask(program, "Weather?", *calling("a"), conversation=named, tools=[TOOL])
    body = {
        "model": "demo",
        "conversation": named,
        "input": [output("a", "rain")],
        "tools": [TOOL],
    }
    once = {"Idempotency-Key": "one"}
    waiting = program.open(body, path="responses", **once)
    turn_id = waiting["X-Context-Report-Id"]
    Turn.objects.filter(pk=turn_id).update(stop_requested_at=timezone.now())
    program.work(turn_id, TextDelta("It r"), Finished("stop"))
    # A stopped reply is written again, for the same items.
    retried = program.open(body, path="responses", **once)
    program.work(retried["X-Context-Report-Id"])
    first = program.close(retried)
    assert first.headers["X-Context-Decision"] == "retry"
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain"]
    again = program.close(program.open(body, path="responses", **once))
    assert again.headers["X-Context-Decision"] == "repeat"
    assert (again.status, again.json["output"]) == (200, first.json["output"])
    ask(program, "And?", conversation=named, tools=[TOOL])
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain", "reply 3", "And?"]


def test_items_and_conversations_are_created_once(program: Program) -> None:
    once = {"Idempotency-Key": "new"}
    body = {"items": [user("Hello")]}
    first, second = (call(program, "POST", "", body, **once) for _ in range(2))
    assert first == second
    path = f"/{first[1]['id']}/items"
    added = [call(program, "POST", path, body, **{"Idempotency-Key": "add"}) for _ in range(2)]
    assert added[0] == added[1]
    assert len(list_texts(program, first[1]["id"])) == 2
    other = call(program, "POST", path, {"items": [user("Else")]}, **{"Idempotency-Key": "add"})
    assert (other[0], get_code(other[1])[0]) == (422, "idempotency_key_reused")


def test_a_conversation_in_use_is_locked(program: Program) -> None:
    named = create(program)
    waiting = program.open(
        {"model": "demo", "input": "One", "conversation": named}, path="responses"
    )
    locked = ask(program, "Two", conversation=named)
    assert (locked.status, locked.json["error"]["code"]) == (409, "conversation_locked")
    assert locked.headers["Retry-After"] == "1"
    status, told = call(program, "POST", f"/{named}/items", {"items": [user("Two")]})
    assert (status, get_code(told)) == (409, ("conversation_locked", "conversation"))
    program.work(waiting["X-Context-Report-Id"])
    program.close(waiting)
    assert ask(program, "Two", conversation=named).status == 200


def test_others_do_not_find_a_conversation(
    program: Program, make: MakeProgram, charlie: User
) -> None:
    named = create(program)
    assert ask(program, "Hi", conversation=named, safety_identifier="ann").status == 200
    chat = Chat.objects.get()
    page = f"conv_{uuid.uuid4().hex}"
    for asker, conversation, more in (
        (make(charlie), named, {"safety_identifier": "ann"}),
        (program, named, {"safety_identifier": "ben"}),
        (program, named, {}),
        (program, page, {}),
        (program, f"conv_{chat.pk}", {}),
        (program, 7, {}),
    ):
        refused = ask(asker, "Secret?", conversation=conversation, **more)
        error = refused.json["error"]
        assert (refused.status, error["code"], error["param"]) == (
            404,
            "conversation_not_found",
            "conversation",
        )
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "", {"metadata": {}}),
        ("GET", "/items", None),
        ("POST", "/items", {"items": [user("Hi")]}),
        ("GET", "/items/msg_1", None),
    ):
        status, told = call(make(charlie), method, f"/{named}{path}", body)
        assert (status, get_code(told)[0]) == (404, "conversation_not_found"), (method, path)
    assert ask(program, "Still here?", conversation=named, safety_identifier="ann").status == 200
    # Neither chats of the page nor those with a client-chosen id are conversations.
    own = program.ask([user("Mine")], conversation="mine").chat
    assert ask(program, "Hi", conversation=f"conv_{own.pk.hex}").status == 404
    GatewayChat.objects.all().delete()
    assert ask(program, "Hi", conversation=named, safety_identifier="ann").status == 404


def test_metadata_is_kept_under_a_hold(program: Program, alice: User) -> None:
    named = create(program, metadata={"a": "1"})
    status, told = call(program, "POST", f"/{named}", {"metadata": {"b": "2"}})
    assert (status, told["metadata"]) == (200, {"b": "2"})
    assert KeptText.objects.count() == 0
    why: dict[str, Any] = {"case": "2026-17", "reason": "Dispute", "actor": "user:1"}
    holds.place_hold(level="user", user=alice, now=timezone.now(), **why)
    call(program, "POST", f"/{named}", {"metadata": {}})
    assert KeptText.objects.get().text == '{"b": "2"}'
    assert call(program, "GET", f"/{named}")[1]["metadata"] == {}
    wrong: Any
    for wrong in (
        [],
        {"a": 1},
        {"a" * 65: "x"},
        {"a": "x" * 513},
        {str(n): "" for n in range(17)},
    ):
        status, told = call(program, "POST", f"/{named}", {"metadata": wrong})
        assert (status, get_code(told)) == (400, ("invalid_value", "metadata"))


def test_items_are_retrieved_and_left_out(program: Program) -> None:
    named = create(program)
    ask(program, "Keep this", conversation=named)
    ask(program, "Drop this", conversation=named)
    listed = call(program, "GET", f"/{named}/items?limit=2")[1]
    assert listed["has_more"]
    dropped = listed["data"][1]
    assert call(program, "GET", f"/{named}/items/{dropped['id']}") == (200, dropped)
    status, told = call(program, "DELETE", f"/{named}/items/{dropped['id']}")
    assert (status, told["id"]) == (200, named)
    status, told = call(program, "GET", f"/{named}/items/{dropped['id']}")
    assert (status, get_code(told)) == (404, ("item_not_found", "item_id"))
    ask(program, "And?", conversation=named)
    assert "Drop this" not in [text for _, text in program.prompt]
    # The owner can include it again.
    row = Message.objects.get(parts__0__text="Drop this")
    marks.include_message(message=row, actor="user:1", now=timezone.now())
    assert ("user", "Drop this") in list_texts(program, named)
    for unknown in ("msg_1", f"msg_{uuid.uuid4().hex}", f"fc_{row.pk.hex}_0"):
        assert call(program, "DELETE", f"/{named}/items/{unknown}")[0] == 404


def test_a_deleted_conversation_leaves_its_chat(program: Program) -> None:
    named = create(program)
    ask(program, "Hello", conversation=named)
    for _ in range(2):
        status, told = call(program, "DELETE", f"/{named}")
        if status == 200:
            assert told == {"id": named, "object": "conversation.deleted", "deleted": True}
    assert status == 404
    assert ask(program, "And?", conversation=named).status == 404
    assert Message.objects.count() == 2
    assert AuditEvent.objects.filter(type="gateway.conversation_deleted").count() == 1


def test_an_erased_chat_is_gone_with_its_metadata(program: Program, alice: User) -> None:
    named = create(program, metadata={"who": "Ann"}, items=[user("Secret")])
    erasure.erase_chat(user=alice, chat=Chat.objects.get(), now=timezone.now())
    assert call(program, "GET", f"/{named}")[0] == 404
    assert GatewayChat.objects.count() == 0


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("", {"name": "x"}, "unsupported_parameter", "name"),
        ("", {"items": "x"}, "invalid_value", "items"),
        ("", {"items": [user("x")] * 21}, "invalid_value", "items"),
        ("", {"items": [{"role": "system", "content": "x"}]}, "unsupported_content", "items"),
        ("", {"items": [{"type": "file_search_call"}]}, "unsupported_content", "items[0].type"),
        ("/items", {"items": []}, "missing_field", "items"),
        ("/items", {}, "missing_field", "items"),
        ("/items", {"items": [output("a", "x")]}, "invalid_value", "items[0].call_id"),
        ("", {"items": [user("x"), {"type": "function_call", "call_id": "a", "name": "f",
                                    "arguments": "{}"}]}, "invalid_value", "items[2]"),
        ("", {"items": [user("x" * 400_000)]}, "message_too_long", "items"),
    ],
)  # fmt: skip
def test_wrong_items_are_refused_by_name(
    program: Program, path: str, body: Any, code: str, param: str
) -> None:
    before = f"/{create(program)}" if path else ""
    status, told = call(program, "POST", before + path, body)
    assert (status // 100, get_code(told)) == (4, (code, param))
    assert Message.objects.count() == 0
    assert Chat.objects.count() == (1 if path else 0)


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": f"resp_{uuid.uuid4().hex}"},
        {"input": [user("x"), {"type": "compaction_trigger"}]},
    ],
)
def test_fields_that_a_conversation_excludes(program: Program, more: Any) -> None:
    named = create(program, items=[user("Hello")])
    if "previous_response_id" in more:
        more = {"previous_response_id": whole(ask(program, "Hi")).id}
    body = {"model": "demo", "input": "x", "conversation": named, **more}
    refused = program.close(program.open(body, path="responses"))
    assert (refused.status, refused.json["error"]["param"]) == (400, "conversation")
    body = {"model": "demo", "input": "x", "conversation": named}
    assert program.close(program.open(body, path="responses/compact")).status == 400
    passed = program.open(body, path="responses", **{"X-Context-Policy": "off"})
    assert program.close(passed).status in (403, 409)
    chat = Chat.objects.get(gateway__source="conversations")
    named_chat = {**body, "model": f"chat:{chat.pk}"}
    assert program.close(program.open(named_chat, path="responses")).status == 400


def test_a_dry_run_of_a_conversation_stores_nothing(program: Program) -> None:
    named = create(program, items=[user("Hello"), {"role": "assistant", "content": "Hi."}])
    body = {"model": "demo", "input": "And?", "conversation": named}
    report = program.close(program.open(body, path="responses", **{"X-Context-Dry-Run": "true"}))
    assert [part["part"] for part in report.json["sent"]].count("history") == 2
    assert len(list_texts(program, named)) == 2


def test_a_full_chat_refuses_more_items(program: Program, settings: Any) -> None:
    settings.MESSAGES_PER_CHAT = 4
    named = create(program)
    ask(program, "One", conversation=named)
    ask(program, "Two", conversation=named)
    full = ask(program, "Three", conversation=named)
    assert full.json["error"]["code"] == "chat_full"
    status, told = call(program, "POST", f"/{named}/items", {"items": [user("x")]})
    assert (status, get_code(told)[0]) == (full.status, "chat_full")

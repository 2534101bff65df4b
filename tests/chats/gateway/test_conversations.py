"""Conversations by id: items, replies, metadata, deletion, end users and repetitions."""

import asyncio
import uuid
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from openai.types.conversations.conversation_item import ConversationItem
from openai.types.responses import Response
from pydantic import TypeAdapter

from chats.actions import branching, erasure, marks
from chats.models import Chat, GatewayChat, KeptText, Message, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.turns import attempt_state
from contextpolicy import holds
from contextpolicy.models import AuditEvent
from tests.support.gateway_clients import GatewayClient, MakeClient, calling, user
from tests.support.gateway_conversations import call_conversations, create_conversation
from tests.support.gateway_responses import (
    FUNCTION_TOOL,
    build_tool_output,
    create_response,
    parse_response,
)

pytestmark = pytest.mark.django_db

ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)


def list_texts(program: GatewayClient, named: str, **query: Any) -> list[tuple[str, str]]:
    """Return role and text of the message items of a conversation, oldest first."""
    path = f"/{named}/items?{urlencode({'order': 'asc', **query})}"
    status, told = call_conversations(program, "GET", path)
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


def test_no_items_are_an_empty_list_too(program: GatewayClient) -> None:
    named = create_conversation(program, items=[])
    assert create_response(program, "Hi", conversation=named).status == 200
    assert create_response(program, [], instructions="Say hello.").status == 200
    refused = create_response(program, [], conversation=named)
    assert (refused.status, refused.json["error"]["code"]) == (400, "unsupported_content")


def test_a_conversation_continues_by_its_id(program: GatewayClient) -> None:
    named = create_conversation(program, metadata={"topic": "trip"})
    first = create_response(program, "Hello", conversation=named)
    assert first.headers["X-Context-Decision"] == "continue"
    assert first.json["conversation"] == {"id": named}
    # Only the new input is sent. Both forms of the field work.
    second = create_response(program, "And?", conversation={"id": named}, store=False)
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
    stored = call_response(program, parse_response(first).id)
    assert stored["conversation"] == {"id": named}
    Response.model_validate(stored)


def call_response(program: GatewayClient, response_id: str) -> Any:
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    return client.get(f"/v1/responses/{response_id}").json()


def test_items_are_added_without_a_reply(program: GatewayClient) -> None:
    given = [user("My name is Ann."), {"role": "assistant", "content": "Noted."}]
    named = create_conversation(program, items=given)
    chat = Chat.objects.get()
    assert (chat.archived, chat.title) == (True, "My name is Ann.")
    status, told = call_conversations(
        program, "POST", f"/{named}/items", {"items": [user("I live in Rome.")]}
    )
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


def test_results_complete_the_calls_of_a_reply(program: GatewayClient) -> None:
    named = create_conversation(program)
    create_response(
        program, "Weather?", *calling("a", "b"), conversation=named, tools=[FUNCTION_TOOL]
    )
    both = [build_tool_output("a", "rain"), build_tool_output("b", "sun")]
    create_response(program, both, conversation=named, tools=[FUNCTION_TOOL])
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain", "sun"]
    # Results can be added as items, too.
    create_response(program, "Again?", *calling("c"), conversation=named, tools=[FUNCTION_TOOL])
    status, told = call_conversations(
        program, "POST", f"/{named}/items", {"items": [build_tool_output("c", "fog")]}
    )
    assert status == 200
    assert [i["type"] for i in told["data"]] == ["function_call", "function_call_output"]
    create_response(program, "So?", conversation=named, tools=[FUNCTION_TOOL])
    assert [text for _, text in program.prompt][-4:] == ["Again?", "", "fog", "So?"]
    assert Chat.objects.count() == 1
    create_response(program, "More?", *calling("d"), conversation=named, tools=[FUNCTION_TOOL])
    missing = create_response(program, "Never mind", conversation=named, tools=[FUNCTION_TOOL])
    assert (missing.status, missing.json["error"]["code"]) == (400, "invalid_value")


async def press_stop(worker: Any) -> None:
    """Stop all turns of a worker, and wait until their model calls are cancelled."""
    for attempt in worker.runs.values():
        attempt.interrupt(attempt_state.STOP)
    await asyncio.sleep(60)


@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_conversation_continues_after_a_cut_call(
    program: GatewayClient, is_stopped: bool
) -> None:
    named = create_conversation(program)
    body = {"model": "demo", "input": "Weather?", "conversation": named, "tools": [FUNCTION_TOOL]}
    waiting = program.open(body, path="responses")
    turn_id = waiting["X-Context-Report-Id"]
    last = press_stop if is_stopped else ProviderError("provider_unavailable")
    program.work(turn_id, TextDelta("Let me see."), *calling("a")[:-1], last)
    assert program.close(waiting).status != 200
    reply = Message.objects.get(role="assistant")
    assert reply.finish == ("stopped" if is_stopped else "incomplete")
    assert reply.parts[-1]["type"] == "tool_call"
    answer = create_response(program, "Hi", conversation=named, tools=[FUNCTION_TOOL])
    assert answer.status == 200, answer.body
    assert program.prompt[-1] == ("user", "Hi")


def test_a_conversation_continues_without_a_deleted_call(program: GatewayClient) -> None:
    named = create_conversation(program)
    called = create_response(
        program, "Weather?", *calling("a"), conversation=named, tools=[FUNCTION_TOOL]
    )
    item_id = called.json["output"][0]["id"]
    assert item_id.startswith("fc_")
    assert call_conversations(program, "DELETE", f"/{named}/items/{item_id}")[0] == 200
    answer = create_response(program, "Never mind", conversation=named, tools=[FUNCTION_TOOL])
    assert answer.status == 200, answer.body
    assert [text for _, text in program.prompt] == ["Weather?", "Never mind"]


@pytest.mark.parametrize("adds_items", [True, False])
def test_an_erased_call_is_not_sealed_again(
    program: GatewayClient, alice: User, adds_items: bool
) -> None:
    named = create_conversation(program)
    create_response(program, "Weather?", *calling("a"), conversation=named, tools=[FUNCTION_TOOL])
    reply = Message.objects.get(role="assistant")
    # Messages of older versions have no commitment.
    Message.objects.filter(pk=reply.pk).update(commitment="")
    erasure.erase_message(user=alice, message=reply, now=timezone.now())
    if adds_items:
        path = f"/{named}/items"
        status, _ = call_conversations(program, "POST", path, {"items": [user("Never mind")]})
        assert status == 200
    else:
        answer = create_response(program, "Never mind", conversation=named)
        assert answer.status == 200, answer.body
    reply.refresh_from_db()
    assert (reply.salt, reply.commitment, reply.parts) == ("", "", [])


def test_results_of_a_reply_at_the_output_limit_are_stored(program: GatewayClient) -> None:
    named = create_conversation(program)
    script = (*calling("a")[:-1], Finished("length"))
    cut = create_response(program, "Weather?", *script, conversation=named, tools=[FUNCTION_TOOL])
    assert (cut.json["status"], cut.json["output"][0]["call_id"]) == ("incomplete", "a")
    once = {"Idempotency-Key": "one"}
    for decision in ("continue", "repeat"):
        given = [build_tool_output("a", "rain")]
        body = {"model": "demo", "input": given, "conversation": named, "tools": [FUNCTION_TOOL]}
        waiting = program.open(body, path="responses", **once)
        if decision == "continue":
            program.work(waiting["X-Context-Report-Id"])
        answer = program.close(waiting)
        assert (answer.status, answer.headers["X-Context-Decision"]) == (200, decision)
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain"]


@pytest.mark.parametrize("adds_items", [True, False])
def test_results_after_branching_from_their_reply(
    program: GatewayClient, alice: User, adds_items: bool
) -> None:
    named = create_conversation(program)
    create_response(program, "Weather?", *calling("a"), conversation=named, tools=[FUNCTION_TOOL])
    reply = Message.objects.get(role="assistant")
    branching.branch_from_message(user=alice, message=reply, now=timezone.now())
    given = [build_tool_output("a", "rain")]
    if adds_items:
        status, told = call_conversations(program, "POST", f"/{named}/items", {"items": given})
        assert status == 200, told
        assert [i["type"] for i in told["data"]] == ["function_call", "function_call_output"]
        create_response(program, "So?", conversation=named, tools=[FUNCTION_TOOL])
    else:
        once = {"Idempotency-Key": "one"}
        first, second = (
            create_response(program, given, conversation=named, tools=[FUNCTION_TOOL], headers=once)
            for _ in range(2)
        )
        assert first.headers["X-Context-Decision"] == "branch"
        assert second.headers["X-Context-Decision"] == "repeat"
    assert [text for _, text in program.prompt][:3] == ["Weather?", "", "rain"]
    # The reply on the other branch has no results.
    before = reply.parts
    reply.refresh_from_db()
    assert reply.parts == before


def test_a_request_after_results_is_repeated(program: GatewayClient) -> None:
    named = create_conversation(program)
    create_response(program, "Weather?", *calling("a"), conversation=named, tools=[FUNCTION_TOOL])
    given = {"items": [build_tool_output("a", "rain")]}
    assert call_conversations(program, "POST", f"/{named}/items", given)[0] == 200
    body = {"model": "demo", "input": "So?", "conversation": named, "tools": [FUNCTION_TOOL]}
    once = {"Idempotency-Key": "one"}
    waiting = program.open(body, path="responses", **once)
    program.work(waiting["X-Context-Report-Id"])
    first = program.close(waiting)
    again = program.close(program.open(body, path="responses", **once))
    assert (again.status, again.json["output"]) == (200, first.json["output"])


def test_repeated_results_are_added_once(program: GatewayClient) -> None:
    named = create_conversation(program)
    create_response(program, "Weather?", *calling("a"), conversation=named, tools=[FUNCTION_TOOL])
    given = {"items": [build_tool_output("a", "rain"), user("So?")]}
    added = [
        call_conversations(program, "POST", f"/{named}/items", given, **{"Idempotency-Key": "one"})
        for _ in range(2)
    ]
    assert added[0][0] == 200
    assert added[0] == added[1]
    assert Message.objects.count() == 3


def test_other_results_of_a_reply_at_the_output_limit(program: GatewayClient) -> None:
    script = (*calling("a")[:-1], Finished("length"))
    cut = create_response(program, "Weather?", *script, tools=[FUNCTION_TOOL])
    for weather in ("rain", "snow"):
        given = [build_tool_output("a", weather)]
        answer = create_response(
            program, given, previous_response_id=cut.json["id"], tools=[FUNCTION_TOOL]
        )
        assert answer.status == 200, answer.body
        assert [text for _, text in program.prompt] == ["Weather?", "", weather]
        assert answer.chat == cut.chat


def test_a_conversation_continues_after_a_cut_call_of_the_page(program: GatewayClient) -> None:
    named = create_conversation(program)
    script = (TextDelta("Let me see."), *calling("a")[:-1], Finished("length"))
    cut = create_response(program, "Weather?", *script, conversation=named, tools=[FUNCTION_TOOL])
    # The calls of a reply that was requested on the page are those of tool servers.
    Turn.objects.filter(pk=cut.turn.pk).update(client=None)
    answer = create_response(program, "Hi", conversation=named)
    assert answer.status == 200, answer.body
    assert program.prompt[-1] == ("user", "Hi")


def test_a_conversation_without_a_question_needs_one(program: GatewayClient) -> None:
    call = {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"}
    items = [call, build_tool_output("a", "rain")]
    named = create_conversation(program, items=items)
    refused = create_response(program, [], conversation=named, instructions="Say it.")
    assert (refused.status, get_code(refused.json)) == (400, ("invalid_value", "input"))
    assert create_response(program, "So?", conversation=named).status == 200
    assert Message.objects.count() == 3


def test_a_repeated_request_is_stored_once(program: GatewayClient) -> None:
    named = create_conversation(program)
    create_response(program, "Weather?", *calling("a"), conversation=named, tools=[FUNCTION_TOOL])
    body = {
        "model": "demo",
        "conversation": named,
        "input": [build_tool_output("a", "rain")],
        "tools": [FUNCTION_TOOL],
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
    create_response(program, "And?", conversation=named, tools=[FUNCTION_TOOL])
    assert [text for _, text in program.prompt] == ["Weather?", "", "rain", "reply 3", "And?"]


def test_items_and_conversations_are_created_once(program: GatewayClient) -> None:
    once = {"Idempotency-Key": "new"}
    body = {"items": [user("Hello")]}
    first, second = (call_conversations(program, "POST", "", body, **once) for _ in range(2))
    assert first == second
    path = f"/{first[1]['id']}/items"
    added = [
        call_conversations(program, "POST", path, body, **{"Idempotency-Key": "add"})
        for _ in range(2)
    ]
    assert added[0] == added[1]
    assert len(list_texts(program, first[1]["id"])) == 2
    other = call_conversations(
        program, "POST", path, {"items": [user("Else")]}, **{"Idempotency-Key": "add"}
    )
    assert (other[0], get_code(other[1])[0]) == (422, "idempotency_key_reused")


def test_a_conversation_in_use_is_locked(program: GatewayClient) -> None:
    named = create_conversation(program)
    waiting = program.open(
        {"model": "demo", "input": "One", "conversation": named}, path="responses"
    )
    locked = create_response(program, "Two", conversation=named)
    assert (locked.status, locked.json["error"]["code"]) == (409, "conversation_locked")
    assert locked.headers["Retry-After"] == "1"
    assert "X-Should-Retry" not in locked.headers
    status, told = call_conversations(program, "POST", f"/{named}/items", {"items": [user("Two")]})
    assert (status, get_code(told)) == (409, ("conversation_locked", "conversation"))
    program.work(waiting["X-Context-Report-Id"])
    program.close(waiting)
    assert create_response(program, "Two", conversation=named).status == 200


def test_others_do_not_find_a_conversation(
    program: GatewayClient, make: MakeClient, charlie: User
) -> None:
    named = create_conversation(program)
    assert create_response(program, "Hi", conversation=named, safety_identifier="ann").status == 200
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
        refused = create_response(asker, "Secret?", conversation=conversation, **more)
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
        status, told = call_conversations(make(charlie), method, f"/{named}{path}", body)
        assert (status, get_code(told)[0]) == (404, "conversation_not_found"), (method, path)
    assert (
        create_response(program, "Still here?", conversation=named, safety_identifier="ann").status
        == 200
    )
    # Neither chats of the page nor those with a client-chosen id are conversations.
    own = program.ask([user("Mine")], conversation="mine").chat
    assert create_response(program, "Hi", conversation=f"conv_{own.pk.hex}").status == 404
    GatewayChat.objects.all().delete()
    assert create_response(program, "Hi", conversation=named, safety_identifier="ann").status == 404


def test_metadata_is_kept_under_a_hold(program: GatewayClient, alice: User) -> None:
    named = create_conversation(program, metadata={"a": "1"})
    status, told = call_conversations(program, "POST", f"/{named}", {"metadata": {"b": "2"}})
    assert (status, told["metadata"]) == (200, {"b": "2"})
    assert KeptText.objects.count() == 0
    why: dict[str, Any] = {"case": "2026-17", "reason": "Dispute", "actor": "user:1"}
    holds.place_hold(level="user", user=alice, now=timezone.now(), **why)
    call_conversations(program, "POST", f"/{named}", {"metadata": {}})
    assert KeptText.objects.get().text == '{"b": "2"}'
    assert call_conversations(program, "GET", f"/{named}")[1]["metadata"] == {}
    wrong: Any
    for wrong in (
        [],
        {"a": 1},
        {"a" * 65: "x"},
        {"a": "x" * 513},
        {str(n): "" for n in range(17)},
    ):
        status, told = call_conversations(program, "POST", f"/{named}", {"metadata": wrong})
        assert (status, get_code(told)) == (400, ("invalid_value", "metadata"))


def test_items_are_retrieved_and_left_out(program: GatewayClient) -> None:
    named = create_conversation(program)
    create_response(program, "Keep this", conversation=named)
    create_response(program, "Drop this", conversation=named)
    listed = call_conversations(program, "GET", f"/{named}/items?limit=2")[1]
    assert listed["has_more"]
    dropped = listed["data"][1]
    assert call_conversations(program, "GET", f"/{named}/items/{dropped['id']}") == (200, dropped)
    status, told = call_conversations(program, "DELETE", f"/{named}/items/{dropped['id']}")
    assert (status, told["id"]) == (200, named)
    status, told = call_conversations(program, "GET", f"/{named}/items/{dropped['id']}")
    assert (status, get_code(told)) == (404, ("item_not_found", "item_id"))
    create_response(program, "And?", conversation=named)
    assert "Drop this" not in [text for _, text in program.prompt]
    # The owner can include it again.
    row = Message.objects.get(parts__0__text="Drop this")
    marks.include_message(message=row, actor="user:1", now=timezone.now())
    assert ("user", "Drop this") in list_texts(program, named)
    for unknown in ("msg_1", f"msg_{uuid.uuid4().hex}", f"fc_{row.pk.hex}_0"):
        assert call_conversations(program, "DELETE", f"/{named}/items/{unknown}")[0] == 404


def test_a_deleted_conversation_leaves_its_chat(program: GatewayClient) -> None:
    named = create_conversation(program)
    create_response(program, "Hello", conversation=named)
    for _ in range(2):
        status, told = call_conversations(program, "DELETE", f"/{named}")
        if status == 200:
            assert told == {"id": named, "object": "conversation.deleted", "deleted": True}
    assert status == 404
    assert create_response(program, "And?", conversation=named).status == 404
    assert Message.objects.count() == 2
    assert AuditEvent.objects.filter(type="gateway.conversation_deleted").count() == 1


def test_an_erased_chat_is_gone_with_its_metadata(program: GatewayClient, alice: User) -> None:
    named = create_conversation(program, metadata={"who": "Ann"}, items=[user("Secret")])
    erasure.erase_chat(user=alice, chat=Chat.objects.get(), now=timezone.now())
    assert call_conversations(program, "GET", f"/{named}")[0] == 404
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
        ("/items", {"items": [build_tool_output("a", "x")]}, "invalid_value", "items[0].call_id"),
        ("", {"items": [user("x"), {"type": "function_call", "call_id": "a", "name": "f",
                                    "arguments": "{}"}]}, "invalid_value", "items[2]"),
        ("", {"items": [user("x" * 400_000)]}, "message_too_long", "items"),
    ],
)  # fmt: skip
def test_wrong_items_are_refused_by_name(
    program: GatewayClient, path: str, body: Any, code: str, param: str
) -> None:
    before = f"/{create_conversation(program)}" if path else ""
    status, told = call_conversations(program, "POST", before + path, body)
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
def test_fields_that_a_conversation_excludes(program: GatewayClient, more: Any) -> None:
    named = create_conversation(program, items=[user("Hello")])
    if "previous_response_id" in more:
        more = {"previous_response_id": parse_response(create_response(program, "Hi")).id}
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


def test_a_dry_run_of_a_conversation_stores_nothing(program: GatewayClient) -> None:
    named = create_conversation(
        program, items=[user("Hello"), {"role": "assistant", "content": "Hi."}]
    )
    body = {"model": "demo", "input": "And?", "conversation": named}
    report = program.close(program.open(body, path="responses", **{"X-Context-Dry-Run": "true"}))
    assert [part["part"] for part in report.json["sent"]].count("history") == 2
    assert len(list_texts(program, named)) == 2


def test_a_full_chat_refuses_more_items(program: GatewayClient, settings: Any) -> None:
    settings.MESSAGES_PER_CHAT = 4
    named = create_conversation(program)
    create_response(program, "One", conversation=named)
    create_response(program, "Two", conversation=named)
    full = create_response(program, "Three", conversation=named)
    assert full.json["error"]["code"] == "chat_full"
    status, told = call_conversations(program, "POST", f"/{named}/items", {"items": [user("x")]})
    assert (status, get_code(told)[0]) == (full.status, "chat_full")

"""Requests with a system text only: the model gets it as a system text, without a message."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.actions import erasure
from chats.models import Chat, Message, Receipt
from chats.prompt.reconstruction import rebuild_request
from chats.providers import registry
from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.base import Finished, TextDelta
from chats.providers.wire import build_openai_body
from contextpolicy.engine.compose.layouts import OPENING
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    assistant,
    call,
    calling,
    get_client_key,
    list_chat_messages,
    result,
    system,
    user,
)
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

POEM = "Write a short poem about palimpsests."


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_model_gets_only_the_system_text(
    program: GatewayClient, role: str, stream: bool
) -> None:
    answer = program.ask([system(POEM, role)], stream=stream)
    assert (answer.status, answer.text) == (200, "reply 1")
    assert program.prompt == [("system", POEM)]
    assert list_chat_messages(answer.chat) == [(1, "user", ""), (2, "assistant", "reply 1")]
    assert answer.chat.title == POEM
    receipt = Receipt.objects.get()
    assert [segment[:2] for segment in receipt.segments if segment[0] == "system"] == [
        ["system", "chat"]
    ]
    assert rebuild_request(receipt).fault == ""
    body = build_anthropic_body(program.requests[-1])
    assert body["system"][0]["text"] == POEM
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": OPENING}]}]


def test_the_conversation_continues_in_its_chat(program: GatewayClient) -> None:
    said = [system(POEM)]
    first = program.ask(said)
    said += [assistant(first.text), user("Another one")]
    second = program.ask(said)
    assert second.headers["X-Context-Decision"] == "continue"
    assert program.prompt == [("system", POEM), ("assistant", "reply 1"), ("user", "Another one")]
    said += [assistant(second.text), user("A third one")]
    third = program.ask(said, headers={"X-Session-Id": ""})
    assert (third.chat, third.headers["X-Context-Decision"]) == (first.chat, "continue")
    assert Chat.objects.count() == 1
    # The same first request again is another chat: the request has no earlier reply.
    assert program.ask([system(POEM)]).chat != first.chat


def test_a_named_conversation_continues_without_a_branch(program: GatewayClient) -> None:
    named = {"X-Session-Id": "poems"}
    first = program.ask([system(POEM)], headers=named)
    said = [system(POEM), assistant(first.text), user("Another one")]
    second = program.ask(said, headers=named)
    assert second.headers["X-Context-Decision"] == "continue"
    assert not second.turn.branch.client_windowed


def test_its_reply_may_call_tools(program: GatewayClient) -> None:
    said = [system("Report the weather in Oslo.")]
    first = program.ask(said, *calling("c1"), tools=TOOLS)
    assert first.json["choices"][0]["finish_reason"] == "tool_calls"
    said += [assistant(None, call("c1")), result("c1", "rain")]
    second = program.ask(said, tools=TOOLS)
    assert (second.status, second.headers["X-Context-Decision"]) == (200, "continue")
    assert [role for role, _ in program.prompt] == ["system", "assistant", "tool"]


@pytest.mark.parametrize(
    "body",
    [
        {"instructions": POEM},
        {"input": [{"role": "developer", "content": POEM}]},
    ],
)
def test_responses_take_it_too(program: GatewayClient, body: dict[str, Any]) -> None:
    response = program.open({"model": "demo", **body}, path="responses")
    program.work(response["X-Context-Report-Id"])
    first = program.close(response)
    assert first.json["output"][0]["content"][0]["text"] == "reply 1"
    assert program.prompt == [("system", POEM)]
    more = {"model": "demo", "input": "Another one", "previous_response_id": first.json["id"]}
    response = program.open(more, path="responses")
    program.work(response["X-Context-Report-Id"])
    second = program.close(response)
    assert second.headers["X-Context-Decision"] == "continue"
    assert program.prompt == [("assistant", "reply 1"), ("user", "Another one")]


def test_it_is_passed_through_unchanged(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([[TextDelta("Ink"), Finished("stop")]])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    body = {"model": "demo", "messages": [system(POEM)]}
    assert program.close(program.open(body)).text == "Ink"
    assert build_openai_body(provider.requests[0])["messages"] == [
        {"role": "system", "content": POEM}
    ]
    assert not Chat.objects.exists()


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([system("")], "invalid_value"),
        ([system(POEM), assistant("A leaf")], "unsupported_content"),
        ([user("Hi"), assistant("Hello"), system(POEM)], "unsupported_content"),
    ],
)
def test_other_requests_without_a_question_are_refused(
    program: GatewayClient, messages: Any, code: str
) -> None:
    answer = program.ask(messages)
    assert (answer.status, answer.json["error"]["code"]) == (400, code)
    assert not Chat.objects.exists()


def test_a_policy_that_ignores_system_texts_refuses_it(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(chat_system="ignore")
    answer = program.ask([system(POEM)])
    assert (answer.status, answer.json["error"]["code"]) == (400, "system_text_ignored")
    assert not Chat.objects.exists()


def test_a_named_chat_needs_a_message(program: GatewayClient) -> None:
    chat = program.ask([user("Hello")]).chat
    answer = program.ask([system(POEM)], model=f"chat:{chat.pk}")
    assert (answer.status, answer.json["error"]["code"]) == (400, "missing_field")


def test_an_empty_message_is_still_a_message(program: GatewayClient) -> None:
    program.ask([system(POEM), user([])])
    assert program.prompt == [("system", POEM), ("user", "")]


def test_a_dry_run_shows_the_system_text(program: GatewayClient) -> None:
    body = {"model": "demo", "messages": [system(POEM)]}
    answer = program.close(program.open(body, **{"X-Context-Dry-Run": "true"}))
    assert answer.json["decision"] == "new"
    assert "system" in [part["part"] for part in answer.json["sent"]]
    assert not Chat.objects.exists()


def test_the_owner_sees_the_chat_and_may_erase_it(program: GatewayClient, alice: User) -> None:
    chat = program.ask([system(POEM)]).chat
    page = Client()
    page.force_login(alice)
    note = 'data-note="system-text-only"'
    assert note in page.get(f"/chats/{chat.pk}/").content.decode()
    message = Message.objects.get(role="user")
    erasure.erase_message(user=alice, message=message, now=timezone.now())
    assert note not in page.get(f"/chats/{chat.pk}/").content.decode()

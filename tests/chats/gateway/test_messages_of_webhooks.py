"""Webhooks report each message that a client of the gateway adds exactly once."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Chat, Message, Webhook
from chats.webhooks import managing
from tests.fakes.receiver import Receiver
from tests.support.gateway_clients import (
    TOOLS,
    GatewayClient,
    assistant,
    call,
    calling,
    result,
    user,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def webhook(alice: User, receiver: Receiver) -> Webhook:
    """A webhook of the owner of the client's key."""
    events = ["message.added", "turn.finished"]
    row, _ = managing.create_webhook(
        owner=alice, url=receiver.url, events=events, now=timezone.now()
    )
    return row


def list_told(webhook: Webhook) -> list[dict[str, Any]]:
    """Return the data of the events of added messages, in order."""
    rows = webhook.deliveries.filter(event="message.added").order_by("pk")
    return [json.loads(row.body)["data"] for row in rows]


def list_stored() -> list[tuple[str, str]]:
    """Return id and role of the stored messages, in order."""
    rows = Message.objects.order_by("accepted").values_list("pk", "role")
    return [(str(pk), role) for pk, role in rows]


def test_the_steps_of_an_agent_repeat_no_message(program: GatewayClient, webhook: Webhook) -> None:
    said = [user("How cold is Oslo?")]
    program.ask(said, *calling("a"), tools=TOOLS)
    said += [assistant(None, call("a")), result("a", "Cold.")]
    program.ask(said, *calling("b"), tools=TOOLS)
    said += [assistant(None, call("b")), result("b", "Very cold.")]
    program.ask(said, tools=TOOLS)

    told = [(data["message"], data["role"]) for data in list_told(webhook)]
    assert told == list_stored()
    assert len(told) == len(set(told)) == 4
    assert {data["chat"] for data in list_told(webhook)} == {str(Chat.objects.get().pk)}
    assert webhook.deliveries.filter(event="turn.finished").count() == 3


def test_each_message_of_a_longer_conversation_is_told(
    program: GatewayClient, webhook: Webhook
) -> None:
    program.ask([user("One"), assistant("Two"), user("Three"), assistant("Four"), user("Five")])
    told = [(data["message"], data["role"]) for data in list_told(webhook)]
    assert told == list_stored()
    assert [role for _, role in told] == ["user", "assistant"] * 3


def test_another_reply_to_the_same_messages_repeats_no_message(
    program: GatewayClient, webhook: Webhook
) -> None:
    first = program.ask([user("How cold is Oslo?")])
    said = [user("How cold is Oslo?"), assistant(first.text), user("And Rome?")]
    program.ask(said)
    program.ask(said)
    told = [(data["message"], data["role"]) for data in list_told(webhook)]
    assert sorted(told) == sorted(list_stored())
    assert Message.objects.filter(role="user").count() == 2

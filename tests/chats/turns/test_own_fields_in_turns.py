"""Tool calls with server-specific fields across turns: stored, sent back, rebuilt from rows."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, Message, Receipt, Turn
from chats.prompt import sent_request
from chats.providers.base import (
    ExtraFields,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from chats.providers.wire import build_openai_body
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec

Work = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("built_again")
SIGNED = {"extra_content": {"google": {"thought_signature": "c2ln"}}}


def ask(alice: User, chat: Chat, now: datetime, text: str = "Hello") -> Turn:
    """Send a message of Alice."""
    return start_turn(user=alice, chat=chat, text=text, now=now).turn


def messages_of(worker: Any, number: int = -1) -> list[dict[str, Any]]:
    """Return the messages of a request in wire format."""
    sent: list[dict[str, Any]] = build_openai_body(worker.scripted.requests[number])["messages"]
    return sent


@pytest.mark.parametrize("finish", ["length", "stop", "tool_calls"])
@pytest.mark.parametrize("arguments", ['{"query": "la', "lamp", ""])
def test_a_torn_call_leaves_a_chat_that_goes_on(
    alice: User, chat: Chat, now: datetime, work: Work, finish: Any, arguments: str
) -> None:
    call = ToolCallDelta(0, "call_1", "chat_history_search", arguments)
    work(
        ask(alice, chat, now),
        [TextDelta("I look. "), call, Finished(finish)],
        [TextDelta("Nothing."), Finished("stop")],
    )
    worker = work(ask(alice, chat, now, "And?"), [TextDelta("Well."), Finished("stop")])
    sent = messages_of(worker)
    calls = [call for message in sent for call in message.get("tool_calls", ())]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{}]
    assert [m["tool_call_id"] for m in sent if m["role"] == "tool"] == ["call_1"]
    assert Message.objects.order_by("accepted").last().text == "Well."  # type: ignore[union-attr]  # there


def test_fields_of_a_server_go_back_to_its_model_while_its_tools_run(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    script = [
        ReasoningDelta("I should search."),
        ToolCallDelta(0, "call_1", "chat_history_search", '{"query": "lamp"}'),
        ExtraFields(None, {"reasoning_details": [{"text": "x"}]}, "reasoning_content"),
        ExtraFields(0, SIGNED),
        Finished("tool_calls"),
    ]
    worker = work(ask(alice, chat, now), script, [TextDelta("Found."), Finished("stop")])
    (asked,) = (m for m in messages_of(worker) if m.get("tool_calls"))
    assert asked["reasoning_content"] == "I should search."
    assert asked["reasoning_details"] == [{"text": "x"}]
    assert asked["tool_calls"][0]["extra_content"] == SIGNED["extra_content"]
    # The page shows the fields that were sent, and the rebuilt body is identical.
    receipt = Receipt.objects.get(step=2)
    request = sent_request.load_sent_request(receipt, sees_hidden=True)
    shown = [line.text for line in request.lines if line.role == "assistant"]
    assert "I should search." in shown[-1]
    assert "c2ln" in shown[-1]
    assert json.loads(sent_request.build_body_json(request.found))["messages"] == messages_of(
        worker
    )
    # The next question ends the tool loop.
    later = work(ask(alice, chat, now, "And?"), [TextDelta("So."), Finished("stop")])
    assert "c2ln" not in json.dumps(messages_of(later))
    assert "I should search." not in json.dumps(messages_of(later))


def test_another_model_gets_none_of_it(alice: User, chat: Chat, now: datetime, work: Work) -> None:
    async def rename(worker: Any) -> None:
        # An operator renames the model between the call and its results.
        await worker.db(ModelSpec.objects.filter(slug="demo").update, name="other")

    script = [
        ToolCallDelta(0, "call_1", "chat_history_search", '{"query": "lamp"}'),
        ExtraFields(0, SIGNED),
        rename,
        Finished("tool_calls"),
    ]
    worker = work(ask(alice, chat, now), script, [TextDelta("Found."), Finished("stop")])
    assert "c2ln" not in json.dumps(messages_of(worker))

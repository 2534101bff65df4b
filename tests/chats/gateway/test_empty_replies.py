"""Empty replies are returned to clients, which would otherwise repeat their request."""

import uuid
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from chats.providers.base import Finished, ReasoningDelta
from tests.support.gateway_clients import (
    TOOLS,
    USAGE,
    GatewayClient,
    assistant,
    calling,
    result,
    user,
)
from tests.support.gateway_responses import parse_events, parse_response
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

pytestmark = pytest.mark.django_db
CUT = (ReasoningDelta("Hm"), USAGE, Finished("length"))


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_reply_that_its_limit_cut_is_returned_without_a_second_call(
    program: GatewayClient, stream: bool
) -> None:
    answer = program.ask([user("hi")], *CUT, stream=stream)
    assert (answer.status, len(program.requests)) == (200, 1)
    assert (answer.turn.status, answer.turn.error_code) == ("completed", "")
    if stream:
        assert answer.chunks[-1]["choices"][0]["finish_reason"] == "length"
        return
    choice = answer.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "length")
    assert choice["message"]["reasoning_content"] == "Hm"


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_response_is_incomplete(program: GatewayClient, stream: bool) -> None:
    opened = program.open({"model": "demo", "input": "hi", "stream": stream}, path="responses")
    program.work(opened["X-Context-Report-Id"], *CUT)
    answer = program.close(opened)
    assert (answer.status, len(program.requests)) == (200, 1)
    made = parse_events(answer.body)[-1].response if stream else parse_response(answer)
    assert made.status == "incomplete"
    assert made.incomplete_details
    assert made.incomplete_details.reason == "max_output_tokens"


def work_twice(opened: Any, *script: Any) -> ScriptedProvider:
    """Process a turn whose model calls all get the same reply."""
    provider = ScriptedProvider([list(script), list(script)])
    worker: Any = InlineWorker(provider)
    async_to_sync(worker.turn)(uuid.UUID(opened["X-Context-Report-Id"]))
    return provider


def test_an_empty_reply_is_returned_after_one_repetition_and_the_conversation_goes_on(
    program: GatewayClient,
) -> None:
    opened = program.open({"model": "demo", "messages": [user("hi")]})
    provider = work_twice(opened, Finished("stop"))
    answer = program.close(opened)
    assert (answer.status, len(provider.requests)) == (200, 2)
    choice = answer.json["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")
    second = program.ask([user("hi"), choice["message"], user("Are you there?")])
    assert (second.status, second.chat) == (200, answer.chat)
    assert second.headers["X-Context-Decision"] == "continue"
    assert [text for _, text in program.prompt if text] == ["hi", "Are you there?"]


def test_an_empty_end_after_a_tool_result_is_returned(program: GatewayClient) -> None:
    first = program.ask([user("hi")], *calling("a"), tools=TOOLS)
    said = [user("hi"), first.json["choices"][0]["message"], result("a", "Rain")]
    opened = program.open({"model": "demo", "messages": said, "tools": TOOLS})
    work_twice(opened, Finished("stop"))
    answer = program.close(opened)
    assert (answer.status, answer.chat) == (200, first.chat)
    assert answer.json["choices"][0]["message"]["content"] == ""
    third = program.ask([*said, assistant(""), user("And?")], tools=TOOLS)
    assert (third.status, third.chat) == (200, first.chat)


def test_a_break_without_words_is_an_error(program: GatewayClient) -> None:
    opened = program.open({"model": "demo", "messages": [user("hi")]})
    work_twice(opened, Finished("none"))
    answer = program.close(opened)
    assert (answer.status, answer.json["error"]["code"]) == (502, "reply_incomplete")

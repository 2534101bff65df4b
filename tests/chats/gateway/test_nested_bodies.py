"""Bodies and arguments that are nested too deep."""

import json

import pytest

from chats.gateway.body import DEPTH
from chats.gateway.matching.hashes import LEVELS, parse_call_arguments
from chats.providers.anthropic_wire import MOST_LEVELS, build_anthropic_body
from contextpolicy.engine.messages.messages import ToolCallPart, WireMessage
from tests.fakes.calls import asked
from tests.support.gateway_clients import GatewayClient, assistant, call, result, user

pytestmark = pytest.mark.django_db


def nest(levels: int) -> str:
    """Return JSON with this number of nested lists."""
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [DEPTH, 300, 900, 200_000])
@pytest.mark.parametrize("before", ["", '"z": "\\u0000", '])
def test_a_body_that_is_nested_too_deep_is_refused(
    program: GatewayClient, levels: int, before: str
) -> None:
    said = json.dumps([user("hi")])
    body = f'{{{before}"model": "demo", "messages": {said}, "logit_bias": {nest(levels)}}}'
    answer = program.close(program.open(body.encode()))
    assert (answer.status, answer.json["error"]["code"]) == (400, "invalid_json")


def test_a_body_with_the_most_levels_is_accepted(program: GatewayClient) -> None:
    said = json.dumps([user("hi\x00")])
    body = f'{{"model": "demo", "messages": {said}, "logit_bias": {nest(DEPTH - 1)}}}'
    opened = program.open(body.encode())
    program.work(opened["X-Context-Report-Id"])
    assert program.close(opened).status == 200


@pytest.mark.parametrize("levels", [LEVELS, 700, 960])
@pytest.mark.parametrize("text", ["x", r"\u0000"])
def test_arguments_that_are_nested_deep_keep_a_conversation_usable(
    program: GatewayClient, levels: int, text: str
) -> None:
    arguments = f'{{"z": "{text}", "a": {nest(levels)}}}'
    said = [user("Go"), assistant("", call("call_9fk2", arguments)), result("call_9fk2", "ok")]
    first = program.ask(said)
    assert first.status == 200
    second = program.ask([*said, assistant(first.text), user("And?")])
    assert (second.status, second.headers["X-Context-Decision"]) == (200, "continue")


def test_deep_arguments_are_compared_as_text() -> None:
    assert parse_call_arguments(ToolCallPart("a", "f", nest(LEVELS)))[0] == "json"
    assert parse_call_arguments(ToolCallPart("a", "f", nest(LEVELS + 1)))[0] == "text"


def test_deep_arguments_are_a_text_for_claude() -> None:
    arguments = f'{{"a": {nest(MOST_LEVELS)}}}'
    messages = (
        WireMessage("user", "Go"),
        WireMessage("assistant", "", (ToolCallPart("toolu_1", "f", arguments),)),
    )
    body = build_anthropic_body(asked("", messages=messages))
    assert body["messages"][1]["content"][0]["input"] == {"arguments": arguments}

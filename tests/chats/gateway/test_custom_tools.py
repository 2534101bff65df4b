"""Custom tools of chat completions: a function for the model, a text for the client."""

from typing import Any

import pytest

from chats.models import Chat, Message
from chats.providers import registry
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.providers.wire import build_openai_body
from tests.support.gateway_clients import (
    TOOLS,
    Answer,
    GatewayClient,
    assistant,
    call,
    get_client_key,
    result,
    user,
)
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

CODE: dict[str, Any] = {
    "type": "custom",
    "custom": {"name": "run", "description": "Runs code.", "format": {"type": "text"}},
}
CALL = {"id": "c1", "type": "custom", "custom": {"name": "run", "input": "print('é')\n"}}
ARGUMENTS = '{"input": "print(\'é\')\\n"}'
SCRIPT = (ToolCallDelta(0, "c1", "run", ARGUMENTS), Finished("tool_calls"))


def calls_of(answer: Answer) -> list[Any]:
    """Return the tool calls of a reply, whole or from its chunks."""
    if answer.headers["Content-Type"].startswith("application/json"):
        found: list[Any] = answer.json["choices"][0]["message"]["tool_calls"]
        return found
    deltas = [chunk["choices"][0]["delta"] for chunk in answer.chunks]
    return [made for delta in deltas for made in delta.get("tool_calls", ())]


@pytest.mark.parametrize("stream", [False, True])
def test_the_client_gets_the_text_of_the_call(program: GatewayClient, stream: bool) -> None:
    said = [user("Run it")]
    first = program.ask(said, *SCRIPT, tools=[CODE, *TOOLS], stream=stream)
    assert calls_of(first) == [{"index": 0, **CALL} if stream else CALL]
    tools = build_openai_body(program.requests[-1])["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["run", "weather"]
    assert list(tools[0]["function"]["parameters"]["properties"]) == ["input"]
    said += [assistant(None, CALL), result("c1", "é")]
    second = program.ask(said, tools=[CODE], stream=stream)
    assert (second.status, second.headers["X-Context-Decision"]) == (200, "continue")
    sent = build_openai_body(program.requests[-1])["messages"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "run", "arguments": ARGUMENTS}
    assert sent[1]["tool_calls"][0]["type"] == "function"
    assert "custom" not in sent[1]["tool_calls"][0]
    said += [assistant(second.text), user("Thanks")]
    assert program.ask(said, tools=[CODE]).headers["X-Context-Decision"] == "continue"
    assert Chat.objects.count() == 1


def test_functions_keep_their_form(program: GatewayClient) -> None:
    script = (ToolCallDelta(0, "c2", "weather", "{}"), Finished("tool_calls"))
    answer = program.ask([user("Weather?")], *script, tools=[CODE, *TOOLS])
    assert calls_of(answer) == [call("c2", "{}")]


def test_arguments_without_json_are_the_text(program: GatewayClient) -> None:
    script = (ToolCallDelta(0, "c1", "run", "print(1)"), Finished("tool_calls"))
    answer = program.ask([user("Run it")], *script, tools=[CODE])
    assert calls_of(answer)[0]["custom"]["input"] == "print(1)"


def test_a_grammar_is_described(program: GatewayClient) -> None:
    grammar = {"syntax": "lark", "definition": "start: WORD"}
    form = {"type": "grammar", "grammar": grammar}
    tool = {"type": "custom", "custom": {"name": "run", "format": form}}
    choice = {"type": "custom", "custom": {"name": "run"}}
    program.ask([user("Run it")], tools=[tool], tool_choice=choice)
    body = build_openai_body(program.requests[-1])
    assert "start: WORD" in body["tools"][0]["function"]["description"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "run"}}


def test_a_call_in_the_history_of_a_new_chat(program: GatewayClient) -> None:
    said = [user("Run it"), assistant(None, CALL), result("c1", "é")]
    assert program.ask(said, tools=[CODE]).status == 200
    part = Message.objects.get(role="assistant", seq=2).parts[0]
    assert (part["name"], part["arguments"]) == ("run", ARGUMENTS)
    assert "extra" not in part


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"tools": [{"type": "custom"}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": ""}}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": ["x"]}}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": "x", "description": 1}}]}, "tools[0]"),
        ({"tools": [CODE, CODE]}, "tools"),
        (
            {"messages": [user("x"), assistant(None, {**CALL, "custom": {"name": "run"}})]},
            "messages[1].tool_calls[0]",
        ),
    ],
)
def test_invalid_tools_and_calls_are_refused(
    program: GatewayClient, changes: dict[str, Any], param: str
) -> None:
    answer = program.close(program.open({"model": "demo", "messages": [user("hi")], **changes}))
    assert (answer.status, answer.json["error"]["param"]) == (400, param)
    assert not Chat.objects.exists()


def test_they_are_passed_through(program: GatewayClient, monkeypatch: pytest.MonkeyPatch) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([[TextDelta("Ok"), *SCRIPT]])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    body = {"model": "demo", "messages": [user("Run it")], "tools": [CODE]}
    assert calls_of(program.close(program.open(body))) == [CALL]

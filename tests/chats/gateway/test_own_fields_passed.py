"""Server-specific fields pass through the gateway in both directions."""

import json
import re
from typing import Any

import pytest

from chats.gateway.matching import conversation
from chats.gateway.responses import items
from chats.providers import registry
from chats.providers.base import ExtraFields, Finished, ReasoningDelta, TextDelta, ToolCallDelta
from chats.providers.wire import build_openai_body
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import TOOLS, Answer, GatewayClient, result, user
from tests.support.gateway_passthrough import POLICY_OFF
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

SIGNED = {"google": {"thought_signature": "c2ln"}}
DETAILS = [{"type": "reasoning.text", "text": "Hm.", "signature": "s"}]
CALLING = (
    ReasoningDelta("Hm."),
    ToolCallDelta(0, "a", "weather", '{"city": "Oslo"}'),
    ExtraFields(None, {"reasoning_details": DETAILS}, "reasoning_content"),
    ExtraFields(0, {"extra_content": SIGNED}),
    Finished("tool_calls"),
)
FUNCTION: Any = TOOLS[0]["function"]
RESPONSE_TOOLS = [{"type": "function", **FUNCTION}]


class Door:
    """A type of request: an API, whole or streamed, with a policy or as pass-through."""

    def __init__(
        self, program: GatewayClient, *, stream: bool, off: bool, monkeypatch: Any
    ) -> None:
        self.program, self.stream, self.off = program, stream, off
        self.monkeypatch = monkeypatch

    def ask(self, path: str, body: dict[str, Any], *script: Any) -> Answer:
        """Send a request and let the model reply."""
        provider = ScriptedProvider([list(script)])
        if self.off:
            given = lambda *_given, **_named: provider  # noqa: E731  # a stand-in
            self.monkeypatch.setattr(registry, "get_provider", given)
        headers = POLICY_OFF if self.off else {}
        sent = {"model": "demo", "stream": self.stream, **body}
        response = self.program.open(sent, path=path, **headers)
        if response.streaming and not self.off:
            self.program.work(response["X-Context-Report-Id"], *script)
        answer = self.program.close(response)
        assert answer.status == 200, answer.body
        if self.off:
            self.program.requests += provider.requests
        return answer

    @property
    def sent(self) -> list[dict[str, Any]]:
        """Return the messages of the last model request."""
        found: list[dict[str, Any]] = build_openai_body(self.program.requests[-1])["messages"]
        return found


@pytest.fixture(params=[(False, False), (True, False), (False, True), (True, True)],
                ids=["whole", "stream", "whole off", "stream off"])  # fmt: skip
def door(
    request: Any, program: GatewayClient, set_policy: SetPolicy, monkeypatch: pytest.MonkeyPatch
) -> Door:
    """Each combination of streaming and pass-through."""
    stream, off = request.param
    if off:
        set_policy(unmanaged="asked")
    return Door(program, stream=stream, off=off, monkeypatch=monkeypatch)


def reply_in(answer: Answer) -> dict[str, Any]:
    """Return the message of a reply as a client assembles it and sends it again."""
    if answer.headers["Content-Type"].startswith("application/json"):
        message: dict[str, Any] = answer.json["choices"][0]["message"]
        return message
    made: dict[str, Any] = {"role": "assistant", "content": None}
    for chunk in answer.chunks:
        for choice in chunk["choices"]:
            made |= {k: v for k, v in choice["delta"].items() if v}
    for each in made["tool_calls"]:
        del each["index"]
    return made


def output_of(answer: Answer) -> list[dict[str, Any]]:
    """Return the items of a response."""
    if answer.headers["Content-Type"].startswith("application/json"):
        found: list[dict[str, Any]] = answer.json["output"]
        return found
    events = [
        line.removeprefix("data: ") for line in answer.body.splitlines() if line[:5] == "data:"
    ]
    whole = json.loads(events[-1])["response"]["output"]
    done = [json.loads(event) for event in events]
    kept = [event["item"] for event in done if event["type"] == "response.output_item.done"]
    assert kept == whole
    return list(whole)


def assert_given_back(message: dict[str, Any]) -> None:
    """Check that the reply has every field of its server."""
    assert message["reasoning_content"] == "Hm."
    assert message["reasoning_details"] == DETAILS
    (made,) = message["tool_calls"]
    assert made["extra_content"] == SIGNED
    assert made["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}


def test_fields_of_a_chat_completion_go_to_the_program_and_back(door: Door) -> None:
    asked = [user("The weather?")]
    reply = reply_in(door.ask("chat/completions", {"messages": asked, "tools": TOOLS}, *CALLING))
    assert_given_back(reply)
    again = [*asked, reply, result("a", "rain")]
    door.ask("chat/completions", {"messages": again, "tools": TOOLS}, TextDelta("It rains."),
             Finished("stop"))  # fmt: skip
    assert [message["role"] for message in door.sent] == ["user", "assistant", "tool"]
    assert_given_back(door.sent[1])
    later = [*again, {"role": "assistant", "content": "It rains."}, user("And tomorrow?")]
    door.ask("chat/completions", {"messages": later, "tools": TOOLS}, TextDelta("Sun."),
             Finished("stop"))  # fmt: skip
    assert "c2ln" not in json.dumps(door.sent)
    assert "Hm." not in json.dumps(door.sent)


def test_fields_of_a_response_go_to_the_program_and_back(door: Door) -> None:
    asked = [{"role": "user", "content": "The weather?"}]
    body = {"input": asked, "tools": RESPONSE_TOOLS}
    output = output_of(door.ask("responses", body, *CALLING))
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    assert output[1]["extra_content"] == SIGNED
    answered = {"type": "function_call_output", "call_id": "a", "output": "rain"}
    body = {"input": [*asked, *output, answered], "tools": RESPONSE_TOOLS}
    door.ask("responses", body, TextDelta("It rains."), Finished("stop"))
    assert_given_back(door.sent[1])


@pytest.mark.parametrize("question", ["The weather?", "Another question."])
def test_another_model_gets_no_fields(door: Door, demo_model: ModelSpec, question: str) -> None:
    ModelSpec.objects.create(
        slug="second", provider=demo_model.provider, name="second", context_window=64_000
    )
    other, said = {"model": "second", "tools": TOOLS}, (TextDelta("So."), Finished("stop"))
    asked = {"messages": [user("The weather?")], "tools": TOOLS}
    reply = reply_in(door.ask("chat/completions", asked, *CALLING))
    again = [user(question), reply, result("a", "rain")]
    door.ask("chat/completions", {**other, "messages": again}, *said)
    output = output_of(
        door.ask("responses", {"input": "The weather?", "tools": RESPONSE_TOOLS}, *CALLING)
    )
    answered = {"type": "function_call_output", "call_id": "a", "output": "rain"}
    items = [{"role": "user", "content": question}, *output, answered]
    door.ask("responses", {**other, "tools": RESPONSE_TOOLS, "input": items}, *said)
    for sent in map(build_openai_body, (door.program.requests[n] for n in (1, 3))):
        assert sent["model"] == "second"
        assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
        assert not {"c2ln", "Hm.", "context_origin"} & {*re.findall(r"[\w.]+", json.dumps(sent))}


def test_fields_of_other_servers_reasoning_items_are_left_out() -> None:
    said: Any = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "x"},
    ]
    read = items.parse_input_items(said, unseal=lambda _sealed: conversation.Conversation((), ()))
    assert [getattr(part, "extra", "") for part in read.items[1].parts] == ["", ""]


def test_torn_arguments_of_a_program_are_sent_as_an_object(door: Door) -> None:
    torn = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": "'}}
    sent = [
        user("hi"),
        {"role": "assistant", "content": None, "tool_calls": [torn]},
        result("a", "cut"),
    ]
    door.ask("chat/completions", {"messages": sent}, TextDelta("So."), Finished("stop"))
    assert door.sent[1]["tool_calls"][0]["function"]["arguments"] == "{}"

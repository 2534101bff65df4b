"""A reply as the last message: the model continues it, or the request is refused."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import erasure
from chats.models import Chat, Message, PassedOn, PromptText, ProviderAccount, Receipt
from chats.prompt.reconstruction import rebuild_request
from chats.providers import registry
from chats.providers.anthropic_wire import build_anthropic_body
from chats.providers.base import Finished, ReasoningDelta, TextDelta, ToolCallDelta
from chats.providers.wire import build_openai_body
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import (
    TOOLS,
    Answer,
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

BEGUN = '{"city":'
REST = (TextDelta(' "Os'), TextDelta('lo"}'), Finished("stop"))
ASKED = [user("Where?"), assistant(BEGUN)]
CONTINUED: dict[str, Any] = {"continue_final_message": True}


def marked(text: str) -> dict[str, Any]:
    """Return the beginning of a reply, as DeepSeek and Mistral expect it."""
    return {**assistant(text), "prefix": True}


def respond(program: GatewayClient, *script: Any, **body: Any) -> Answer:
    """Send a request to /v1/responses, and let the model reply."""
    response = program.open({"model": "demo", **body}, path="responses")
    if response.streaming:
        program.work(response["X-Context-Report-Id"], *script)
    return program.close(response)


@pytest.mark.parametrize("stream", [False, True])
def test_the_reply_is_stored_whole_and_only_the_rest_is_returned(
    program: GatewayClient, stream: bool
) -> None:
    answer = program.ask(ASKED, *REST, stream=stream, **CONTINUED)
    assert (answer.status, answer.text) == (200, ' "Oslo"}')
    assert program.prompt == [("user", "Where?"), ("assistant", BEGUN)]
    assert list_chat_messages(answer.chat) == [
        (1, "user", "Where?"),
        (2, "assistant", '{"city": "Oslo"}'),
    ]
    body = build_openai_body(program.requests[-1])
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
    assert "prefix" not in body["messages"][-1]
    receipt = Receipt.objects.get()
    assert [segment[0] for segment in receipt.segments][-1] == "prefill"
    assert rebuild_request(receipt).fault == ""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("repeated", [(), (TextDelta('{"ci'), TextDelta('ty":'))])
def test_a_marked_message_is_sent_with_its_mark(
    program: GatewayClient, stream: bool, repeated: tuple[Any, ...]
) -> None:
    # Mistral repeats the beginning, DeepSeek does not.
    answer = program.ask([user("Where?"), marked(BEGUN)], *repeated, *REST, stream=stream)
    assert answer.text == ' "Oslo"}'
    assert build_openai_body(program.requests[-1])["messages"][-1] == marked(BEGUN)
    assert Message.objects.get(role="assistant").text == '{"city": "Oslo"}'


def test_the_conversation_continues_with_the_whole_reply(program: GatewayClient) -> None:
    first = program.ask(ASKED, *REST, **CONTINUED)
    said = [user("Where?"), assistant(BEGUN + first.text), user("Sure?")]
    second = program.ask(said)
    assert (second.chat, second.headers["X-Context-Decision"]) == (first.chat, "continue")
    # The same beginning in a later turn.
    said += [assistant(second.text), user("And then?"), assistant(BEGUN)]
    third = program.ask(said, *REST, **CONTINUED)
    assert third.headers["X-Context-Decision"] == "continue"
    assert program.prompt[-2:] == [("user", "And then?"), ("assistant", BEGUN)]


def test_it_may_follow_a_tool_result(program: GatewayClient) -> None:
    said = [user("Weather?")]
    program.ask(said, *calling("c1"), tools=TOOLS)
    said += [assistant(None, call("c1")), result("c1", "rain"), assistant("It")]
    answer = program.ask(said, TextDelta(" rains"), Finished("stop"), tools=TOOLS, **CONTINUED)
    assert answer.headers["X-Context-Decision"] == "continue"
    assert [role for role, _ in program.prompt] == ["user", "assistant", "tool", "assistant"]
    assert answer.text == " rains"


def test_thoughts_and_calls_are_returned(program: GatewayClient) -> None:
    script = (
        ReasoningDelta("Hm"),
        ToolCallDelta(0, "c1", "weather", "{}"),
        Finished("tool_calls"),
    )
    answer = program.ask(ASKED, *script, tools=TOOLS, **CONTINUED)
    choice = answer.json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["reasoning_content"] == "Hm"


@pytest.mark.parametrize("stream", [False, True])
def test_responses_continue_it_too(program: GatewayClient, stream: bool) -> None:
    items = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": BEGUN}]
    answer = respond(program, *REST, input=items, stream=stream, **CONTINUED)
    response = (
        answer.json if not stream else json.loads(answer.body.split("data: ")[-1])["response"]
    )
    assert response["output"][0]["content"][0]["text"] == ' "Oslo"}'


def anthropic(model: ModelSpec, *, thinking: str = "") -> None:
    """Serve a model through Anthropic's API."""
    ProviderAccount.objects.filter(slug=model.provider).update(kind="anthropic")
    ModelSpec.objects.filter(pk=model.pk).update(thinking=thinking)


def test_anthropic_continues_it_without_a_mark(
    program: GatewayClient, demo_model: ModelSpec
) -> None:
    anthropic(demo_model)
    answer = program.ask(
        [user("Where?"), assistant("In the \n")], TextDelta("north"), Finished("stop")
    )
    assert answer.text == "north"
    last = build_anthropic_body(program.requests[-1])["messages"][-1]
    assert (last["role"], last["content"][0]["text"]) == ("assistant", "In the")


def test_anthropic_with_thinking_refuses_it(program: GatewayClient, demo_model: ModelSpec) -> None:
    anthropic(demo_model, thinking="adaptive")
    assert program.ask(ASKED).json["error"]["code"] == "unsupported_content"


@pytest.mark.parametrize(
    ("messages", "more"),
    [
        (ASKED, {}),
        (ASKED, {"continue_final_message": False}),
        ([*ASKED, system("Be brief.")], CONTINUED),
        ([user("Where?"), assistant("In"), assistant(BEGUN)], CONTINUED),
        ([user("Where?"), assistant("<think>Hm")], CONTINUED),
    ],
)
def test_other_replies_at_the_end_are_refused(
    program: GatewayClient, messages: Any, more: dict[str, Any]
) -> None:
    answer = program.ask(messages, **more)
    assert (answer.status, answer.json["error"]["code"]) == (400, "unsupported_content")
    assert not Chat.objects.exists()


def test_a_beginning_beyond_the_limit_is_refused(
    program: GatewayClient, set_policy: SetPolicy
) -> None:
    set_policy(token_budget=2000, reserve_tokens=300)
    answer = program.ask([user("Where?"), assistant("word " * 5000)], **CONTINUED)
    assert (answer.status, answer.json["error"]["code"]) == (400, "context_length_exceeded")


def test_an_erased_reply_takes_its_beginning_along(program: GatewayClient, alice: User) -> None:
    first = program.ask(ASKED, *REST, **CONTINUED)
    said = [user("Where?"), assistant(BEGUN + first.text), user("And then?"), assistant(BEGUN)]
    program.ask(said, *REST, **CONTINUED)
    assert PromptText.objects.filter(text=BEGUN).count() == 1
    reply = Message.objects.get(seq=2)
    erasure.erase_message(user=alice, message=reply, now=timezone.now())
    assert not PromptText.objects.filter(text=BEGUN).exists()
    # Both prompts had the text, so neither can be rebuilt.
    assert not Receipt.objects.filter(erased_at=None).exists()


@pytest.mark.parametrize("layout", ["A", "B"])
def test_a_text_layout_ends_with_it(
    program: GatewayClient, set_policy: SetPolicy, layout: str
) -> None:
    set_policy(layout=layout, strategy="sliding_window")
    program.ask(ASKED, *REST, **CONTINUED)
    assert program.prompt[-1] == ("assistant", BEGUN)


@pytest.mark.parametrize("stream", [False, True])
def test_it_is_passed_through(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    key = get_client_key(program)
    key.unmanaged = True
    key.save()
    provider = ScriptedProvider([list(REST)])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    body = {"model": "demo", "messages": [user("Where?"), marked(BEGUN)], "stream": stream}
    assert program.close(program.open(body)).text == ' "Oslo"}'
    assert build_openai_body(provider.requests[0])["messages"][-1] == marked(BEGUN)
    assert PassedOn.objects.get().outcome == "ok"


def test_the_same_idempotency_key_returns_the_same_rest(program: GatewayClient) -> None:
    headers = {"Idempotency-Key": "once"}
    program.ask(ASKED, *REST, headers=headers, **CONTINUED)
    body = {"model": "demo", "messages": ASKED, **CONTINUED}
    again = program.close(program.open(body, **headers))
    assert (again.text, again.headers["X-Context-Decision"]) == (' "Oslo"}', "repeat")


def test_an_empty_reply_at_the_end_has_nothing_to_continue(program: GatewayClient) -> None:
    answer = program.ask([user("Where?"), assistant(" ")], **CONTINUED)
    assert answer.status == 200
    assert program.requests[-1].messages[-1].content == "Where?"

"""`n`: several replies to one request, complete, streamed, repeated, stopped and passed through."""

import asyncio
import json
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from chats.models import ApiKey, Branch, Chat, Message, PassedOn, Receipt, Turn
from chats.providers import registry
from chats.providers.base import Finished, ProviderError, TextDelta
from tests.support.gateway_clients import (
    TOOLS,
    USAGE,
    Answer,
    GatewayClient,
    assistant,
    calling,
    user,
)
from tests.support.scripted_worker import ScriptedProvider

pytestmark = pytest.mark.django_db

KEY = {"Idempotency-Key": "one"}


def ask_for(
    program: GatewayClient,
    messages: list[dict[str, Any]],
    *scripts: tuple[Any, ...],
    path: str = "chat/completions",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Answer:
    """Send a request, let the model write each reply, and return the response."""
    body = {"model": "demo", "n": len(scripts), **more}
    if messages:
        body["messages"] = messages
    response = program.open(body, path=path, **(headers or {}))
    for turn_id, script in zip(list_turns(response), scripts, strict=True):
        program.work(turn_id, *script)
    return program.close(response)


def list_turns(response: Any) -> list[str]:
    return str(response["X-Context-Choices"]).split(",")


def say(text: str) -> tuple[Any, ...]:
    return TextDelta(text), USAGE, Finished("stop")


def join_choices(answer: Answer) -> dict[int, str]:
    """Return the texts of a stream's choices."""
    texts: dict[int, str] = {}
    for chunk in answer.chunks:
        for choice in ChatCompletionChunk.model_validate(chunk).choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
    return texts


def test_a_request_gets_several_replies(program: GatewayClient) -> None:
    answer = ask_for(program, [user("Hi")], say("One"), say("Two"), say("Three"))
    whole = ChatCompletion.model_validate(answer.json)
    assert [(c.index, c.message.content, c.finish_reason) for c in whole.choices] == [
        (0, "One", "stop"),
        (1, "Two", "stop"),
        (2, "Three", "stop"),
    ]
    assert whole.usage
    assert (whole.usage.prompt_tokens, whole.usage.total_tokens) == (60, 87)
    # Each reply has its own receipt; the question is stored once.
    assert Receipt.objects.count() == 3
    assert Message.objects.filter(role="user").count() == 1
    chat = Chat.objects.get()
    assert Branch.objects.filter(chat=chat).count() == 3
    assert (
        chat.active_branch_id == Turn.objects.get(pk=whole.id.removeprefix("chatcmpl-")).branch_id
    )


@pytest.mark.parametrize("chosen", ["One", "Two"])
def test_the_conversation_continues_after_any_of_them(program: GatewayClient, chosen: str) -> None:
    ask_for(program, [user("Hi")], say("One"), say("Two"))
    program.ask([user("Hi"), assistant(chosen), user("And?")])
    assert program.prompt == [("user", "Hi"), ("assistant", chosen), ("user", "And?")]
    assert Chat.objects.count() == 1
    # Later requests may ask for several replies again.
    said = [user("Hi"), assistant(chosen), user("And?"), assistant("reply 3"), user("So?")]
    last = ask_for(program, said, say("A"), say("B"))
    assert last.headers["X-Context-Decision"] == "continue"
    assert [text for _, text in program.prompt] == ["Hi", chosen, "And?", "reply 3", "So?"]
    assert Chat.objects.count() == 1


def test_the_replies_are_streamed_with_their_numbers(program: GatewayClient) -> None:
    answer = ask_for(
        program,
        [user("Hi")],
        (TextDelta("O"), TextDelta("ne"), USAGE, Finished("stop")),
        say("Two"),
        stream=True,
        stream_options={"include_usage": True},
    )
    assert join_choices(answer) == {0: "One", 1: "Two"}
    assert len({chunk["id"] for chunk in answer.chunks}) == 1
    ends = [
        c["choices"][0] for c in answer.chunks if c["choices"] and c["choices"][0]["finish_reason"]
    ]
    assert sorted((end["index"], end["finish_reason"]) for end in ends) == [
        (0, "stop"),
        (1, "stop"),
    ]
    usages = [chunk["usage"] for chunk in answer.chunks if chunk.get("usage")]
    assert [usage["prompt_tokens"] for usage in usages] == [40]
    assert answer.body.count("[DONE]") == 1
    assert answer.body.endswith("data: [DONE]\n\n")


def test_replies_with_calls_are_continued(program: GatewayClient) -> None:
    answer = ask_for(program, [user("Hi")], calling("a"), calling("b"), tools=TOOLS)
    calls = [choice["message"]["tool_calls"][0] for choice in answer.json["choices"]]
    said = [
        user("Hi"),
        {"role": "assistant", "content": None, "tool_calls": [calls[1]]},
        {"role": "tool", "tool_call_id": calls[1]["id"], "content": "rain"},
    ]
    program.ask(said, tools=TOOLS)
    assert program.prompt[-1] == ("tool", "rain")
    assert Chat.objects.count() == 1


@pytest.mark.parametrize("stream", [False, True])
def test_the_response_fails_with_one_of_its_replies(program: GatewayClient, stream: bool) -> None:
    answer = ask_for(
        program,
        [user("Hi")],
        (ProviderError("provider_rejected"),),
        (ProviderError("provider_rejected"),),
        stream=stream,
    )
    assert (answer.status, answer.json["error"]["code"]) == (400, "provider_rejected")


def test_a_later_failure_ends_the_stream(program: GatewayClient) -> None:
    answer = ask_for(
        program,
        [user("Hi")],
        say("One"),
        (TextDelta("Tw"), ProviderError("provider_rejected")),
        stream=True,
    )
    assert answer.status == 200
    assert json.loads(answer.body.split("data: ")[-1])["error"]["code"] == "provider_rejected"
    assert "[DONE]" not in answer.body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failed", [0, 1])
def test_a_failed_reply_stops_the_others(program: GatewayClient, failed: int, stream: bool) -> None:
    body = {"model": "demo", "n": 3, "messages": [user("Hi")], "stream": stream}
    response = program.open(body, **KEY)
    made = list_turns(response)
    program.work(made.pop(failed), ProviderError("provider_rejected"))
    Turn.objects.filter(pk=made[0]).update(attempt=1, step=1, partial_text="Two")
    answer = program.close(response)
    assert "provider_rejected" in answer.body
    assert [Turn.objects.get(pk=pk).status for pk in made] == ["stopped", "stopped"]
    # A repeated request gets all replies.
    response = program.open(body, **KEY)
    for turn_id, text in zip(list_turns(response), ("One", "Two", "Three"), strict=True):
        program.work(turn_id, *say(text))
    again = program.close(response)
    assert all(f'"{text}"' in again.body for text in ("One", "Two", "Three"))


def test_a_restarted_reply_stops_no_other(program: GatewayClient) -> None:
    """The repeated request gets all replies, also if the restarted one has ended."""
    body = {"model": "demo", "n": 2, "messages": [user("Hi")], "stream": True}
    response = program.open(body, **KEY)
    made = list_turns(response)
    Turn.objects.filter(pk=made[0]).update(attempt=1, step=1, partial_text="A longer start")
    pieces = response.streaming_content

    async def read() -> bytes:
        read = [await anext(pieces)]
        await sync_to_async(program.work)(made[0], *say("New"))
        return b"".join([*read, *[piece async for piece in pieces]])

    assert b"reply_restarted" in async_to_sync(read)()
    assert [Turn.objects.get(pk=pk).status for pk in made] == ["completed", "queued"]


def test_a_repeated_request_gets_the_same_replies(program: GatewayClient) -> None:
    first = ask_for(program, [user("Hi")], say("One"), say("Two"), headers=KEY)
    body = {"model": "demo", "n": 2, "messages": [user("Hi")]}
    again = program.close(program.open(body, **KEY))
    assert again.headers["X-Context-Decision"] == "repeat"
    assert again.json == first.json
    assert Turn.objects.count() == 2


@pytest.mark.parametrize("failed", [0, 1])
def test_a_repeated_request_writes_only_a_failed_reply_again(
    program: GatewayClient, failed: int
) -> None:
    scripts: list[tuple[Any, ...]] = [say("One"), say("Two")]
    scripts[failed] = (ProviderError("provider_rejected"),)
    ask_for(program, [user("Hi")], *scripts, headers=KEY)
    body = {"model": "demo", "n": 2, "messages": [user("Hi")]}
    response = program.open(body, **KEY)
    made = list_turns(response)
    program.work(made[failed], *say("Again"))
    again = program.close(response)
    expected = ["One", "Two"]
    expected[failed] = "Again"
    assert [c["message"]["content"] for c in again.json["choices"]] == expected
    assert Turn.objects.count() == 3
    assert Message.objects.filter(role="user").count() == 1


def test_a_client_that_leaves_stops_all_replies(program: GatewayClient) -> None:
    body = {"model": "demo", "n": 2, "messages": [user("Hi")], "stream": True}
    response = program.open(body)
    begin = sync_to_async(Turn.objects.filter(pk=list_turns(response)[1]).update)

    async def read() -> None:
        pieces = response.streaming_content
        await begin(attempt=1, step=1, partial_text="Two")
        assert b"Two" in await anext(pieces)
        reading = asyncio.create_task(anext(pieces))
        await asyncio.sleep(0.05)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    async_to_sync(read)()
    assert {turn.status for turn in Turn.objects.all()} == {"stopped"}


def test_completions_have_several_choices(program: GatewayClient) -> None:
    answer = ask_for(
        program, [], say("One"), say("Two"), path="completions", prompt="Hi", echo=True
    )
    whole = Completion.model_validate(answer.json)
    assert [(c.index, c.text) for c in whole.choices] == [(0, "HiOne"), (1, "HiTwo")]


def test_passed_through_requests_get_a_call_for_each_choice(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ScriptedProvider([list(say("One")), list(say("Two"))])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    ApiKey.objects.update(unmanaged=True)
    body = {"model": "demo", "n": 2, "messages": [user("Hi")]}
    answer = program.close(program.open(body))
    texts = sorted(choice["message"]["content"] for choice in answer.json["choices"])
    assert (texts, len(provider.requests)) == (["One", "Two"], 2)
    assert answer.json["usage"]["prompt_tokens"] == 40
    assert PassedOn.objects.filter(outcome="ok").count() == 2
    assert not Chat.objects.exists()


@pytest.mark.parametrize("value", [0, 9, -1, True, "2", 1.5])
def test_other_numbers_are_refused(program: GatewayClient, value: Any) -> None:
    for path, said in (
        ("chat/completions", {"messages": [user("x")]}),
        ("completions", {"prompt": "x"}),
    ):
        answer = program.close(program.open({"model": "demo", "n": value, **said}, path=path))
        error = answer.json["error"]
        assert (answer.status, error["param"], error["code"]) == (400, "n", "invalid_value")
    assert not Chat.objects.exists()


def test_a_refused_choice_stores_nothing(program: GatewayClient, settings: Any) -> None:
    settings.GATEWAY_TURNS_PER_KEY = 2
    refused = program.close(program.open({"model": "demo", "n": 3, "messages": [user("x")]}))
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_runs")
    assert not Turn.objects.exists()
    assert not Chat.objects.exists()

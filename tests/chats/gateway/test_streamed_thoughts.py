"""Reasoning is streamed to the client in both formats, with and without a chat."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pytest_django import Settings

from chats.gateway.held_response import WaitingHead
from chats.gateway.passthrough import forward
from chats.gateway.relay import Relay
from chats.gateway.responses.response_form import ResponseForm
from chats.gateway.wire import Chunks, Reply
from chats.ground.live import Frame
from chats.models import Message
from chats.providers.base import Finished, ReasoningDelta, TextDelta
from chats.streams import connection
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import GatewayClient, assistant, user
from tests.support.gateway_passthrough import POLICY_OFF, ScriptModel
from tests.support.gateway_responses import parse_events

pytestmark = pytest.mark.django_db

THINKING = (
    ReasoningDelta("Flour, "),
    ReasoningDelta("water."),
    TextDelta("Bread"),
    TextDelta("."),
    Finished("stop"),
)
PATHS = ("chat/completions", "responses")


def body_for(path: str) -> dict[str, Any]:
    """Return a streaming request."""
    said = {"messages": [user("What?")]} if path == PATHS[0] else {"input": "What?"}
    return {"model": "demo", "stream": True, **said}


def order_of(body: str) -> list[tuple[str, str]]:
    """Return the order of reasoning and text in a stream."""
    found: list[tuple[str, str]] = []
    for block in body.split("\n\n"):
        data = block.partition("data: ")[2]
        if not data.startswith("{"):
            continue
        told = json.loads(data)
        if told.get("choices"):
            delta = told["choices"][0]["delta"]
            found += [
                (name, delta[name]) for name in ("reasoning_content", "content") if delta.get(name)
            ]
        elif str(told.get("type")).endswith(("summary_text.delta", "output_text.delta")):
            kind = "content" if "output_text" in told["type"] else "reasoning_content"
            found.append((kind, told["delta"]))
    return found


@pytest.mark.parametrize("path", PATHS)
def test_thoughts_come_before_the_text_and_once(program: GatewayClient, path: str) -> None:
    response = program.open(body_for(path), path=path)
    program.work(response["X-Context-Report-Id"], *THINKING)
    said = order_of(program.close(response).body)
    assert said == [("reasoning_content", "Flour, water."), ("content", "Bread.")]


@pytest.mark.parametrize("path", PATHS)
def test_the_policy_off_streams_thoughts_too(
    program: GatewayClient, model: ScriptModel, set_policy: SetPolicy, path: str
) -> None:
    set_policy(unmanaged="asked")
    model(*THINKING)
    said = order_of(program.close(program.open(body_for(path), path=path, **POLICY_OFF)).body)
    assert "".join(text for kind, text in said if kind == "reasoning_content") == "Flour, water."
    assert "".join(text for kind, text in said if kind == "content") == "Bread."
    assert [kind for kind, _ in said] == sorted((kind for kind, _ in said), reverse=True)
    assert not Message.objects.exists()


@pytest.mark.parametrize("path", PATHS)
def test_thoughts_that_a_tag_of_another_name_ends_come_before_the_text(
    program: GatewayClient, path: str
) -> None:
    response = program.open(body_for(path), path=path)
    said = [TextDelta(piece) for piece in ("<think>Flour", ", water.</thin", "king>\n\nBread.")]
    program.work(response["X-Context-Report-Id"], *said, Finished("stop"))
    streamed = order_of(program.close(response).body)
    assert streamed == [("reasoning_content", "Flour, water."), ("content", "Bread.")]
    assert Message.objects.get(role="assistant").text == "Bread."


@pytest.mark.parametrize("path", PATHS)
def test_a_closing_tag_before_the_answer_is_not_streamed(program: GatewayClient, path: str) -> None:
    response = program.open(body_for(path), path=path)
    said = [TextDelta(piece) for piece in ("</th", "ink>\n\n", "Bread.")]
    program.work(response["X-Context-Report-Id"], *said, Finished("stop"))
    body = program.close(response).body
    assert order_of(body) == [("content", "Bread.")]
    assert "error" not in body.replace('"error": null', "").replace('"error":null', "")


def test_what_is_passed_on_is_sent_with_each_piece() -> None:
    form = Chunks(id="c", model="m", created=0, include_usage=False)
    head = Reply("c", "m", 0, "", (), "", {})
    spoken: Any = forward.Spoken(request=None, form=form, is_stream=True, head=head, key_id=None)  # type: ignore[arg-type]  # neither is read here
    voice = forward.Voice(spoken)
    voice.say("reasoning", "Flour", 0)
    assert order_of(voice.more()) == [("reasoning_content", "Flour")]
    voice.say("reasoning", ", water.", 5)
    voice.say("text", "Bread", 0)
    assert order_of(voice.more()) == [("reasoning_content", ", water."), ("content", "Bread")]


class Thinking:
    """A bus with two reasoning frames of a running turn."""

    lagged = False

    def __init__(self) -> None:
        frames = (Frame("reasoning", 1, 1, 0, "Flour, "), Frame("reasoning", 1, 1, 7, "water."))
        self.frames = deque(frames)

    @asynccontextmanager
    async def follow(self, key: str) -> AsyncIterator["Thinking"]:
        """Open a subscription, as the hub does."""
        yield self

    async def next(self, *, seconds: float) -> Frame | None:
        """Return the next frame, as a subscription does."""
        await asyncio.sleep(0)
        return self.frames.popleft() if self.frames else None


@pytest.mark.parametrize("path", PATHS)
def test_the_first_thought_is_sent_while_the_model_still_thinks(
    program: GatewayClient, path: str, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hub = Thinking()
    monkeypatch.setattr(connection.STREAMS, "hub", lambda: hub)
    response = program.open(body_for(path), path=path)

    async def first() -> str:
        said = ""
        pieces = response.streaming_content
        async for piece in pieces:
            said += piece.decode()
            if "water" in said:
                break
        await pieces.aclose()
        return said

    said = async_to_sync(first)()
    assert "".join(text for _, text in order_of(said)) == "Flour, water."
    assert {kind for kind, _ in order_of(said)} == {"reasoning_content"}


def test_the_events_of_a_thinking_response_have_the_form_of_openai(program: GatewayClient) -> None:
    response = program.open(body_for("responses"), path="responses")
    program.work(response["X-Context-Report-Id"], *THINKING)
    found = parse_events(program.close(response).body)
    assert [event.type for event in found] == [
        "response.created", "response.in_progress",
        "response.output_item.added", "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
        "response.output_item.added", "response.content_part.added", "response.output_text.delta",
        "response.output_item.done",
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        "response.completed",
    ]  # fmt: skip
    done = [event for event in found if event.type == "response.output_item.done"]
    assert [(event.output_index, event.item.type) for event in done] == [
        (0, "reasoning"),
        (1, "message"),
    ]
    assert found[-1].response.output == [event.item for event in done]
    texts = [event for event in found if event.type.startswith("response.output_text")]
    assert {event.output_index for event in texts} == {1}


def test_thoughts_after_the_first_text_are_in_the_item_at_the_end() -> None:
    form = ResponseForm(id="resp_1", created=0, echo={"model": "m"})
    said = form.opening() + form.text("Bread.") + form.thoughts("Late.")
    assert "Late" not in said
    reply = Reply("resp_1", "m", 0, "Bread.", (), "stop", {}, thoughts="Late.")
    whole = [
        json.loads(block.partition("data: ")[2])
        for block in form.ending(reply).strip().split("\n\n")
    ]
    output = whole[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "reasoning"]
    assert output[1]["summary"][0]["text"] == "Late."


ANSWERS = ["<think>Flour.</think>Bread.", "Flour.\n</think>\n\nBread."]
UNOPENED = [ANSWERS[1], "Flour.[/THINK]Bread.", "Flour.◁/think▷Bread."]


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("said", ANSWERS, ids=["tags", "unopened"])
@pytest.mark.parametrize("path", PATHS)
def test_thoughts_in_the_text_become_reasoning(
    program: GatewayClient, path: str, said: str, is_stream: bool
) -> None:
    response = program.open({**body_for(path), "stream": is_stream}, path=path)
    script = (*(TextDelta(letter) for letter in said), Finished("stop"))
    program.work(response["X-Context-Report-Id"], *script)
    body = program.close(response).body
    assert "think>" not in body
    assert "Bread." in body
    parts = Message.objects.get(role="assistant").parts
    assert [(p["type"], p["text"]) for p in parts] == [("reasoning", "Flour."), ("text", "Bread.")]


@pytest.mark.parametrize("said", ANSWERS, ids=["tags", "unopened"])
def test_a_client_may_send_a_reply_back_with_its_thoughts(
    program: GatewayClient, said: str
) -> None:
    first = program.ask([user("What?")], TextDelta(said), Finished("stop"))
    for number, text in enumerate([said, first.text, "<thinking>Flour</thinking>Bread."]):
        again = program.ask([user("What?"), assistant(text), user(f"Why {number}?")])
        assert again.chat == first.chat
        assert program.prompt[1] == ("assistant", "Bread.")
    # A history that this server did not write.
    program.ask([user("Old?"), assistant(said), user("And?")])
    assert program.prompt[1] == ("assistant", "Bread.")


@pytest.mark.parametrize(
    ("said", "sent"), [(said, sent) for said in UNOPENED for sent in range(1, len(said) + 1)]
)
def test_a_stream_of_unopened_thoughts_ends_with_the_answer(said: str, sent: int) -> None:
    form = Chunks(id="c", model="m", created=0, include_usage=False)
    asker: Any = SimpleNamespace(form=form, is_stream=True, key_id=None, row=None, model="m")

    async def told() -> str:
        relay = Relay(asker, WaitingHead())
        first = relay.more(said[:sent])
        relay.pieces = [said[:sent]]
        reply = Reply("c", "m", 0, "Bread.", (), "stop", {}, "Flour.")
        rest = relay.rest_of_unopened(reply)
        assert rest is not None
        return "".join(text for _, text in order_of(first + relay.more(rest)))

    whole = async_to_sync(told)()
    assert whole.startswith("Flour.")
    assert whole.endswith("Bread.")
    assert whole.count("Bread.") == 1

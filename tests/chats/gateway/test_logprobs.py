"""Log probabilities in each form of `/v1`: asked for, streamed, repeated, and never kept."""

import asyncio
import json
import uuid
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.actions import erasure
from chats.background.due_jobs import DUE_JOBS
from chats.gateway import relay
from chats.ground.live import Frame
from chats.models import Message, ProviderAccount, Receipt, ReplyLogprobs
from chats.providers import registry
from chats.providers.base import Finished, TextDelta, TokenLogprobs
from chats.streams import connection, follow
from chats.streams.follow import Beginning, TurnRow
from chats.turns.attempt_state import SHUTDOWN
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import SetPolicy
from tests.support.gateway_clients import USAGE, Answer, GatewayClient, assistant, user
from tests.support.gateway_passthrough import POLICY_OFF
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

pytestmark = pytest.mark.django_db

MARK = "message.output_text.logprobs"
CHAT, TEXT, RESPONSES = "chat/completions", "completions", "responses"
ASKED: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [user("Hello")], "logprobs": True, "top_logprobs": 2},
    TEXT: {"prompt": "Hello", "logprobs": 2},
    RESPONSES: {"input": "Hello", "include": [MARK], "top_logprobs": 2},
}
KEY = {"Idempotency-Key": "logprobs"}


def entry(token: str) -> dict[str, Any]:
    """Return a provider's entry. The numbers must come back unchanged."""
    own = {"token": token, "logprob": -0.012345678901234567, "bytes": list(token.encode())}
    return {**own, "top_logprobs": [own, {"token": f"{token}?", "logprob": -4.5, "bytes": None}]}


def script(*tokens: str) -> tuple[Any, ...]:
    """Return the events of a reply with an entry for each token."""
    pieces = [each for word in tokens for each in (TokenLogprobs([entry(word)]), TextDelta(word))]
    return (*pieces, USAGE, Finished("stop"))


THINKING = ("<think>", "Hm", "</think>", "\n\n", "Good", " day", ".")
GOOD = script("Good", " day", ".")
TOKENS = ["Good", " day", "."]


def ask(program: GatewayClient, path: str, *said: Any, headers: Any = None, **more: Any) -> Answer:
    """Send a request for log probabilities and let the model reply."""
    response = program.open({"model": "demo", **ASKED[path], **more}, path=path, **(headers or {}))
    if response.streaming and "X-Context-Report-Id" in response:
        program.work(response["X-Context-Report-Id"], *(said or GOOD))
    return program.close(response)


def entries_in(answer: Answer, path: str) -> list[Any]:
    """Return the entries of a reply in the form of its endpoint, complete or from its chunks."""
    is_stream = "event-stream" in answer.headers["Content-Type"]
    if path == RESPONSES and is_stream:
        lines = [line[6:] for line in answer.body.split("\n") if line.startswith("data: ")]
        events = [json.loads(line) for line in lines]
        deltas = [e for e in events if e["type"] == "response.output_text.delta"]
        found = [each for event in deltas for each in event["logprobs"]]
        done = next(e for e in events if e["type"] == "response.output_text.done")
        item = next(e["item"] for e in events if e["type"] == "response.output_item.done"
                    and e["item"]["type"] == "message")  # fmt: skip
        assert found == done["logprobs"] == item["content"][0]["logprobs"]
        return found
    if path == RESPONSES:
        message = next(i for i in answer.json["output"] if i["type"] == "message")
        return list(message["content"][0]["logprobs"])
    choices = [c["choices"][0] for c in (answer.chunks if is_stream else [answer.json])]
    told = [choice["logprobs"] for choice in choices if choice["logprobs"]]
    if path == CHAT:
        assert all(each["refusal"] is None for each in told)
        return [each for one in told for each in one["content"]]
    return [
        {"token": token, "logprob": logprob, "top": top, "at": at}
        for one in told
        for token, logprob, top, at in zip(*one.values(), strict=True)
    ]


def expected(path: str) -> list[Any]:
    """Return the entries of `GOOD` in the form of an endpoint."""
    if path != TEXT:
        return [entry(token) for token in TOKENS]
    return [
        {"token": token, "logprob": -0.012345678901234567, "at": at,
         "top": {token: -0.012345678901234567, f"{token}?": -4.5}}
        for token, at in zip(TOKENS, (0, 4, 8), strict=True)
    ]  # fmt: skip


@pytest.mark.parametrize("said", [GOOD, script(*THINKING)], ids=["text", "thinking"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_the_entries_of_the_text_come_back_unchanged(
    program: GatewayClient, path: str, stream: bool, said: Any
) -> None:
    answer = ask(program, path, *said, stream=stream)
    assert entries_in(answer, path) == expected(path)
    parameters = program.requests[-1].parameters
    assert parameters == {"logprobs": True, "top_logprobs": 2}
    assert Message.objects.get(role="assistant").text == "Good day."
    assert "X-Context-Logprobs" not in answer.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_a_pass_through_request_gets_them_too(
    program: GatewayClient,
    monkeypatch: pytest.MonkeyPatch,
    set_policy: SetPolicy,
    path: str,
    stream: bool,
) -> None:
    set_policy(unmanaged="asked")
    provider = ScriptedProvider([list(GOOD)])
    monkeypatch.setattr(registry, "get_provider", lambda *_args, **_named: provider)
    answer = ask(program, path, headers=POLICY_OFF, stream=stream)
    assert entries_in(answer, path) == expected(path)
    assert not ReplyLogprobs.objects.exists()


class Replay:
    """A bus with the frames of a worker, as they arrive in a web process."""

    lagged = False

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = deque(
            Frame.from_fields({name: str(said) for name, said in frame.fields().items()}, key="k")
            for frame in frames
        )

    @asynccontextmanager
    async def follow(self, key: str) -> AsyncIterator["Replay"]:
        """Open a subscription, as the hub does."""
        yield self

    async def next(self, *, seconds: float) -> Frame | None:
        """Return the next frame, as a subscription does."""
        return self.frames.popleft() if self.frames else None


@pytest.mark.parametrize("lost", [(), (1,), (2,), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("path", ASKED)
def test_a_stream_has_each_entry_once_and_in_order_if_frames_are_lost(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch, path: str, lost: tuple[int, ...]
) -> None:
    response = program.open({"model": "demo", **ASKED[path], "stream": True}, path=path)
    worker = InlineWorker(ScriptedProvider([list(GOOD)]))
    async_to_sync(worker.turn)(uuid.UUID(response["X-Context-Report-Id"]))
    texts = [frame for frame in worker.frames if frame.kind == "text"]
    assert len(texts) == len(TOKENS)
    frames = [f for f in worker.frames if f not in [texts[place] for place in lost]]
    monkeypatch.setattr(connection.STREAMS, "hub", lambda: Replay(frames))
    answer = program.close(response)
    assert entries_in(answer, path) == expected(path)
    if path == CHAT and not lost:
        pieces = [c["choices"][0] for c in answer.chunks if c["choices"][0]["logprobs"]]
        told = [[each["token"] for each in piece["logprobs"]["content"]] for piece in pieces]
        assert [piece["delta"]["content"] for piece in pieces] == TOKENS
        assert told == [[token] for token in TOKENS]


@pytest.mark.parametrize("path", ASKED)
def test_text_from_the_row_is_followed_by_its_entries_at_the_end(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    response = program.open({"model": "demo", **ASKED[path], "stream": True}, path=path)
    worker = InlineWorker(ScriptedProvider([list(GOOD)]))
    async_to_sync(worker.turn)(uuid.UUID(response["X-Context-Report-Id"]))
    # The second frame is lost, and the row has its text.
    frames = [frame for frame in worker.frames if frame.text != " day"]
    monkeypatch.setattr(connection.STREAMS, "hub", lambda: Replay(frames))
    rows = [TurnRow("running", is_over=False, beginning=Beginning(1, 1, 0), text="Good day")]
    read = follow.read_row_with_thoughts
    monkeypatch.setattr(
        relay, "read_row_with_thoughts", lambda turn_id: rows.pop() if rows else read(turn_id)
    )
    answer = program.close(response)
    assert entries_in(answer, path) == expected(path)
    if path == CHAT:
        choices = [c["choices"][0] for c in answer.chunks]
        assert [c["delta"].get("content") for c in choices] == ["", *TOKENS, "", None]
        told = [len((c["logprobs"] or {"content": []})["content"]) for c in choices]
        assert told == [0, 1, 0, 0, 2, 0]


def test_frames_that_are_sent_together_keep_their_entries() -> None:
    first = Frame("text", 1, 1, 0, "Good", logprobs='[0,0,{"token":"Good"}]')
    assert first.absorbs(Frame("text", 1, 1, 4, " ", logprobs=""))
    assert first.absorbs(Frame("text", 1, 1, 5, "day", logprobs='[1,5,{"token":"day"}]'))
    assert (first.text, first.logprobs) == (
        "Good day",
        '[0,0,{"token":"Good"}],[1,5,{"token":"day"}]',
    )
    assert "l" not in Frame("text", 1, 1, 0, "Good").fields()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_thinking_without_an_opening_tag_takes_its_entries_along(
    program: GatewayClient, path: str, stream: bool
) -> None:
    said = script("Hm", "</think>", "\n\n", "Good", " day", ".")
    assert entries_in(ask(program, path, *said, stream=stream), path) == expected(path)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_a_provider_without_any_gives_null(program: GatewayClient, path: str, stream: bool) -> None:
    answer = ask(program, path, TextDelta("Good day."), Finished("stop"), stream=stream)
    assert entries_in(answer, path) == []
    if path != RESPONSES and not stream:
        assert answer.json["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("path", ASKED)
def test_a_request_without_the_field_gets_none_and_stores_none(
    program: GatewayClient, path: str
) -> None:
    without: dict[str, Any] = {"logprobs": None, "top_logprobs": None, "include": None}
    answer = ask(program, path, **without)
    assert entries_in(answer, path) == []
    assert program.requests[-1].parameters == {}
    assert not ReplyLogprobs.objects.exists()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ASKED)
def test_a_repeated_request_gets_the_same_entries(
    program: GatewayClient, path: str, stream: bool
) -> None:
    first = ask(program, path, headers=KEY, stream=stream)
    body = {"model": "demo", **ASKED[path], "stream": stream}
    again = program.close(program.open(body, path=path, **KEY))
    assert again.headers["X-Context-Decision"] == "repeat"
    assert entries_in(again, path) == entries_in(first, path) == expected(path)


def test_a_request_that_is_run_again_has_the_entries_of_its_own_reply(
    program: GatewayClient,
) -> None:
    body = {"model": "demo", **ASKED[CHAT], "stream": True}
    waiting = program.open(body, path=CHAT, **KEY)
    program.work(waiting["X-Context-Report-Id"], *script("Bad")[:2], Finished("none"))
    assert not ReplyLogprobs.objects.exists()
    broken = program.close(waiting)
    assert "error" in broken.body
    again = ask(program, CHAT, headers=KEY, stream=True)
    assert again.headers["X-Context-Decision"] == "retry"
    assert entries_in(again, CHAT) == expected(CHAT)


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_restarted_worker_mixes_no_entries(
    program: GatewayClient, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    body = {"model": "demo", **ASKED[CHAT], "stream": True}
    response = program.open(body, path=CHAT, **KEY)
    turn_id = uuid.UUID(response["X-Context-Report-Id"])

    async def shut_down(worker: InlineWorker) -> None:
        worker.runs[turn_id].interrupt(SHUTDOWN)
        await asyncio.sleep(0)

    frames: list[Frame] = []
    for said in ([*script("Bad")[:2], shut_down], list(GOOD)):
        worker = InlineWorker(ScriptedProvider([said]))
        async_to_sync(worker.turn)(turn_id)
        frames += worker.frames
    seen = [f for f in frames if is_seen or (f.attempt, f.kind) != (1, "text")]
    assert len(seen) == len(frames) - (not is_seen)
    monkeypatch.setattr(connection.STREAMS, "hub", lambda: Replay(seen))
    answer = program.close(response)
    if is_seen:
        # Sent text cannot be withdrawn, so the client repeats the request.
        assert "reply_restarted" in answer.body
        answer = program.close(program.open(body, path=CHAT, **KEY))
    assert entries_in(answer, CHAT) == expected(CHAT)


def test_a_beginning_that_the_client_wrote_has_no_entries(program: GatewayClient) -> None:
    said = [user("Hello"), {**assistant("Good"), "prefix": True}]
    for stream in (False, True):
        repeated = ask(program, CHAT, messages=said, stream=stream)
        continued = ask(program, CHAT, *script(" day", "."), messages=said, stream=stream)
        assert entries_in(repeated, CHAT) == entries_in(continued, CHAT) == expected(CHAT)[1:]
    echoed = ask(program, TEXT, echo=True).json["choices"][0]
    assert echoed["text"] == "HelloGood day."
    assert echoed["logprobs"]["text_offset"] == [5, 9, 13]


def test_entries_that_stop_are_announced(program: GatewayClient) -> None:
    other = ask(program, CHAT, TokenLogprobs([entry("Bad")]), *GOOD[1:2], Finished("stop"))
    assert entries_in(other, CHAT) == []
    assert other.headers["X-Context-Logprobs"] == "partial"
    answer = ask(program, CHAT, *GOOD[:2], TextDelta(" day."), Finished("stop"))
    assert entries_in(answer, CHAT) == expected(CHAT)[:1]
    assert answer.headers["X-Context-Logprobs"] == "partial"


def test_legacy_completions_without_alternatives(program: GatewayClient) -> None:
    answer = ask(program, TEXT, logprobs=0)
    assert program.requests[-1].parameters == {"logprobs": True}
    told = answer.json["choices"][0]["logprobs"]
    assert (told["tokens"], told["top_logprobs"]) == (TOKENS, None)


@pytest.mark.parametrize("stream", [False, True])
def test_a_retrieved_response_has_them_for_a_day(program: GatewayClient, stream: bool) -> None:
    made = ask(program, RESPONSES, stream=stream)
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    address = f"/v1/responses/resp_{made.turn.pk.hex}"
    stored = client.get(address)
    assert stored.json()["output"][0]["content"][0]["text"] == "Good day."
    assert stored.json()["output"][0]["content"][0]["logprobs"] == entries_in(made, RESPONSES)
    assert entries_in(made, RESPONSES) == expected(RESPONSES)
    assert "X-Context-Logprobs" not in stored.headers
    ReplyLogprobs.objects.update(is_partial=True)
    assert client.get(address).headers["X-Context-Logprobs"] == "partial"
    DUE_JOBS["old_logprobs"](timezone.now() + timedelta(hours=25))
    stored = client.get(address)
    assert stored.json()["output"][0]["content"][0]["logprobs"] == []
    assert "X-Context-Logprobs" not in stored.headers


def test_a_response_without_them_is_retrieved_without_them(program: GatewayClient) -> None:
    made = ask(program, RESPONSES, include=None, top_logprobs=None)
    client = Client(headers={"Authorization": f"Bearer {program.secret}"})
    stored = client.get(f"/v1/responses/{made.json['id']}").json()
    assert stored["output"] == made.json["output"]
    assert stored["output"][0]["content"][0]["logprobs"] == []


def test_they_are_in_no_message_receipt_or_event_and_gone_after_a_day(
    program: GatewayClient,
) -> None:
    answer = ask(program, CHAT)
    kept = [
        *Message.objects.values(),
        *Receipt.objects.values(),
        *AuditEvent.objects.values(),
        answer.turn.__dict__,
    ]
    assert "top_logprobs" not in repr([{**row, "client": None} for row in kept])
    assert "0.0123" not in repr(kept)
    later = timezone.now()
    assert DUE_JOBS["old_logprobs"](later + timedelta(hours=23)) == 0
    assert ReplyLogprobs.objects.count() == 1
    assert DUE_JOBS["old_logprobs"](later + timedelta(hours=25)) == 1
    assert not ReplyLogprobs.objects.exists()


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_an_erased_message_takes_them_along(program: GatewayClient, alice: User, role: str) -> None:
    ask(program, CHAT)
    erasure.erase_message(user=alice, message=Message.objects.get(role=role), now=timezone.now())
    assert not ReplyLogprobs.objects.exists()


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (CHAT, {"logprobs": 3}, "logprobs"),
    (CHAT, {"logprobs": "yes"}, "logprobs"),
    (CHAT, {"logprobs": None}, "top_logprobs"),
    *((path, {"top_logprobs": value}, "top_logprobs")
      for path in (CHAT, RESPONSES) for value in (-1, 21, True, "2", 1.5)),
    *((TEXT, {"logprobs": value}, "logprobs") for value in (-1, 21, True, "2", 1.5)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "changes", "param"), WRONG)
def test_a_value_out_of_range_is_refused(
    program: GatewayClient, path: str, changes: dict[str, Any], param: str
) -> None:
    error = ask(program, path, **changes).json["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
    assert not Message.objects.exists()


@pytest.mark.parametrize(
    ("path", "changes"), [(TEXT, {"top_logprobs": 2}), (RESPONSES, {"logprobs": True})]
)
def test_a_field_of_another_endpoint_is_refused(
    program: GatewayClient, path: str, changes: dict[str, Any]
) -> None:
    error = ask(program, path, **changes).json["error"]
    assert (error["param"], error["code"]) == (*changes, "unsupported_parameter")


@pytest.mark.parametrize(
    ("path", "param"), [(CHAT, "logprobs"), (TEXT, "logprobs"), (RESPONSES, "include")]
)
def test_anthropic_s_interface_has_none(
    program: GatewayClient, demo_model: ModelSpec, path: str, param: str
) -> None:
    ProviderAccount.objects.filter(slug=demo_model.provider).update(kind="anthropic")
    answer = ask(program, path)
    error = answer.json["error"]
    assert (answer.status, error["param"], error["code"]) == (400, param, "unsupported_parameter")
    assert not Message.objects.exists()

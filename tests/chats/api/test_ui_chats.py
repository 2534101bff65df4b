"""The UI message protocol of `useChat`: requests, lists, and the chunks of a stream."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from chats.actions.erasure import erase_message
from chats.actions.lifecycle import create_chat
from chats.ground.live import Frame
from chats.models import Branch, Chat, Message, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.streams.follow import Beginning, Delta, Done, Reshaped, Snapshot, Thoughts, TurnRow
from chats.streams.ui_messages import ChunkEncoder
from tests.chats.api.programs import MakeProgram, Program
from tests.support.error_codes import read_status_and_code
from tests.support.live_events import ScriptedBus
from tests.support.streamed_responses import read_stream
from tests.support.ui_streams import (
    UI_CHATS,
    build_user_message,
    describe_chunks,
    join_text_chunks,
    parse_chunks,
    read_chunks,
)

Answer = Callable[..., Turn]


def newest() -> Turn:
    """Return the newest turn."""
    return Turn.objects.order_by("-queued_at", "-accepted")[0]


@pytest.fixture
def reply(work: Callable[..., Any]) -> Answer:
    """Let the model answer the newest turn."""

    def replying(text: str = "An answer.", finish: Any = "stop") -> Turn:
        turn = newest()
        work(turn, [TextDelta(text), Finished(finish)])
        return Turn.objects.get(pk=turn.pk)

    return replying


@pytest.fixture
def send(of_alice: Program, bus: ScriptedBus) -> Callable[..., Any]:
    """Send a request of `useChat` and return the response, whose stream is not read."""

    def sending(*messages: dict[str, Any], chat: str = "front-end 1", **more: Any) -> Any:
        return of_alice.post(UI_CHATS, {"id": chat, "messages": list(messages), **more})

    return sending


def listed(client: Program, chat: str = "front-end 1", **query: Any) -> list[dict[str, Any]]:
    """Return the UI messages of a chat."""
    answer = client.get(f"{UI_CHATS}/{chat}", **query)
    assert answer.status_code == 200, answer.content
    found: list[dict[str, Any]] = answer.json()["messages"]
    return found


def texts(messages: list[dict[str, Any]]) -> list[str]:
    """Return the text of each message."""
    return [
        "".join(part["text"] for part in message["parts"] if part["type"] == "text")
        for message in messages
    ]


def store(
    branch: Branch, *more: dict[str, Any], seq: int, text: str, role: str = "assistant", **own: Any
) -> Message:
    """Store a message with a text and more parts."""
    parts = [{"type": "text", "text": text}, *more]
    at = branch.created_at
    return Message.objects.create(
        branch=branch, accepted=seq, seq=seq, role=role, parts=parts, created_at=at, **own
    )


def test_the_first_message_creates_a_chat_and_its_reply_is_streamed(
    send: Callable[..., Any], reply: Answer, of_alice: Program, bus: ScriptedBus
) -> None:
    answer = send(build_user_message("Good morning"))
    bus.steps = [reply, None]

    found = read_chunks(answer)

    turn = newest()
    assert found[:2] == [{"type": "start", "messageId": str(turn.pk)}, {"type": "start-step"}]
    assert join_text_chunks(found) == "An answer."
    assert [chunk["type"] for chunk in found[-2:]] == ["finish-step", "finish"]
    assert found[-1]["messageMetadata"] == {"model": turn.model_name, "finish": "stop"}
    chat = Chat.objects.get()
    assert (chat.client_id, chat.title) == ("front-end 1", "Good morning")
    stored = listed(of_alice)
    assert [(each["id"], each["role"]) for each in stored] == [
        ("m1", "user"),
        (str(turn.pk), "assistant"),
    ]
    assert listed(of_alice, str(chat.pk)) == stored


def test_what_the_product_does_not_use_comes_back(
    send: Callable[..., Any], of_alice: Program, reply: Answer
) -> None:
    part = {"type": "data-place", "id": "p1", "data": {"city": "Oslo", "at": [59.9, 10.7]}}
    message = build_user_message("Where?", metadata={"mood": "fine", "nested": {"a": [1, None]}})
    message["parts"].append(part)
    send(message, body={"more": 1}, tools={"x": True})
    reply()

    first = listed(of_alice)[0]

    assert first["parts"] == message["parts"]
    assert first["metadata"].items() >= message["metadata"].items()
    answer = of_alice.get(f"chats/{Chat.objects.get().pk}/export", form="ui")
    line = json.loads(read_stream(answer).decode().splitlines()[0])
    assert (line["id"], line["metadata"]["mood"]) == ("m1", "fine")
    assert line["metadata"]["channel"] == "palimpsest"


def test_parts_come_back_in_their_order_and_with_all_fields(
    send: Callable[..., Any], of_alice: Program, reply: Answer
) -> None:
    parts = [
        {"type": "data-place", "data": {"city": "Oslo"}},
        {"type": "step-start"},
        {"type": "text", "text": "Where", "providerMetadata": {"x": {"cache": True}}},
        {"type": "source-url", "sourceId": "1", "url": "https://example.com", "title": "A"},
        {"type": "reasoning", "text": "Hm.", "state": "done"},
        {"type": "custom", "kind": "x.y", "providerMetadata": {"x": {}}},
        {"type": "tool-map", "toolCallId": "1", "state": "input-available", "input": {"a": [1]}},
        {"type": "dynamic-tool", "toolName": "x", "toolCallId": "2", "state": "input-streaming"},
        {"type": "text", "text": "is it?"},
    ]
    message = {**build_user_message(""), "parts": parts}
    send(message)
    reply()
    row = Message.objects.get(role="user")
    assert row.text == "Where\n\nis it?"
    assert [part["type"] for part in row.parts] == ["text"]
    assert listed(of_alice)[0]["parts"] == parts
    exported = of_alice.get(f"chats/{row.branch.chat_id}/export", form="ui")
    assert json.loads(read_stream(exported).decode().splitlines()[0])["parts"] == parts
    # A repeated edit is recognised.
    edit = {**message, "id": "m2", "parts": parts[::-1]}
    send(edit, messageId="m1")
    reply("Edited.")
    assert join_text_chunks(read_chunks(send(edit, messageId="m1"))) == "Edited."
    assert listed(of_alice)[0]["parts"] == parts[::-1]


def test_a_repeated_message_is_stored_once(send: Callable[..., Any], reply: Answer) -> None:
    send(build_user_message("Good morning"))
    reply()

    found = read_chunks(send(build_user_message("Good morning")))

    assert join_text_chunks(found) == "An answer."
    assert Turn.objects.count() == 1


def test_a_repeated_later_message_is_stored_once(send: Callable[..., Any], reply: Answer) -> None:
    send(build_user_message("one"))
    first = reply()
    later = (build_user_message("one"), assistant(first), build_user_message("two", "m2"))
    send(*later)
    reply("Two.")

    assert join_text_chunks(read_chunks(send(*later))) == "Two."
    assert (Turn.objects.count(), Branch.objects.count()) == (2, 1)


def assistant(turn: Turn) -> dict[str, Any]:
    """Return a reply as the client has it."""
    parts = [{"type": "text", "text": "An answer."}]
    return {"id": str(turn.pk), "role": "assistant", "parts": parts}


def test_one_message_alone_continues_the_chat(
    of_alice: Program, send: Callable[..., Any], reply: Answer
) -> None:
    send(build_user_message("one"))
    reply()
    answer = of_alice.post(
        UI_CHATS, {"id": "front-end 1", "message": build_user_message("two", "m2")}
    )
    assert answer.status_code == 200
    reply("Two.")
    assert texts(listed(of_alice)) == ["one", "An answer.", "two", "Two."]
    assert Branch.objects.count() == 1


def test_a_message_beside_an_empty_one_is_taken_from_the_list(
    of_alice: Program, bus: ScriptedBus, reply: Answer
) -> None:
    body = {"id": "front-end 1", "messages": [build_user_message("one")], "message": None}
    assert of_alice.post(UI_CHATS, body).status_code == 200
    reply()
    assert texts(listed(of_alice)) == ["one", "An answer."]


@pytest.mark.parametrize("chat", ["a/b", "../..", "ä/stream/b", "%2F"])
def test_any_id_that_is_accepted_can_be_loaded_resumed_and_stopped(
    send: Callable[..., Any], of_alice: Program, chat: str
) -> None:
    assert send(build_user_message("one"), chat=chat).status_code == 200
    address = f"{UI_CHATS}/{quote(chat, safe='')}"
    found = of_alice.get(address)
    assert (found.status_code, found.json()["id"], found.json()["running"]) == (200, chat, True)
    assert of_alice.call("DELETE", f"{address}/stream").status_code == 204
    assert newest().status == "stopped"
    assert of_alice.get(f"{address}/stream").status_code == 204


def test_messages_removed_by_the_client_make_a_branch(
    send: Callable[..., Any], reply: Answer, of_alice: Program
) -> None:
    send(build_user_message("one"))
    first = reply()
    send(build_user_message("one"), assistant(first), build_user_message("two", "m2"))
    reply("Two.")

    send(build_user_message("one"), assistant(first), build_user_message("other", "m3"))
    reply("Three.")

    assert texts(listed(of_alice)) == ["one", "An answer.", "other", "Three."]
    assert Branch.objects.count() == 2
    assert Message.objects.filter(parts__0__text="two").exists()


def test_a_message_is_replaced(send: Callable[..., Any], reply: Answer, of_alice: Program) -> None:
    send(build_user_message("one"))
    reply()

    send(build_user_message("other"), messageId="m1")
    reply("Two.")

    assert texts(listed(of_alice)) == ["other", "Two."]
    assert listed(of_alice)[0]["id"] == "m1"


def test_a_reply_is_regenerated(send: Callable[..., Any], reply: Answer, of_alice: Program) -> None:
    send(build_user_message("one"))
    first = reply()
    second = (build_user_message("one"), assistant(first), build_user_message("two", "m2"))
    send(*second)
    reply("Two.")

    send(*second, trigger="regenerate-message")
    reply("Again.")
    assert texts(listed(of_alice)) == ["one", "An answer.", "two", "Again."]

    send(build_user_message("one"), trigger="regenerate-message", messageId=str(first.pk))
    reply("Anew.")
    assert texts(listed(of_alice)) == ["one", "Anew."]


def test_a_failed_reply_is_tried_again_and_the_chat_goes_on(
    send: Callable[..., Any], reply: Answer, of_alice: Program, now: datetime
) -> None:
    send(build_user_message("one"))
    failed = newest()
    message = Message.objects.get()
    message.seq, message.turn = 1, failed
    message.save(update_fields=["seq", "turn"])
    Branch.objects.update(last_seq=1)
    Turn.objects.update(
        status="failed", error_code="provider_error", error_sentence="It broke.", finished_at=now
    )
    found = read_chunks(send(build_user_message("one")))
    assert found[-1] == {"type": "error", "errorText": "It broke."}

    # The client may have an empty reply of the failed turn.
    send(build_user_message("one"), assistant(failed), build_user_message("two", "m2"))
    reply("Two.")
    assert texts(listed(of_alice)) == ["one", "two", "Two."]
    assert Branch.objects.count() == 1

    Turn.objects.exclude(pk=failed.pk).delete()
    Message.objects.filter(seq__gt=1).delete()
    Branch.objects.update(last_seq=1)
    send(build_user_message("one"), trigger="regenerate-message")
    reply("At last.")
    assert texts(listed(of_alice)) == ["one", "At last."]


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        ({}, 422, "invalid_ui_request"),
        ({"id": "", "messages": []}, 422, "invalid_ui_request"),
        ({"id": "a\u0000b", "messages": [build_user_message("x")]}, 422, "invalid_ui_request"),
        ({"id": "x" * 201, "messages": [build_user_message("x")]}, 422, "invalid_ui_request"),
        ({"id": "x", "messages": "all"}, 422, "invalid_ui_request"),
        ({"id": "x", "messages": ["all"]}, 422, "invalid_ui_request"),
        ({"id": "x", "messages": [{"id": "m"}]}, 422, "invalid_ui_request"),
        (
            {"id": "x", "messages": [build_user_message("x")], "trigger": "resume"},
            422,
            "invalid_ui_request",
        ),
        ({"id": "x", "messages": [build_user_message("x", "")]}, 422, "invalid_ui_request"),
        ({"id": "x/stream", "messages": [build_user_message("x")]}, 422, "invalid_ui_request"),
        *(
            (
                {"id": "x", "messages": [{**build_user_message("x"), "parts": [part]}]},
                422,
                "invalid_ui_request",
            )
            for part in (
                {"type": "text", "text": "x", "providerMetadata": {"a": "b" * 70_000}},
                {"type": "source-url", "sourceId": "1", "url": "https://a" + "b" * 70_000},
            )
        ),
        (
            {"id": "x", "messages": [build_user_message("x", metadata={"a": "b" * 70_000})]},
            422,
            "invalid_ui_request",
        ),
        ({"id": "x", "messages": []}, 422, "unsupported_ui_message"),
        (
            {"id": "x", "messages": [{**build_user_message("x"), "role": "assistant"}]},
            422,
            "unsupported_ui_message",
        ),
        (
            {
                "id": "x",
                "messages": [
                    {
                        **build_user_message("x"),
                        "parts": [{"type": "file", "mediaType": "image/png", "url": "/elsewhere"}],
                    }
                ],
            },
            422,
            "unsupported_ui_message",
        ),
        *(
            (
                {"id": "x", "messages": [{**build_user_message("x"), "parts": [file]}]},
                422,
                "unsupported_ui_message",
            )
            # The form of our addresses, without the id of a file.
            for file in (
                {"type": "file", "mediaType": "image/png", "url": f"/api/v1/files/{own}/content"}
                for own in ("-" * 36, "a" * 36, "0-" * 18)
            )
        ),
        *(
            ({"id": "x", "messages": [{**build_user_message("x"), "parts": [part]}]}, 422, code)
            for part, code in (
                ({"type": 5, "text": "Hm."}, "invalid_ui_request"),
                ({"type": "reasoning"}, "invalid_ui_request"),
                # Nothing that is sent to a model.
                ({"type": "unknown", "text": "Hm."}, "message_empty"),
                ({"type": "reasoning", "text": "Hm."}, "message_empty"),
                ({"type": "tool-x", "toolCallId": "1"}, "message_empty"),
            )
        ),
        ({"id": "x", "messages": [build_user_message("  ")]}, 422, "message_empty"),
        (
            {"id": "x", "messages": [build_user_message("a", "m0"), build_user_message("b")]},
            409,
            "history_not_stored",
        ),
        (
            {"id": "x", "messages": [build_user_message("a")], "trigger": "regenerate-message"},
            404,
            "not_found",
        ),
        ({"id": "x", "messages": [build_user_message("a")], "model": "none"}, 422, "unknown_model"),
    ],
)
def test_what_cannot_be_done_is_refused_and_leaves_no_chat(
    of_alice: Program, body: dict[str, Any], status: int, name: str
) -> None:
    assert read_status_and_code(of_alice.post(UI_CHATS, body)) == (status, name)
    assert not Chat.objects.exists()


def test_an_unknown_message_before_the_last_is_refused(
    send: Callable[..., Any], reply: Answer
) -> None:
    send(build_user_message("one"))
    reply()
    foreign = {"id": "elsewhere", "role": "assistant", "parts": [{"type": "text", "text": "a"}]}
    answer = send(build_user_message("one"), foreign, build_user_message("two", "m2"))
    assert read_status_and_code(answer) == (409, "history_not_stored")
    assert Message.objects.count() == 2


def test_the_chats_of_others_do_not_exist(
    send: Callable[..., Any], reply: Answer, of_charlie: Program, of_alice: Program
) -> None:
    send(build_user_message("one"))
    reply()
    own = str(Chat.objects.get().pk)
    for chat in (own, "front-end 1"):
        assert read_status_and_code(of_charlie.get(f"{UI_CHATS}/{chat}")) == (404, "not_found")
        assert read_status_and_code(of_charlie.get(f"{UI_CHATS}/{chat}/stream")) == (
            404,
            "not_found",
        )
        assert read_status_and_code(of_charlie.call("DELETE", f"{UI_CHATS}/{chat}/stream")) == (
            404,
            "not_found",
        )
    assert read_status_and_code(
        of_charlie.post(UI_CHATS, {"id": own, "messages": [build_user_message("two")]})
    ) == (404, "not_found")
    # The same id of a client names another chat.
    assert (
        of_charlie.post(
            UI_CHATS, {"id": "front-end 1", "messages": [build_user_message("two")]}
        ).status_code
        == 200
    )
    assert texts(listed(of_charlie)) == ["two"]
    assert of_alice.call("DELETE", f"chats/{own}").status_code in (200, 204)
    assert read_status_and_code(send(build_user_message("three", "m3"))) == (404, "not_found")


def test_scopes_and_sessions(
    program: MakeProgram, alice: User, browser: Program, demo_model: object, bus: ScriptedBus
) -> None:
    body = {"id": "c", "messages": [build_user_message("one")]}
    for scopes in (("chats:read",), ("chats:write",)):
        answer = program(alice, scopes=scopes).post(UI_CHATS, body)
        assert read_status_and_code(answer) == (403, "insufficient_scope")
    assert not Chat.objects.exists()
    assert browser.post(UI_CHATS, body).status_code == 200
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(alice)
    answer = strict.post(f"/api/v1/{UI_CHATS}", json.dumps(body), content_type="application/json")
    assert answer.status_code == 403


def test_a_running_reply_is_resumed_and_stopped(
    send: Callable[..., Any], of_alice: Program, bus: ScriptedBus, now: datetime
) -> None:
    assert send(build_user_message("one")).status_code == 200
    Turn.objects.update(
        status="running", attempt=1, step=1, partial_text="So f", lease_token="t", lease_until=now
    )
    turn = newest()

    def end() -> None:
        Turn.objects.update(status="stopped", partial_text="", lease_token="", lease_until=None)

    bus.steps = [Frame(kind="text", attempt=1, step=1, offset=4, text="ar"), end, None]
    answer = of_alice.client.get(
        f"/api/v1/{UI_CHATS}/front-end 1/stream", headers={"Accept": "text/event-stream"}
    )
    found = read_chunks(answer)
    assert join_text_chunks(found) == "So far"
    assert found[0]["messageId"] == str(turn.pk)
    assert found[-1] == {"type": "abort"}
    assert of_alice.get(f"{UI_CHATS}/front-end 1/stream").status_code == 204
    assert of_alice.call("DELETE", f"{UI_CHATS}/front-end 1/stream").status_code == 204

    Turn.objects.update(status="running", lease_token="t", lease_until=now)
    assert of_alice.get(f"{UI_CHATS}/front-end 1").json()["running"]
    assert of_alice.call("DELETE", f"{UI_CHATS}/front-end 1/stream").status_code == 204
    assert newest().stop_requested_at is not None


@pytest.mark.requirement("S4.6", by="integrator")
def test_a_message_sent_during_a_reply_waits_and_is_answered_in_its_stream(
    send: Callable[..., Any], of_alice: Program, now: datetime
) -> None:
    send(build_user_message("one"))
    first = newest()
    question = Message.objects.get()
    question.seq, question.turn = 1, first
    question.save(update_fields=["seq", "turn"])
    Branch.objects.update(last_seq=1)
    Turn.objects.update(status="running", attempt=1, step=1, lease_token="t", lease_until=now)

    assert (
        send(
            build_user_message("one"), assistant(first), build_user_message("also", "m2")
        ).status_code
        == 200
    )

    assert (Branch.objects.count(), Message.objects.filter(seq=None).count()) == (1, 1)
    assert texts(listed(of_alice)) == ["one", "also"]
    # The running turn accepts the message, and the queued turn ends.
    second = Turn.objects.get(status="queued")
    Turn.objects.filter(pk=second.pk).update(status="absorbed", absorbed_by=first)
    found = encode(second, Done(TurnRow("absorbed", is_over=True, beginning=Beginning(), text="")))
    assert describe_chunks(found) == ["start", "start-step", "data-absorbed", "finish"]
    # The client may name the empty reply of the queued turn.
    Message.objects.filter(seq=None).update(seq=2, turn=first)
    Branch.objects.update(last_seq=2)
    sent = send(
        build_user_message("also", "m2"), assistant(second), build_user_message("three", "m3")
    )
    assert (sent.status_code, Branch.objects.count()) == (200, 1)


def test_an_interrupted_stream_says_so(
    send: Callable[..., Any], settings: Settings, bus: ScriptedBus
) -> None:
    settings.STREAM_SECONDS = 0
    found = read_chunks(send(build_user_message("one")))
    assert found[-1]["type"] == "error"


def test_an_erasure_leaves_nothing_of_a_sent_message(
    send: Callable[..., Any], reply: Answer, of_alice: Program, alice: User, now: datetime
) -> None:
    message = build_user_message("a secret", "own-id-77", metadata={"note": "also secret"})
    message["parts"].append({"type": "data-x", "data": "third secret"})
    send(message)
    reply()
    row = Message.objects.get(role="user")
    erase_message(user=alice, message=row, now=now)

    first = listed(of_alice)[0]

    assert first["parts"] == [{"type": "text", "text": ""}]
    stored = json.dumps(Message.objects.get(pk=row.pk).metadata)
    assert "secret" not in stored
    assert "own-id-77" not in stored


def test_a_page_of_messages_never_splits_a_reply(
    of_alice: Program, alice: User, now: datetime, demo_model: object
) -> None:
    chat = create_chat(owner=alice, now=now, client_id="long")
    branch = chat.active_branch
    assert branch is not None
    for number in range(4):
        call = {"type": "tool_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"}
        result = {"type": "tool_result", "call_id": f"c{number}", "name": "look", "content": "sun"}
        question = store(branch, seq=number * 3 + 1, text=f"q{number}", role="user")
        turn = Turn.objects.create(
            branch=branch, accepted=number, trigger=question, status="completed", queued_at=now
        )
        question.turn = turn
        question.save(update_fields=["turn"])
        store(branch, call, result, seq=number * 3 + 2, text="Let me see.", turn=turn)
        store(branch, seq=number * 3 + 3, text=f"a{number}", turn=turn)
    Branch.objects.update(last_seq=12)

    newest_page = of_alice.get(f"{UI_CHATS}/long", limit=5).json()

    assert newest_page["has_earlier"]
    assert texts(newest_page["messages"]) == ["q3", "Let me see.a3"]
    kinds = [part["type"] for part in newest_page["messages"][1]["parts"]]
    assert kinds == ["step-start", "text", "tool-look", "step-start", "text"]
    seen = list(newest_page["messages"])
    while newest_page["has_earlier"]:
        newest_page = of_alice.get(f"{UI_CHATS}/long", limit=5, before=seen[0]["id"]).json()
        seen = newest_page["messages"] + seen
    assert texts(seen) == [
        text for number in range(4) for text in (f"q{number}", f"Let me see.a{number}")
    ]
    assert len({each["id"] for each in seen}) == 8


# The encoder, with the stored steps of a turn.


@pytest.fixture
def stepped(send: Callable[..., Any], now: datetime) -> Turn:
    """A completed turn with a tool call in its first step."""
    send(build_user_message("one"))
    turn = newest()
    call = {"type": "tool_call", "call_id": "c1", "name": "look", "arguments": '{"at":"Oslo"}'}
    result = {"type": "tool_result", "call_id": "c1", "name": "look", "content": "sunny"}
    steps = turn.branch
    store(steps, call, result, seq=2, text="Let me see.", turn=turn, finish="tool_calls")
    store(steps, seq=3, text="Sun.", turn=turn, finish="stop")
    Turn.objects.update(status="completed", attempt=1, step=2)
    return turn


def encode(turn: Turn, *updates: Any) -> list[dict[str, Any]]:
    """Return the chunks of these updates."""
    encoder = ChunkEncoder(turn.pk)

    async def collect() -> str:
        return "".join([await encoder.encode(update) for update in updates])

    return parse_chunks(async_to_sync(collect)() + ("" if encoder.is_over else "data: [DONE]\n\n"))


ENDED = TurnRow("completed", is_over=True, beginning=Beginning(1, 2), text="Sun.")
TOOL = ["tool-input-available", "tool-output-available"]
SECOND = ["text-start", "Sun.", "text-end", "finish-step", "finish"]


def test_a_turn_that_is_over_is_sent_whole(stepped: Turn) -> None:
    found = encode(stepped, Snapshot(Beginning(1, 2), "Sun."), Done(ENDED))
    first = ["text-start", "Let me see.", "text-end", *TOOL]
    assert describe_chunks(found) == [
        "start",
        "start-step",
        *first,
        "finish-step",
        "start-step",
        *SECOND,
    ]
    called = next(chunk for chunk in found if chunk["type"] == "tool-input-available")
    assert (called["toolName"], called["input"]) == ("look", {"at": "Oslo"})
    assert found == encode(stepped, Done(ENDED))


def test_streamed_steps_are_completed_and_lost_frames_are_made_up(stepped: Turn) -> None:
    found = encode(
        stepped,
        Snapshot(Beginning(1, 1), ""),
        Thoughts(0, "Hm."),
        Delta(0, "Let me"),
        Reshaped(Beginning(1, 2)),
        Snapshot(Beginning(1, 2), ""),
        Delta(0, "Su"),
        Done(ENDED),
    )
    first = ["reasoning-start", "Hm.", "reasoning-end", "text-start", "Let me", " see.", "text-end"]
    second = ["text-start", "Su", "n.", "text-end", "finish-step", "finish"]
    assert describe_chunks(found) == [
        *("start", "start-step", *first, *TOOL),
        *("finish-step", "start-step", *second),
    ]


def test_a_text_that_an_attempt_replaces_is_named(stepped: Turn) -> None:
    found = encode(
        stepped,
        Snapshot(Beginning(1, 1), "Let "),
        Reshaped(Beginning(2, 1)),
        Snapshot(Beginning(2, 1), ""),
        Delta(0, "Let me see."),
        Snapshot(Beginning(2, 2), "Other"),
        Done(ENDED),
    )
    named = [chunk for chunk in found if chunk["type"] == "data-discarded"]
    assert [chunk["data"]["parts"] for chunk in named] == [["text-1"], ["text-3"]]
    assert describe_chunks(found)[-5:] == SECOND


def test_regenerating_retries_the_failed_turn_that_absorbed_the_message(
    send: Callable[..., Any], work: Callable[..., Any], of_alice: Program
) -> None:
    send(build_user_message("one"))
    first = newest()
    send(build_user_message("one"), build_user_message("two", "m2"))
    # The first turn takes both messages and fails.
    work(first, [ProviderError("provider_rejected", status=404)])
    assert set(Turn.objects.values_list("status", flat=True)) == {"failed", "absorbed"}
    answer = send(
        build_user_message("one"),
        build_user_message("two", "m2"),
        trigger="regenerate-message",
    )
    assert answer.status_code == 200
    work(newest(), [TextDelta("Both."), Finished("stop")])
    assert texts(listed(of_alice)) == ["one", "two", "Both."]

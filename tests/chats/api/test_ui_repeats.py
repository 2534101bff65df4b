"""Requests of `useChat` that are repeated, and that name unknown messages."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from chats.exchange import ui_chats, ui_lookup
from chats.models import Branch, Chat, Message, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from contextpolicy.models import ModelSpec
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code
from tests.support.live_events import ScriptedBus
from tests.support.ui_streams import (
    UI_CHATS,
    build_user_message,
    join_text_chunks,
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


def assistant(turn: Turn) -> dict[str, Any]:
    """Return a reply as the client has it."""
    parts = [{"type": "text", "text": "An answer."}]
    return {"id": str(turn.pk), "role": "assistant", "parts": parts}


def build_edit(text: str = "other", **more: Any) -> dict[str, Any]:
    """Return the fields of a request that replaces the message m1, with its stored reply."""
    return {"messages": [build_user_message(text)], "messageId": "m1", **more}


@pytest.fixture
def edit(of_alice: Program, bus: ScriptedBus) -> Callable[..., Any]:
    """Replace the message m1, and return the response."""

    def editing(text: str = "other", key: str = "", **more: Any) -> Any:
        body = {"id": "front-end 1", **build_edit(text, **more)}
        headers = {"Idempotency-Key": key} if key else {}
        return of_alice.call("POST", UI_CHATS, body, headers=headers)

    return editing


@pytest.fixture
def overtake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let another request run when the next request has read its chat."""

    def overtaking(act: Callable[[], Any]) -> None:
        find = ui_lookup.find_chat

        def finding(*given: Any, **named: Any) -> Chat | None:
            chat = find(*given, **named)
            monkeypatch.setattr(ui_chats, "find_chat", find)
            assert act().status_code == 200
            return chat

        monkeypatch.setattr(ui_chats, "find_chat", finding)

    return overtaking


def test_data_of_a_client_is_stored_without_nul(send: Callable[..., Any]) -> None:
    message = build_user_message("one")
    data = {"type": "data-place", "data": {"x\0": ["a\0b"]}}
    sent = {**message, "metadata": {"note": "a\0b"}, "parts": [*message["parts"], data]}
    assert [send(sent).status_code, send(sent).status_code] == [200, 200]
    (stored,) = Message.objects.all()
    assert stored.metadata["source"]["metadata"] == {"note": "a\ufffdb"}
    assert stored.metadata["source"]["parts"] == [{**data, "data": {"x\ufffd": ["a\ufffdb"]}}]


def test_two_identical_edits_at_once_make_one_branch(
    send: Callable[..., Any],
    edit: Callable[..., Any],
    reply: Answer,
    overtake: Callable[..., None],
    of_alice: Program,
) -> None:
    send(build_user_message("one"))
    reply()
    overtake(edit)
    assert edit().status_code == 200
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 2)
    reply("Two.")
    assert texts(listed(of_alice)) == ["other", "Two."]


def test_two_first_messages_at_once_make_one_chat_and_lock_it_before_the_person(
    send: Callable[..., Any],
    overtake: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[list[Any]] = []
    submit_to = ui_chats.UISubmission.submit_to

    def submitting(*given: Any) -> Turn:
        opened.append(list(transaction.get_connection().savepoint_ids))
        return submit_to(*given)

    monkeypatch.setattr(ui_chats.UISubmission, "submit_to", submitting)
    overtake(lambda: send(build_user_message("one")))
    assert send(build_user_message("one")).status_code == 200
    assert (Chat.objects.count(), Turn.objects.count()) == (1, 1)
    # The transaction with the lock on the person has ended.
    assert opened == [[]]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_message_sent_twice_at_once_after_removed_messages_stays_visible(
    send: Callable[..., Any],
    reply: Answer,
    overtake: Callable[..., None],
    of_alice: Program,
    is_running: bool,
) -> None:
    send(build_user_message("one"))
    first = reply()
    before = (build_user_message("one"), assistant(first))
    send(*before, build_user_message("two", "m2"))
    reply("Two.")

    def send_third() -> Any:
        return send(*before, build_user_message("three", "m3"))

    def send_third_first() -> Any:
        answer = send_third()
        if not is_running:
            reply("Three.")
        return answer

    overtake(send_third_first)
    assert send_third().status_code == 200
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 3)
    if is_running:
        reply("Three.")
    assert texts(listed(of_alice)) == ["one", "An answer.", "three", "Three."]


@pytest.mark.parametrize("key", ["", "key-1"])
@pytest.mark.parametrize("is_running", [True, False])
def test_a_repeated_edit_is_stored_once(
    send: Callable[..., Any],
    edit: Callable[..., Any],
    reply: Answer,
    of_alice: Program,
    key: str,
    is_running: bool,
) -> None:
    send(build_user_message("one"))
    reply()
    assert edit(key=key).status_code == 200
    if not is_running:
        reply("Two.")

    again = edit(key=key)

    assert again.status_code == 200
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 2)
    if is_running:
        reply("Two.")
    assert join_text_chunks(read_chunks(again)) == "Two."
    assert texts(listed(of_alice)) == ["other", "Two."]


@pytest.mark.parametrize("metadata", [{"pinned": True}, {"foreignMetadata": {"a": 1}}])
def test_a_repeated_edit_of_a_message_of_an_older_version_is_stored_once(
    send: Callable[..., Any],
    edit: Callable[..., Any],
    reply: Answer,
    metadata: dict[str, Any],
) -> None:
    message = build_user_message("one", metadata=metadata)
    send(message)
    reply()
    row = Message.objects.get(role="user")
    # Older versions stored the metadata as the client gave it.
    row.metadata["source"]["metadata"] = metadata
    row.save(update_fields=["metadata"])
    assert edit(messages=[message]).status_code == 200
    assert (Branch.objects.count(), Turn.objects.count()) == (1, 1)
    other = build_user_message("one", metadata={"pinned": False})
    assert edit(messages=[other]).status_code == 200
    assert Turn.objects.count() == 2


def test_another_edit_of_the_same_message_is_carried_out(
    send: Callable[..., Any], edit: Callable[..., Any], reply: Answer, of_alice: Program
) -> None:
    send(build_user_message("one"))
    reply()
    changes: list[dict[str, Any]] = [
        {"text": "other"},
        {"text": "one"},
        # Nothing but the data of the client changes.
        {"messages": [build_user_message("one", metadata={"mood": "fine"})]},
        # A key states that this is another request.
        {"text": "one", "key": "key-1"},
    ]
    for number, change in enumerate(changes, start=2):
        assert edit(**change).status_code == 200
        reply(f"Reply {number}.")
        assert Turn.objects.count() == number
    assert texts(listed(of_alice)) == ["one", "Reply 5."]
    assert read_status_and_code(edit("two", key="key-1")) == (422, "idempotency_key_reused")


def test_an_unchanged_edit_in_the_middle_removes_the_messages_after_it(
    send: Callable[..., Any], edit: Callable[..., Any], reply: Answer, of_alice: Program
) -> None:
    send(build_user_message("one"))
    first = reply()
    send(build_user_message("one"), assistant(first), build_user_message("two", "m2"))
    reply("Two.")
    assert edit("one").status_code == 200
    reply("Anew.")
    assert texts(listed(of_alice)) == ["one", "Anew."]
    edit("one")
    assert Turn.objects.count() == 3


def test_an_unchanged_edit_with_another_model_gets_another_reply(
    send: Callable[..., Any], edit: Callable[..., Any], reply: Answer
) -> None:
    other = ModelSpec.objects.get()
    other.pk, other.slug, other.name, other.is_default = None, "other", "other", False
    other.save(force_insert=True)
    send(build_user_message("one"))
    reply()
    for _ in range(2):
        assert edit("one", model="other").status_code == 200
    assert [turn.model_name for turn in Turn.objects.order_by("accepted")][1:] == ["other"]


def test_a_message_that_failed_is_sent_again_by_the_client(
    send: Callable[..., Any], edit: Callable[..., Any], work: Callable[..., Any], of_alice: Program
) -> None:
    send(build_user_message("one"))
    work(newest(), [ProviderError("provider_rejected", status=404)])
    # As `sendMessage()` without a message does.
    assert edit("one").status_code == 200
    work(newest(), [TextDelta("At last."), Finished("stop")])
    assert texts(listed(of_alice)) == ["one", "At last."]
    assert (Branch.objects.count(), Message.objects.filter(role="user").count()) == (1, 1)


@pytest.mark.parametrize("key", ["", "key-1"])
@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("names_reply", [True, False])
def test_a_repeated_regeneration_makes_one_reply(
    send: Callable[..., Any],
    of_alice: Program,
    reply: Answer,
    key: str,
    is_running: bool,
    names_reply: bool,
) -> None:
    send(build_user_message("one"))
    first = reply()
    body: dict[str, Any] = {
        "id": "front-end 1",
        "messages": [build_user_message("one")],
        "trigger": "regenerate-message",
        **({"messageId": str(first.pk)} if names_reply else {}),
    }
    headers = {"Idempotency-Key": key} if key else {}
    assert of_alice.call("POST", UI_CHATS, body, headers=headers).status_code == 200
    if not is_running:
        reply("Again.")

    assert of_alice.call("POST", UI_CHATS, body, headers=headers).status_code == 200

    # Without any name, a request after the end of the reply can be meant.
    is_meant = not (is_running or names_reply or key)
    assert Turn.objects.count() == (3 if is_meant else 2)
    reply("Again.")
    assert texts(listed(of_alice)) == ["one", "Again."]
    # The reply itself, and the message, can be named to get another one.
    before = Turn.objects.count()
    for name in (str(newest().pk), "m1"):
        assert of_alice.post(UI_CHATS, {**body, "messageId": name}).status_code == 200
        reply("More.")
    assert Turn.objects.count() == before + 2


def test_an_id_that_was_sent_with_another_text_is_refused_in_words_of_the_protocol(
    send: Callable[..., Any], reply: Answer, of_alice: Program
) -> None:
    send(build_user_message("one"))
    reply()
    answer = send(build_user_message("other"))
    assert read_status_and_code(answer) == (422, "idempotency_key_reused")
    error = answer.json()["error"]
    assert error["param"] == "messages"
    assert "messageId" in error["message"]
    assert "Idempotency-Key" not in error["message"]
    assert texts(listed(of_alice)) == ["one", "An answer."]
    # The client has sent this key.
    body = {"id": "front-end 1", "message": build_user_message("two", "m2")}
    headers = {"Idempotency-Key": "key-1"}
    assert of_alice.call("POST", UI_CHATS, body, headers=headers).status_code == 200
    body["message"] = build_user_message("three", "m3")
    answer = of_alice.call("POST", UI_CHATS, body, headers=headers)
    assert "Idempotency-Key" in answer.json()["error"]["message"]


@pytest.mark.parametrize("form", ["message", "messages"])
@pytest.mark.parametrize("trigger", ["submit-message", "regenerate-message"])
def test_an_unknown_message_is_neither_replaced_nor_appended(
    send: Callable[..., Any], reply: Answer, of_alice: Program, form: str, trigger: str
) -> None:
    send(build_user_message("one"))
    reply()
    message = build_user_message("two", "unknown")
    body = {"id": "front-end 1", form: message if form == "message" else [message]}
    answer = of_alice.post(UI_CHATS, {**body, "trigger": trigger, "messageId": "unknown"})
    assert read_status_and_code(answer) == (404, "not_found")
    assert answer.json()["error"]["param"] == "messageId"
    assert "messageId" in answer.json()["error"]["message"]
    assert texts(listed(of_alice)) == ["one", "An answer."]
    assert (Branch.objects.count(), Turn.objects.count()) == (1, 1)


def test_a_message_that_never_arrived_can_be_edited(
    send: Callable[..., Any], reply: Answer, of_alice: Program
) -> None:
    # The first request with each message was lost. The client names its own, unsent message.
    for _ in range(2):
        assert send(build_user_message("one"), messageId="m1").status_code == 200
    first = reply()
    after = (build_user_message("one"), assistant(first), build_user_message("two", "m2"))
    for _ in range(2):
        assert send(*after, messageId="m2").status_code == 200
    reply("Two.")
    assert texts(listed(of_alice)) == ["one", "An answer.", "two", "Two."]
    assert (Branch.objects.count(), Turn.objects.count()) == (1, 2)
    # It follows the previous message of the request.
    send(build_user_message("one"), assistant(first), build_user_message("three", "m3"),
         messageId="m3")  # fmt: skip
    reply("Three.")
    assert texts(listed(of_alice)) == ["one", "An answer.", "three", "Three."]


def test_an_edited_message_with_another_id_is_stored_once(
    send: Callable[..., Any], reply: Answer, of_alice: Program
) -> None:
    # ai 7 keeps the id of a message that is passed as a whole.
    send(build_user_message("one"))
    reply()
    for _ in range(2):
        assert send(build_user_message("other", "m9"), messageId="m1").status_code == 200
    reply("Two.")
    assert texts(listed(of_alice)) == ["other", "Two."]
    assert Turn.objects.count() == 2

"""Chats over the API: create, list, change, delete."""

import hashlib
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.actions import lifecycle
from chats.models import Chat, Message, Turn
from chats.record.idempotency import IdempotentRequest
from contextpolicy.models import AuditEvent, ModelSpec
from tests.chats.api.programs import MakeProgram, Program
from tests.support.error_codes import read_status_and_code


def test_empty_chat_is_made_listed_and_read(of_alice: Program) -> None:
    made = of_alice.post("chats", {"title": "  Plans  ", "model": "demo"})
    assert made.status_code == 201
    chat = made.json()
    assert (chat["title"], chat["model"], chat["message_count"]) == ("  Plans  ", "demo", 0)
    assert (chat["message"], chat["turn"]) == (None, None)
    listed = of_alice.get("chats").json()
    assert [row["id"] for row in listed["data"]] == [chat["id"]]
    assert listed["next_cursor"] is None
    one = of_alice.get(f"chats/{chat['id']}").json()
    assert one == {**listed["data"][0], "system_text": "", "memory": True}


def test_chat_with_a_text_begins_a_turn(of_alice: Program) -> None:
    made = of_alice.post("chats", {"text": "What is a palimpsest?\nTell me."})
    assert made.status_code == 202
    chat = made.json()
    assert chat["title"] == "What is a palimpsest?"
    assert chat["message"]["text"] == "What is a palimpsest?\nTell me."
    assert chat["turn"]["status"] == "queued"


def test_title_beside_a_text_is_kept(of_alice: Program) -> None:
    assert of_alice.post("chats", {"text": "Hello", "title": "T"}).json()["title"] == "T"


@pytest.mark.parametrize("body", [{"title": "Plans"}, {"text": "Hello", "title": "Plans"}])
def test_same_key_makes_one_chat(body: dict[str, str], of_alice: Program) -> None:
    key = {"HTTP_IDEMPOTENCY_KEY": "k1"}
    answers = [of_alice.post("chats", body, **key) for _ in range(3)]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Chat.objects.count() == 1
    other = of_alice.post("chats", {**body, "model": "demo"}, **key)
    assert read_status_and_code(other) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("first", ["", "Plans"])
def test_a_key_stands_for_its_title_too(first: str, of_alice: Program) -> None:
    key = {"HTTP_IDEMPOTENCY_KEY": "k1"}
    made = of_alice.post("chats", {"text": "Hello", "title": first}, **key)
    other = of_alice.post("chats", {"text": "Hello", "title": "Other"}, **key)
    assert made.status_code == 202
    assert read_status_and_code(other) == (422, "idempotency_key_reused")
    assert Chat.objects.get().title == (first or "Hello")


def test_a_key_from_before_titles_counted_still_stands_for_its_text(
    of_alice: Program, alice: User, turn: Turn
) -> None:
    body = hashlib.sha256(b"demo\nHello").hexdigest()
    kept = IdempotentRequest(user=alice, route="chats", key="k1", body=body)
    result = {"message": str(turn.trigger_id), "turn": str(turn.pk)}
    kept.remember(result=result, now=timezone.now())
    again = of_alice.post("chats", {"text": "Hello", "model": "demo"}, HTTP_IDEMPOTENCY_KEY="k1")
    assert again.json()["turn"]["id"] == str(turn.pk)


@pytest.mark.parametrize("with_text_first", [True, False])
def test_a_key_makes_one_chat_with_a_text_or_without(
    with_text_first: bool, of_alice: Program
) -> None:
    key, bodies = {"HTTP_IDEMPOTENCY_KEY": "k1"}, [{"text": "Hello"}, {}]
    first, second = bodies if with_text_first else reversed(bodies)
    made = of_alice.post("chats", first, **key)
    assert read_status_and_code(of_alice.post("chats", second, **key)) == (
        422,
        "idempotency_key_reused",
    )
    assert of_alice.post("chats", first, **key).json()["id"] == made.json()["id"]
    assert Chat.objects.count() == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"title": "x" * 201}, (422, "too_long")),
        ({"title": "a\x00b"}, (422, "invalid_character")),
        ({"title": 7}, (400, "invalid_value")),
        ({"model": "gpt-99"}, (422, "unknown_model")),
        ({"text": "hello", "model": "gpt-99"}, (422, "unknown_model")),
        ({"text": " "}, (422, "message_empty")),
        ({"text": None}, (400, "invalid_value")),
        ({"text": "hello", "title": "x" * 201}, (422, "too_long")),
    ],
)
def test_bad_chat_is_refused_and_nothing_is_made(
    body: dict[str, Any], expected: tuple[int, str], of_alice: Program
) -> None:
    assert read_status_and_code(of_alice.post("chats", body)) == expected
    assert not Chat.objects.exists()
    assert not Message.objects.exists()


def test_title_and_model_change_together_or_not_at_all(
    of_alice: Program, chat: Chat, demo_model: ModelSpec
) -> None:
    path = f"chats/{chat.pk}"
    changed = of_alice.call("PATCH", path, {"title": "New", "model": "demo"}).json()
    assert (changed["title"], changed["model"]) == ("New", "demo")
    refused = of_alice.call("PATCH", path, {"title": "Newer", "model": "gpt-99"})
    assert read_status_and_code(refused) == (422, "unknown_model")
    chat.refresh_from_db()
    assert chat.title == "New"
    assert AuditEvent.objects.filter(type="chat.model_changed").count() == 1


def test_a_new_title_is_recorded_without_its_words_and_the_same_one_is_not(
    of_alice: Program, chat: Chat, alice: User
) -> None:
    for title in ("Order 4711", "Order 4711", " "):
        of_alice.call("PATCH", f"chats/{chat.pk}", {"title": title})
    event = AuditEvent.objects.get(type="chat.renamed")
    assert (event.chat_id, event.actor) == (chat.pk, f"user:{alice.pk}")
    assert event.data == {"characters": {"from": 0, "to": 10}}


def test_deleted_chat_is_hidden_and_its_events_stay(of_alice: Program, chat: Chat) -> None:
    answer = of_alice.call("DELETE", f"chats/{chat.pk}")
    assert (answer.status_code, answer.content) == (204, b"")
    assert of_alice.get(f"chats/{chat.pk}").status_code == 404
    assert of_alice.get("chats").json()["data"] == []
    assert AuditEvent.objects.filter(chat_id=chat.pk, type="chat.deleted").exists()


def test_pages_hold_every_chat_once(of_alice: Program, alice: User, now: datetime) -> None:
    # Equal times on purpose, so that the id decides.
    made = {
        str(lifecycle.create_chat(owner=alice, now=now + timedelta(seconds=n // 3)).pk)
        for n in range(10)
    }
    seen: list[str] = []
    cursor: str | None = ""
    for _ in range(4):
        page = of_alice.get("chats", limit=3, cursor=cursor).json()
        seen += [row["id"] for row in page["data"]]
        cursor = page["next_cursor"]
    assert cursor is None
    assert len(seen) == 10
    assert set(seen) == made


def test_cursor_of_another_list_or_person_or_maker_is_refused(
    of_alice: Program, alice: User, chat: Chat, now: datetime
) -> None:
    lifecycle.create_chat(owner=alice, now=now)
    cursor = of_alice.get("chats", limit=1).json()["next_cursor"]
    bad = [cursor[:-1], cursor + "x", "x", "[]", cursor.replace(":", "."), "\x00"]
    for text in bad:
        assert read_status_and_code(of_alice.get("chats", cursor=text)) == (400, "invalid_cursor")
    assert read_status_and_code(of_alice.get("audit/events", cursor=cursor)) == (
        400,
        "invalid_cursor",
    )
    assert read_status_and_code(of_alice.get("chats", page=2)) == (400, "unknown_field")


def test_too_many_chats_are_refused(of_alice: Program, settings: Settings) -> None:
    settings.CHATS_PER_USER = 1
    assert of_alice.post("chats", {}).status_code == 201
    assert read_status_and_code(of_alice.post("chats", {})) == (409, "too_many_chats")


def test_models_say_what_can_be_chosen(of_alice: Program) -> None:
    (model,) = of_alice.get("models").json()["data"]
    assert (model["id"], model["allowed"], model["default"]) == ("demo", True, True)
    assert model["is_demo"] is True
    assert model["why_not"] == ""


def test_without_a_model_a_message_is_refused(
    program: MakeProgram, alice: User, now: datetime
) -> None:
    chat = lifecycle.create_chat(owner=alice, now=now)
    answer = program(alice).post(f"chats/{chat.pk}/messages", {"text": "Hello"})
    assert read_status_and_code(answer) == (409, "no_model")
    assert not Turn.objects.exists()

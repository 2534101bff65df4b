"""Idempotency-Key: a repeated POST gets the stored response for a day."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils import timezone

from chats.actions import erasure
from chats.background.due_jobs import DUE_JOBS
from chats.models import ApiKey, Chat, Folder, IdempotencyRecord, Message
from chats.people import keys
from chats.record import idempotency
from chats.record.idempotency import IdempotentRequest
from chats.turns.start import get_active_branch
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import MakeProgram, Program
from tests.support.api_bodies import NEW_KEY
from tests.support.api_schema import describe_api
from tests.support.error_codes import read_status_and_code


def again(program: Program, path: str, body: Any = None, *, key: str = "k1") -> Any:
    """Send a POST with a key."""
    return program.post(path, body, headers={"Idempotency-Key": key})


def message(chat: Chat, text: str, now: Any) -> Message:
    """A stored message of the chat."""
    branch = get_active_branch(chat)
    branch.last_seq += 1
    branch.save()
    return Message.objects.create(
        branch=branch,
        seq=branch.last_seq,
        accepted=branch.last_seq,
        role="user",
        parts=[{"type": "text", "text": text}],
        created_at=now,
    )


def test_a_repetition_gets_the_first_answer_and_does_nothing(of_alice: Program) -> None:
    first = again(of_alice, "folders", {"name": "Cases"})
    second = again(of_alice, "folders", {"name": "Cases"})
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.json() == second.json()
    assert "Idempotent-Replayed" not in first.headers
    assert second["Idempotent-Replayed"] == "true"
    assert Folder.objects.count() == 1
    # Without the key the name is refused as a duplicate.
    assert read_status_and_code(of_alice.post("folders", {"name": "Cases"})) == (
        409,
        "folder_exists",
    )


def test_another_body_or_an_empty_key_is_refused(of_alice: Program) -> None:
    again(of_alice, "folders", {"name": "Cases"})
    assert read_status_and_code(again(of_alice, "folders", {"name": "B"})) == (
        422,
        "idempotency_key_reused",
    )
    for bad in ("", "é", "x" * 256):
        answer = again(of_alice, "folders", {"name": "B"}, key=bad)
        assert read_status_and_code(answer) == (400, "invalid_idempotency_key")
    assert Folder.objects.count() == 1


def test_a_key_is_somebodys_and_of_one_address(
    of_alice: Program, program: MakeProgram, bob: User, chat: Chat, now: Any
) -> None:
    again(of_alice, "folders", {"name": "Cases"})
    other = program(bob)
    assert again(other, "folders", {"name": "Cases"}).status_code == 201
    row = message(chat, "Hello.", now)
    assert again(of_alice, f"chats/{chat.pk}/messages/{row.pk}/pin").status_code == 200


def test_what_was_refused_may_be_tried_again_with_its_key(of_alice: Program) -> None:
    of_alice.post("folders", {"name": "Cases"})
    assert read_status_and_code(again(of_alice, "folders", {"name": "Cases"})) == (
        409,
        "folder_exists",
    )
    Folder.objects.all().delete()
    assert again(of_alice, "folders", {"name": "Cases"}).status_code == 201


def test_after_a_day_the_key_is_new(of_alice: Program) -> None:
    again(of_alice, "folders", {"name": "Cases"})
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(hours=25))
    assert read_status_and_code(again(of_alice, "folders", {"name": "Cases"})) == (
        409,
        "folder_exists",
    )


def test_after_a_day_a_due_job_deletes_the_answers(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "DELETED_AT_ONCE", 2)
    for number in range(5):
        again(of_alice, "folders", {"name": f"Cases {number}"}, key=f"k{number}")
    at = timezone.now()
    assert DUE_JOBS["old_requests"](at + timedelta(hours=23)) == 0
    IdempotencyRecord.objects.filter(key="k4").update(created_at=at + timedelta(hours=1))
    assert DUE_JOBS["old_requests"](at + timedelta(hours=24, minutes=1)) == 4
    assert IdempotencyRecord.objects.get().key == "k4"
    assert Folder.objects.count() == 5


def test_of_two_at_once_the_second_gets_the_answer_of_the_first(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other request commits between the lookup of the key and the insert of its row."""
    first = again(of_alice, "folders", {"name": "Cases"})
    usual, looks = IdempotentRequest.find, iter([True])

    def early(self: IdempotentRequest, *, now: datetime) -> Any:
        return None if next(looks, False) else usual(self, now=now)

    monkeypatch.setattr(IdempotentRequest, "find", early)
    second = again(of_alice, "folders", {"name": "Cases"})
    assert second["Idempotent-Replayed"] == "true"
    assert second.json() == first.json()
    assert Folder.objects.count() == 1


def test_an_error_of_the_store_that_is_none_of_the_keys_stays_one(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_: Any) -> None:
        raise IntegrityError("another constraint")

    monkeypatch.setattr("chats.actions.organising.create_folder", broken)
    of_alice.client.raise_request_exception = False
    with transaction.atomic():
        answer = again(of_alice, "folders", {"name": "Cases"})
    assert answer.status_code == 500
    assert not IdempotencyRecord.objects.exists()


def test_a_new_keys_secret_is_shown_once_only(browser: Program, alice: User) -> None:
    first, second = again(browser, "keys", NEW_KEY), again(browser, "keys", NEW_KEY)
    assert first.status_code == second.status_code == 201
    assert "secret" in first.json()
    assert second.json() == {name: v for name, v in first.json().items() if name != "secret"}
    assert ApiKey.objects.filter(owner=alice).count() == 1


def test_no_answer_outlives_the_words_of_its_chat(of_alice: Program, chat: Chat, now: Any) -> None:
    first, other = message(chat, "The code is 4711.", now), message(chat, "Hello.", now)
    path = f"chats/{chat.pk}/messages/{first.pk}/pin"
    assert again(of_alice, path).status_code == 200
    assert "4711" not in str(IdempotencyRecord.objects.get().result)
    erasure.erase_message(user=chat.owner, message=other, now=now)
    assert IdempotencyRecord.objects.get().result == {}
    assert read_status_and_code(again(of_alice, path)) == (422, "idempotency_key_reused")


def test_one_event_for_an_act_that_was_sent_twice(of_alice: Program, chat: Chat, now: Any) -> None:
    row = message(chat, "Hello.", now)
    for _ in range(2):
        again(of_alice, f"chats/{chat.pk}/messages/{row.pk}/exclude")
    assert AuditEvent.objects.filter(type="message.excluded").count() == 1


def test_the_schema_names_the_key_at_every_post_that_does_something() -> None:
    without = {
        methods["post"]["operationId"]
        for methods in describe_api()["paths"].values()
        if "post" in methods
        and not any(p["name"] == "Idempotency-Key" for p in methods["post"].get("parameters", []))
    }
    # Five of these only read, and a trial stores nothing. The others do not create an object that
    # already exists or is in progress.
    assert without == {
        "audit_export",
        "policies_recommended_create",
        "policies_trial",
        "chats_context_ask",
        "chats_team_context",
        "chats_team_prompt",
        "evaluations_begin",
        "files_upload",
        "chats_erase",
        "chats_messages_erase",
        "preferences_create",
        "radii_begin",
        "retention_runs_begin",
        "summaries_review",
    }


def test_a_key_that_was_taken_away_repeats_nothing(of_alice: Program, alice: User) -> None:
    again(of_alice, "folders", {"name": "Cases"})
    for key in ApiKey.objects.filter(owner=alice):
        keys.revoke_key(key=key, actor="user:1", now=timezone.now())
    assert again(of_alice, "folders", {"name": "Cases"}).status_code == 401


def test_endpoints_that_accept_messages_name_a_repetition(
    of_alice: Program, chat: Chat, now: datetime
) -> None:
    own = message(chat, "a first question", now)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("chats", {"title": "Empty"}),
        ("chats", {"text": "A first message"}),
        (f"chats/{chat.pk}/messages/{own.pk}/edit", {"text": "other words"}),
        (f"chats/{chat.pk}/messages", {"text": "hello"}),
    ]
    for number, (path, body) in enumerate(asked):
        first, second = (again(of_alice, path, body, key=f"key-{number}") for _ in range(2))
        assert first.status_code == second.status_code < 300, path
        assert "Idempotent-Replayed" not in first.headers, path
        assert second["Idempotent-Replayed"] == "true", path

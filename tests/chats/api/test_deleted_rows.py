"""A row that another request deletes during a request is a refusal, whatever function misses it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, IntegrityError, transaction
from django.test import Client

from chats.actions import lifecycle, organising
from chats.ground.deleted_rows import DeletedMeanwhile, is_deleted_row
from chats.models import Branch, Chat, Webhook
from chats.webhooks import managing
from contextpolicy.models import ModelSpec
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code

GONE = (404, "not_found")


def run_before(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, first: Callable[[], object]
) -> None:
    """Run `first` before each call of a function, as a concurrent request would."""
    function = getattr(module, name)

    def called(*args: Any, **named: Any) -> Any:
        first()
        # The transaction of the test goes on after the error.
        with transaction.atomic():
            return function(*args, **named)

    monkeypatch.setattr(module, name, called)


def erase(chat: Chat) -> None:
    """Delete the rows of a chat."""
    Chat.objects.filter(pk=chat.pk).update(active_branch=None)
    Branch.objects.filter(chat=chat).delete()
    Chat.objects.filter(pk=chat.pk).delete()


def test_a_chat_is_erased_before_its_model_changes(
    of_alice: Program, chat: Chat, demo_model: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_before(monkeypatch, lifecycle, "choose_model", lambda: erase(chat))
    change = {"model": demo_model.slug}
    assert read_status_and_code(of_alice.call("PATCH", f"chats/{chat.pk}", change)) == GONE


def test_a_chat_is_erased_before_it_is_pinned(
    of_alice: Program,
    chat: Chat,
    client: Client,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.force_login(alice)
    run_before(monkeypatch, organising, "organise_chat", lambda: erase(chat))
    answer = client.post(f"/chats/{chat.pk}/organise", {"pinned": "yes"})
    assert answer.status_code == 404
    assert DeletedMeanwhile().sentence in answer.content.decode()
    # An operator sees a fault that only looks like a deletion.
    assert "did not affect any rows" in caplog.text


def test_a_webhook_is_deleted_before_it_changes(
    of_alice: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"url": "https://example.org/told", "events": ["message.added"]}
    path = f"webhooks/{of_alice.post('webhooks', given).json()['id']}"
    run_before(monkeypatch, managing, "update_webhook", Webhook.objects.all().delete)
    assert read_status_and_code(of_alice.call("PATCH", path, {"is_on": False})) == GONE


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (Chat.DoesNotExist(), True),
        (DatabaseError("Save with update_fields did not affect any rows."), True),
        # SQLite's message at the commit, and PostgreSQL's.
        (IntegrityError("FOREIGN KEY constraint failed"), True),
        (IntegrityError('insert or update violates foreign key constraint "folder"'), True),
        (IntegrityError("UNIQUE constraint failed: chats_chat.id"), False),
        (Chat.MultipleObjectsReturned(), False),
        (KeyError("folder"), False),
    ],
)
def test_errors_about_deleted_rows(error: Exception, *, is_gone: bool) -> None:
    assert is_deleted_row(error) is is_gone

"""Large ledgers are verified in the background. The page shows the result and its time."""

import importlib
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from chats import tasks
from chats.background import due_jobs
from chats.ground import queue
from contextpolicy import verification
from contextpolicy.ledger import record_event
from contextpolicy.models import AuditEvent, LedgerVerification
from contextpolicy.roles import AUDITOR
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in

pytestmark = pytest.mark.django_db

VERIFY = "/admin/contextpolicy/auditevent/verify/"
CHAT = uuid.UUID("018f0000-0000-7000-8000-000000000001")
Sent = list[tuple[str, dict[str, str]]]


@pytest.fixture
def browser() -> Client:
    """The browser of Priya, an auditor."""
    return signed_in(person("priya", AUDITOR))


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    """Treat two rows as a large ledger."""
    monkeypatch.setattr(verification, "SMALL", 1)
    for _ in range(3):
        record_event("chat.created", actor="user:1", now=now, chat_id=CHAT)


def ask(browser: Client, capture: Any) -> LedgerVerification:
    """Press the button and return the request."""
    with capture(execute=True):
        assert browser.post(VERIFY).status_code == 302
    asked = LedgerVerification.objects.order_by("-pk").first()
    assert asked is not None
    return asked


@pytest.mark.usefixtures("large")
def test_a_large_ledger_is_verified_by_a_task_and_the_page_shows_what_it_found(
    browser: Client, sent: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    page = browser.get(VERIFY).content.decode()
    assert 'data-note="verified-in-background"' in page
    assert 'data-note="not-verified"' in page
    assert "logs verified" not in page

    asked = ask(browser, django_capture_on_commit_callbacks)
    assert sent == [(queue.VERIFY_LEDGER, {"verification_id": str(asked.pk)})]
    assert 'data-note="verification-requested"' in browser.get(VERIFY).content.decode()
    # A second click before the start returns the same request.
    assert ask(browser, django_capture_on_commit_callbacks).pk == asked.pk

    tasks.verify_ledger(**sent[0][1])
    page = opened(browser, VERIFY).words
    assert "logs verified" in page
    assert f"{AuditEvent.objects.count()} rows recomputed" in page
    tasks.verify_ledger(**sent[0][1])
    assert LedgerVerification.objects.count() == 1


@pytest.mark.usefixtures("large")
def test_a_break_is_kept_and_shown(
    browser: Client, sent: Sent, django_capture_on_commit_callbacks: Any
) -> None:
    triggers = importlib.import_module("contextpolicy.migrations.0002_ledger_triggers")
    with connection.cursor() as cursor:
        for statement in triggers.DROP[connection.vendor]:
            cursor.execute(statement)
        cursor.execute(
            "UPDATE contextpolicy_auditevent SET actor = 'user:9' WHERE seq = 2 AND scope = %s",
            [f"chat:{CHAT}"],
        )
    ask(browser, django_capture_on_commit_callbacks)
    tasks.verify_ledger(**sent[0][1])
    page = opened(browser, VERIFY).words
    assert "1 audit log broken" in page
    assert f"chat:{CHAT} 2 the content of the row was changed" in page


@pytest.mark.usefixtures("large")
def test_a_request_that_nobody_began_is_sent_again_and_one_of_a_dead_worker_is_closed(
    browser: Client, sent: Sent, now: datetime, django_capture_on_commit_callbacks: Any
) -> None:
    asked = ask(browser, django_capture_on_commit_callbacks)
    sent.clear()
    later = asked.asked_at + timedelta(minutes=5)
    with django_capture_on_commit_callbacks(execute=True):
        due_jobs.run_all_due_jobs(now=later)
    assert (queue.VERIFY_LEDGER, {"verification_id": str(asked.pk)}) in sent
    LedgerVerification.objects.update(started_at=later)
    due_jobs.run_all_due_jobs(now=later + verification.LONGEST + timedelta(seconds=1))
    asked.refresh_from_db()
    assert asked.error == "worker_lost"
    assert 'data-note="verification-lost"' in browser.get(VERIFY).content.decode()


def test_charlie_may_not_ask(large: None) -> None:
    browser = signed_in(person("charlie"))
    assert browser.post(VERIFY).status_code in {302, 403, 404}
    assert not LedgerVerification.objects.exists()

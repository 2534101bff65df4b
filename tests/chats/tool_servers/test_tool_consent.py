"""Consent to tool calls: the turn waits without a worker until a person decides, or too long."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from chats.actions.deletion import delete_chat
from chats.actions.erasure import erase_chat, erase_expired, erase_message
from chats.actions.pending_erasures import erase_pending_content
from chats.actions.running_replies import check_over
from chats.background.due_jobs import run_due_job
from chats.counts.telling import EventRows
from chats.ground.refusals import NotFound
from chats.models import Chat, Message, PendingErasure, ToolCall, ToolConsent, ToolStep, Turn
from chats.people import keys
from chats.providers.base import Finished, TextDelta
from chats.record.commitment_check import ENDINGS
from chats.record.outbox import list_webhook_events
from chats.turns import tool_steps
from chats.turns.consents import ConsentIsOver, decide_tool_call, list_waiting_calls
from chats.turns.recover import enqueue_overdue, release_expired
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy import ledger
from contextpolicy.models import AuditEvent, ToolDefinition, ToolServer
from tests.chats.api.programs import Program
from tests.fakes.tool_server import FakeToolServer, describe
from tests.support.tool_calls import call_echo

Connect = Callable[..., ToolServer]
Allow = Callable[..., None]
Ask = Callable[..., tuple[Turn, Any]]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("built_again")]
DONE = [TextDelta("Done."), Finished("stop")]
UPGRADE_STATE = ("chats", "0086_calls_before_consents")
UPGRADE = import_module(".".join(("chats", "migrations", UPGRADE_STATE[1])))


@pytest.fixture
def waiting(connect: Connect, allow: Allow, ask: Ask) -> Turn:
    """A turn that waits for consent to a call."""
    connect(asks=True)
    allow(tools=["files/*"])
    turn, _ = ask(call_echo("secret words"))
    return turn


def decide(turn: Turn, user: User, decision: Any, now: datetime) -> None:
    """Decide about the first waiting call."""
    turn.refresh_from_db()
    call = list_waiting_calls(turn)[0]
    decide_tool_call(user=user, turn=turn, call_id=call.id, decision=decision, now=now)
    turn.refresh_from_db()


def test_a_waiting_turn_has_no_worker_and_no_task(
    waiting: Turn, server: FakeToolServer, work: Callable[..., Any]
) -> None:
    assert (waiting.status, waiting.awaits_consent) == ("queued", True)
    assert (waiting.lease_token, waiting.lease_until) == ("", None)
    assert waiting.partial_text == "Let me see."
    (call,) = list_waiting_calls(waiting)
    assert (call.server, call.tool) == ("files", "echo")
    assert json.loads(call.arguments) == {"text": "secret words"}
    # Neither a due job nor a late task starts it.
    Turn.objects.update(queued_at=waiting.queued_at - timedelta(days=1))
    assert enqueue_overdue() == 0
    assert work(waiting).scripted.requests == []
    assert server.calls == []


@pytest.mark.parametrize(("decision", "sent"), [("once", 1), ("chat", 1), ("deny", 0)])
def test_each_decision_continues_the_turn(
    waiting: Turn,
    alice: User,
    work: Callable[..., Any],
    now: datetime,
    server: FakeToolServer,
    decision: str,
    sent: int,
) -> None:
    decide(waiting, alice, decision, now)
    assert not waiting.awaits_consent
    worker = work(waiting, DONE)
    waiting.refresh_from_db()
    assert waiting.status == "completed"
    # The model was not asked again before the result.
    assert len(worker.scripted.requests) == 1
    assert len(server.calls) == sent
    assert ToolConsent.objects.count() == (1 if decision == "chat" else 0)
    assert not ToolStep.objects.exists()
    kinds = set(AuditEvent.objects.values_list("type", flat=True))
    given = "tool.consent_denied" if decision == "deny" else "tool.consent_given"
    assert {"tool.consent_asked", given, "tool.called"} <= kinds
    assert "secret words" not in str(list(AuditEvent.objects.values_list("data", flat=True)))


def test_the_calls_of_each_attempt_are_in_the_audit_log_and_in_the_counts(
    waiting: Turn, alice: User, work: Callable[..., Any], now: datetime
) -> None:
    assert list_committed_calls(waiting) == {("turn.waiting", 1): 1}
    decide(waiting, alice, "once", now)
    work(waiting, call_echo("again"))
    decide(waiting, alice, "once", now)
    work(waiting, DONE)
    ended = {("turn.waiting", 1): 1, ("turn.waiting", 2): 1, ("turn.completed", 3): 1}
    assert list_committed_calls(waiting) == ended
    events = list(AuditEvent.objects.filter(turn_id=waiting.pk).order_by("seq"))
    counted = EventRows(events)
    for event in events:
        counted.read(event)
    # The scripted model reports no usage.
    assert sum(row.numbers.get("unreported", 0) for row in counted.sums.days.values()) == 3


def list_committed_calls(turn: Turn) -> dict[tuple[str, int], int]:
    """Return the number of calls in each entry that ends an attempt, by its type and attempt."""
    rows = AuditEvent.objects.filter(turn_id=turn.pk, type__in=ENDINGS)
    return {(row.type, row.data["attempt"]): len(row.data["calls"]) for row in rows}


@pytest.mark.parametrize("end", ["decision", "stop"])
def test_the_calls_of_a_worker_of_an_earlier_version_are_recorded_later(
    connect: Connect,
    allow: Allow,
    ask: Ask,
    alice: User,
    work: Callable[..., Any],
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    with monkeypatch.context() as patch:
        patch.setattr(tool_steps, "record_attempt_end", lambda *_a, **_k: None)
        turn, _ = ask(call_echo("secret words"))
    assert list_committed_calls(turn) == {}
    if end == "decision":
        decide(turn, alice, "once", now)
    else:
        stop_turn(user=alice, turn=turn, now=now)
    assert list_committed_calls(turn) == {("turn.waiting", 1): 1}
    work(turn, DONE)
    assert ("turn.waiting", 1) in list_committed_calls(turn)


def test_an_upgrade_adds_the_calls_that_earlier_versions_did_not_record(
    waiting: Turn, alice: User, work: Callable[..., Any], now: datetime, monkeypatch: Any
) -> None:
    decide(waiting, alice, "once", now)
    with monkeypatch.context() as patch:
        # Earlier versions wrote no entry when the turn began to wait.
        record = ledger.record_event
        patch.setattr(
            ledger, "record_event", lambda kind, **k: kind == "turn.waiting" or record(kind, **k)
        )
        work(waiting, call_echo("again"))
    assert len(list(ledger.find_ledger_breaks())) == 1
    for _ in range(2):
        apps = MigrationExecutor(connection).loader.project_state(UPGRADE_STATE).apps
        UPGRADE.commit_to_calls(apps, SimpleNamespace(connection=connection))
        assert list_committed_calls(waiting) == {("turn.waiting", 1): 1, ("turn.waiting", 2): 1}
        assert list(ledger.find_ledger_breaks()) == []


@pytest.mark.parametrize(("decision", "asks_again"), [("once", True), ("chat", False)])
def test_only_consent_for_the_chat_covers_later_calls(
    waiting: Turn,
    alice: User,
    ask: Ask,
    work: Callable[..., Any],
    now: datetime,
    decision: str,
    asks_again: bool,
) -> None:
    decide(waiting, alice, decision, now)
    work(waiting, DONE)
    later, _ = ask(call_echo("more"), DONE)
    assert later.awaits_consent is asks_again


def test_consent_for_the_chat_ends_with_a_changed_definition(
    waiting: Turn,
    alice: User,
    ask: Ask,
    connect: Connect,
    work: Callable[..., Any],
    now: datetime,
    server: FakeToolServer,
) -> None:
    decide(waiting, alice, "chat", now)
    work(waiting, DONE)
    server.tools = [describe("echo", description="Now it erases.")]
    connect(asks=True)
    later, _ = ask(call_echo("more"), DONE)
    assert later.awaits_consent


def test_a_definition_that_changes_while_the_turn_waits_is_not_called(
    waiting: Turn,
    alice: User,
    connect: Connect,
    work: Callable[..., Any],
    now: datetime,
    server: FakeToolServer,
) -> None:
    server.tools = [describe("echo", description="Now it erases.")]
    connect(asks=True)
    decide(waiting, alice, "once", now)
    work(waiting, DONE)
    assert server.calls == []
    assert ToolCall.objects.get().code == "tool_definition_changed"


def test_each_of_several_calls_is_decided(
    connect: Connect,
    allow: Allow,
    ask: Ask,
    alice: User,
    work: Callable[..., Any],
    now: datetime,
    server: FakeToolServer,
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    turn, _ = ask(call_echo("one", "two"))
    decide(turn, alice, "deny", now)
    assert len(list_waiting_calls(turn)) == 1
    decide(turn, alice, "once", now)
    assert list_waiting_calls(turn) == []
    work(turn, DONE)
    assert [sent["arguments"]["text"] for sent in server.calls] == ["two"]


def test_an_unanswered_request_expires_as_denied(
    waiting: Turn, work: Callable[..., Any], server: FakeToolServer
) -> None:
    until = list_waiting_calls(waiting)[0].expires_at
    assert until is not None
    assert timedelta(hours=23) < until - waiting.queued_at < timedelta(hours=25)
    assert run_due_job("tool_consents", now=until - timedelta(hours=1)) == 0
    assert run_due_job("tool_consents", now=until) == 1
    waiting.refresh_from_db()
    assert not waiting.awaits_consent
    work(waiting, DONE)
    waiting.refresh_from_db()
    assert waiting.status == "completed"
    assert server.calls == []
    assert ToolCall.objects.get().code == "consent_expired"


def test_consent_ends_with_the_erasure_of_the_stored_reply(
    waiting: Turn, alice: User, work: Callable[..., Any], now: datetime, server: FakeToolServer
) -> None:
    decide(waiting, alice, "once", now)
    ToolStep.objects.all().delete()
    work(waiting, call_echo("other words"))
    waiting.refresh_from_db()
    assert waiting.awaits_consent
    assert server.calls == []


def test_a_stop_ends_the_request_and_keeps_the_text(
    waiting: Turn, alice: User, work: Callable[..., Any], now: datetime, server: FakeToolServer
) -> None:
    call = list_waiting_calls(waiting)[0]
    stop_turn(user=alice, turn=waiting, now=now)
    work(waiting)
    waiting.refresh_from_db()
    assert waiting.status == "stopped"
    assert waiting.reply is not None
    assert waiting.reply.text == "Let me see."
    assert server.calls == []
    assert not ToolStep.objects.exists()
    with pytest.raises(ConsentIsOver):
        decide_tool_call(user=alice, turn=waiting, call_id=call.id, decision="once", now=now)


def test_the_deletion_of_the_chat_ends_the_request(
    waiting: Turn,
    alice: User,
    chat: Chat,
    work: Callable[..., Any],
    now: datetime,
    server: FakeToolServer,
) -> None:
    call = list_waiting_calls(waiting)[0]
    delete_chat(chat=chat, actor=f"user:{alice.pk}", now=now)
    work(waiting)
    waiting.refresh_from_db()
    assert (waiting.status, waiting.awaits_consent) == ("stopped", False)
    with pytest.raises(ConsentIsOver):
        decide_tool_call(user=alice, turn=waiting, call_id=call.id, decision="once", now=now)
    assert server.calls == []


def test_the_erasure_of_the_chat_ends_the_request_and_leaves_no_words(
    waiting: Turn, alice: User, chat: Chat, now: datetime, server: FakeToolServer
) -> None:
    # This one waits behind the request.
    start_turn(user=alice, chat=chat, text="And then?", now=now)
    assert "secret words" in str(list(ToolStep.objects.values_list("parts", flat=True)))
    erase_chat(user=alice, chat=chat, now=now)
    assert not Chat.objects.filter(pk=chat.pk).exists()
    assert not ToolStep.objects.exists()
    assert not ToolCall.objects.exists()
    assert server.calls == []
    ended = AuditEvent.objects.filter(type="turn.stopped", turn_id=waiting.pk)
    assert ended.count() == 1


@pytest.mark.parametrize("by", ["person", "hold"])
def test_the_erasure_of_the_message_ends_the_request_and_leaves_no_words(
    waiting: Turn,
    alice: User,
    chat: Chat,
    work: Callable[..., Any],
    now: datetime,
    server: FakeToolServer,
    by: str,
) -> None:
    # This one waits behind the request.
    later = start_turn(user=alice, chat=chat, text="And then?", now=now).turn
    call = list_waiting_calls(waiting)[0]
    message = Message.objects.get(turn=waiting)
    # So the page offers it.
    check_over(message)
    if by == "hold":
        pending = PendingErasure.objects.create(owner=alice, message=message, asked_at=now)
        erase_pending_content(pending, now=now)
    else:
        erase_message(user=alice, message=message, now=now)
    waiting.refresh_from_db()
    assert (waiting.status, waiting.awaits_consent) == ("stopped", False)
    assert (waiting.partial_text, waiting.reply) == ("", None)
    assert not ToolStep.objects.exists()
    assert ToolCall.objects.get().content == ""
    with pytest.raises(ConsentIsOver):
        decide_tool_call(user=alice, turn=waiting, call_id=call.id, decision="once", now=now)
    work(later, DONE)
    later.refresh_from_db()
    assert later.status == "completed"
    assert server.calls == []


def test_an_erasure_of_the_message_over_rest_ends_the_request(
    waiting: Turn, alice: User, chat: Chat, now: datetime
) -> None:
    _, secret = keys.create_key(owner=alice, name="program", scopes=keys.SCOPES, now=now)
    message = Message.objects.get(turn=waiting)
    answer = Program(secret).post(f"chats/{chat.pk}/messages/{message.pk}/erase", {})
    assert answer.status_code == 200, answer.content
    waiting.refresh_from_db()
    assert waiting.status == "stopped"


def test_an_expired_chat_is_erased_although_a_request_waits(
    waiting: Turn, chat: Chat, now: datetime
) -> None:
    Chat.objects.filter(pk=chat.pk).update(temporary=True, updated_at=now - timedelta(days=30))
    assert waiting.awaits_consent
    assert erase_expired(chat_id=chat.pk, now=now + timedelta(days=30))
    assert not Chat.objects.filter(pk=chat.pk).exists()


def test_later_messages_wait(
    waiting: Turn, alice: User, chat: Chat, work: Callable[..., Any], now: datetime
) -> None:
    later = start_turn(user=alice, chat=chat, text="And then?", now=now).turn
    work(later, DONE)
    later.refresh_from_db()
    assert later.status == "queued"
    assert release_expired(now=now) == 0
    decide(waiting, alice, "once", now)
    work(waiting, DONE)
    waiting.refresh_from_db()
    assert waiting.status == "completed"


def test_the_request_is_a_webhook_event_without_arguments(waiting: Turn) -> None:
    event = AuditEvent.objects.get(type="tool.consent_asked")
    ((name, data),) = list_webhook_events(event)
    assert name == "tool.consent_asked"
    assert data == {
        "chat": str(event.chat_id),
        "turn": str(waiting.pk),
        "call": ToolCall.objects.get().pk,
        "server": "files",
        "tool": "echo",
    }


def test_the_page_asks_and_takes_the_decision(
    waiting: Turn, alice: User, chat: Chat, work: Callable[..., Any], server: FakeToolServer
) -> None:
    page = Client()
    page.force_login(alice)
    html = page.get(f"/chats/{chat.pk}/").content.decode()
    call = ToolCall.objects.get()
    assert f'id="consent-{call.pk}"' in html
    assert "secret words" in html
    page.cookies["zone"] = "Asia/Kolkata"
    elsewhere = page.get(f"/chats/{chat.pk}/").content.decode()
    assert f"{call.asked_until:%Y-%m-%d %H:%M} UTC" in elsewhere
    address = f"/chats/{chat.pk}/turns/{waiting.pk}/consent"
    answer = page.post(
        address, {"call": call.pk, "decision": "once"}, headers={"hx-request": "true"}
    )
    assert answer.status_code == 200
    assert f'id="consent-{call.pk}"' not in answer.content.decode()
    work(waiting, DONE)
    assert len(server.calls) == 1
    receipt = page.get(f"/chats/{chat.pk}/turns/{waiting.pk}/receipt").content.decode()
    assert 'data-outcome="ok"' in receipt


def test_another_person_decides_nothing(waiting: Turn, charlie: User, chat: Chat) -> None:
    call = ToolCall.objects.get()
    page = Client()
    page.force_login(charlie)
    address = f"/chats/{chat.pk}/turns/{waiting.pk}/consent"
    assert page.post(address, {"call": call.pk, "decision": "once"}).status_code == 404
    body = {"call": call.pk, "decision": "once"}
    api = f"/api/v1/chats/{chat.pk}/turns/{waiting.pk}/consent"
    assert page.post(api, body, content_type="application/json").status_code == 404
    waiting.refresh_from_db()
    assert waiting.awaits_consent


def test_rest_lists_the_waiting_call_and_takes_the_decision(
    waiting: Turn, alice: User, chat: Chat
) -> None:
    page = Client()
    page.force_login(alice)
    api = f"/api/v1/chats/{chat.pk}/turns/{waiting.pk}"
    (call,) = page.get(api).json()["waiting_calls"]
    assert call["tool"] == "echo"
    body = {"call": call["id"], "decision": "deny"}
    sent = page.post(f"{api}/consent", body, content_type="application/json")
    assert sent.status_code == 202
    again = page.post(f"{api}/consent", body, content_type="application/json")
    assert (again.status_code, again.json()["error"]["code"]) == (409, "consent_is_over")
    assert page.get(api).json()["waiting_calls"] == []
    assert [row["tool"] for row in page.get(api).json()["tool_calls"]] == ["echo"]


def test_a_call_of_another_turn_is_not_found(waiting: Turn, alice: User, now: datetime) -> None:
    other = ToolCall.objects.get().pk + 1
    with pytest.raises(NotFound):
        decide_tool_call(user=alice, turn=waiting, call_id=other, decision="once", now=now)


def test_new_tools_require_consent(connect: Connect) -> None:
    connect()
    ToolDefinition.objects.all().delete()
    connect(asks=True)
    fresh = ToolDefinition(server=ToolServer.objects.get(), name="new")
    assert fresh.asks

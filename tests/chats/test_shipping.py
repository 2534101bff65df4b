"""The ledger as JSON lines on standard output: in order, at least once, resumable."""

import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from chats.background import due_jobs, ledger_export_lines
from chats.ground import queue
from chats.models import Chat
from contextpolicy import event_types, following, ledger
from contextpolicy.audit import ocsf
from contextpolicy.models import AuditEvent, LedgerReader

pytestmark = pytest.mark.django_db

Ship = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def ship(settings: Settings) -> Ship:
    """Ship the pending events and return the lines."""

    def shipping_all(form: str = "own", *, closing: bool = False) -> list[dict[str, Any]]:
        settings.LEDGER_LINES = form
        out = io.StringIO()
        ledger_export_lines.ship_events(clock=timezone.now, is_closing=lambda: closing, out=out)
        return [json.loads(line) for line in out.getvalue().splitlines()]

    return shipping_all


def some(now: datetime, *types: str, **data: Any) -> None:
    """Record events of the instance."""
    for kind in types:
        ledger.record_event(kind, actor="user:1", now=now, data=data)


def test_each_event_is_one_line_in_its_order(ship: Ship, chat: Chat, now: datetime) -> None:
    some(now, "login.succeeded", "model.changed")
    lines = ship()
    events = list(AuditEvent.objects.order_by("pk"))
    assert [line["id"] for line in lines] == [f"{e.scope}#{e.seq}" for e in events]
    assert lines[-1]["schema"] == "palimpsest.audit/1"
    assert lines[-1]["hash"] == events[-1].hash
    assert lines[-1]["previous_hash"] == events[-1].previous_hash
    assert ship() == [], "each once"
    some(now, "skill.created")
    assert [line["type"] for line in ship()] == ["skill.created"]
    assert ledger_export_lines.count_unshipped_events() == 0


@pytest.mark.policy_case(25)
def test_who_is_killed_before_the_place_moves_writes_again(
    ship: Ship, now: datetime, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    some(now, "login.succeeded", "model.changed")

    class Killed(Exception):
        """Simulates the end of the process."""

    def die(*_given: Any, **_named: Any) -> None:
        raise Killed

    with monkeypatch.context() as killing:
        killing.setattr(following, "advance_reader", die)
        with pytest.raises(Killed):
            ship()
    assert [line["type"] for line in ship()] == ["login.succeeded", "model.changed"]


def test_one_process_ships_at_a_time(ship: Ship, now: datetime, db: None) -> None:
    some(now, "login.succeeded")
    assert ledger_export_lines.claim_shipping()
    assert ship() == []
    LedgerReader.objects.update(lease_until=timezone.now() - timedelta(minutes=5))
    assert len(ship()) == 1
    assert ship(closing=True) == []


def test_it_is_sent_where_it_is_switched_on(
    settings: Settings,
    now: datetime,
    sent: list[Any],
    ship: Ship,
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    some(now, "login.succeeded")
    assert ledger_export_lines.enqueue_due() == 0
    assert ship("") == []
    settings.LEDGER_LINES = "ocsf"
    with django_capture_on_commit_callbacks(execute=True):
        due_jobs.run_all_due_jobs(now=now)
    assert (queue.SHIP_LEDGER, {}) in sent


@pytest.mark.parametrize(
    ("kind", "data", "uid", "activity"),
    [
        ("login.succeeded", {"user": 7}, 3002, 1),
        ("login.failed", {}, 3002, 1),
        ("logout.succeeded", {"user": 7}, 3002, 2),
        ("password.changed", {"user": 7}, 3001, 3),
        ("role.changed", {"user": 7}, 3001, 99),
        ("api_key.created", {}, 3001, 1),
        ("api_key.revoked", {}, 3001, 6),
        ("api_key.used", {}, 3002, 1),
        ("policy.created", {"policy": "p"}, 3004, 1),
        ("model.changed", {"model": "m"}, 3004, 3),
        ("webhook.deleted", {}, 3004, 4),
        ("turn.completed", {}, 6003, 99),
        ("ledger.read", {}, 6003, 2),
    ],
)
def test_ocsf_names_the_class_that_comes_nearest(
    kind: str, data: dict[str, Any], uid: int, activity: int, ship: Ship, now: datetime
) -> None:
    some(now, kind, **data)
    (line,) = [each for each in ship("ocsf") if each["message"] == kind]
    assert (line["class_uid"], line["activity_id"]) == (uid, activity)
    assert line["type_uid"] == uid * 100 + activity
    assert line["category_uid"] == uid // 1000
    assert line["time"] == int(now.timestamp() * 1000)
    assert line["status_id"] == (2 if "failed" in kind else 1)
    needed = {3001: "user", 3002: "user", 3004: "entity", 6003: "api"}
    assert line[needed[uid]]
    assert line["unmapped"]["id"] == line["metadata"]["uid"]
    assert line["unmapped"]["type"] == kind


def test_every_type_has_a_class(now: datetime) -> None:
    for kind in event_types.EVENT_TYPES:
        event = AuditEvent(type=kind, scope="instance", seq=1, at=now, actor="system", data={})
        told = ocsf.build_ocsf_event(event)
        assert told["class_uid"] in ocsf.CLASS_NAMES
        assert told["metadata"]["event_code"] == kind
        assert "\n" not in ocsf.format_ocsf_line(event)


@pytest.mark.policy_case(24)
def test_a_late_commit_comes_when_it_is_there(
    ship: Ship, now: datetime, alice: User, chat: Chat
) -> None:
    ship()
    some(timezone.now(), "login.succeeded", "logout.succeeded")
    place = LedgerReader.objects.get(pk=ledger_export_lines.READER)
    late, newest = AuditEvent.objects.order_by("-pk")[:2][::-1]
    # Simulates a reader that passed the first event while it had an id but no commit.
    place.last, place.missed = newest.pk, [[late.pk, timezone.now().isoformat()]]
    place.save()
    assert [line["type"] for line in ship()] == ["login.succeeded"]

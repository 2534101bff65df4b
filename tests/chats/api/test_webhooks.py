"""Webhooks over REST: create, events of the client's own messages, test delivery, redelivery."""

import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import Group, User
from django.utils import timezone
from pytest_django import Settings

from chats.models import Chat, Webhook, WebhookDelivery
from chats.record import outbox
from chats.webhooks import delivering, managing
from contextpolicy import ledger, roles
from contextpolicy.models import AuditEvent
from tests.chats.api.programs import MakeProgram, Program
from tests.fakes.receiver import Receiver
from tests.support.error_codes import read_status_and_code
from tests.support.team_endpoints import PLANNER, build_team_message

NEW: dict[str, Any] = {
    "url": "https://example.org/told?key=1",
    "events": ["message.added", "task.changed"],
}


def code(answer: Any) -> str:
    """Return the code of a refusal."""
    return read_status_and_code(answer)[1]


def deliver() -> int:
    """Run the delivery task."""
    return delivering.send_due_deliveries(lane="fast", clock=timezone.now)


def test_a_webhook_is_made_read_changed_and_deleted(of_alice: Program) -> None:
    made = of_alice.post("webhooks", NEW)
    assert made.status_code == 201
    secret = made.json().pop("secret")
    assert secret.startswith("whsec_")
    webhook = made.json()
    assert of_alice.get("webhooks").json() == {"data": [webhook]}
    path = f"webhooks/{webhook['id']}"
    assert of_alice.get(path).json() == webhook
    assert (webhook["off"], webhook["failing_since"]) == ("", None)
    assert secret not in Webhook.objects.get().secret
    changed = of_alice.call("PATCH", path, {"is_on": False, "events": ["turn.finished"]})
    assert changed.json() == {**webhook, "off": "owner", "events": ["turn.finished"]}
    assert code(of_alice.post(f"{path}/test", {})) == "webhook_off"
    assert of_alice.call("DELETE", path).status_code == 204
    assert of_alice.get("webhooks").json() == {"data": []}
    kinds = AuditEvent.objects.filter(type__startswith="webhook.").order_by("pk")
    assert [event.type for event in kinds] == [
        "webhook.created",
        "webhook.changed",
        "webhook.deleted",
    ]
    # Only the host is recorded, because the URL may contain a secret.
    assert {event.data["host"] for event in kinds} == {"example.org"}


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "https://127.0.0.1/",
        "https://10.1.2.3/told",
        "https://169.254.169.254/latest",
        "https://user:word@example.org/",
        "https://example.org/#part",
        "https://example.org/?a=\u00e4",
        "https://example.org/?a=b c",
        "ftp://example.org/",
        "https://localhost/",
        "example.org",
        "https://example.org/" + "x" * 2_000,
    ],
)
def test_s16_addresses_that_are_not_public_are_refused(url: str, of_alice: Program) -> None:
    answer = of_alice.post("webhooks", {**NEW, "url": url})
    assert answer.status_code == 422 if len(url) <= 2_000 else answer.status_code in {400, 422}
    assert answer.json()["error"]["param"] == "url"
    assert not Webhook.objects.exists()


def test_what_cannot_be_is_refused_with_its_field(of_alice: Program) -> None:
    for events, expected in (
        ([], "unknown_event"),
        (["nothing"], "unknown_event"),
        (["ledger.recorded"], "event_not_allowed"),
    ):
        answer = of_alice.post("webhooks", {**NEW, "events": events})
        assert (code(answer), answer.json()["error"]["param"]) == (expected, "events")
    for _ in range(managing.WEBHOOKS_PER_PERSON):
        assert of_alice.post("webhooks", NEW).status_code == 201
    assert code(of_alice.post("webhooks", NEW)) == "too_many_webhooks"


@pytest.mark.requirement("S3.10", by="integrator")
def test_a_program_is_told_of_messages_and_tasks_of_its_team(
    of_alice: Program, alice: User, chat: Chat, receiver: Receiver
) -> None:
    made = of_alice.post("webhooks", {**NEW, "url": receiver.url}).json()
    body = build_team_message("A plan", PLANNER)
    added = of_alice.post(f"chats/{chat.pk}/team/messages", body)
    assert added.status_code == 201, added.content
    of_alice.call("PATCH", f"chats/{chat.pk}/team", {"teamTask": "Ship it"})
    assert deliver() == 2
    told = [json.loads(body) for _, body in receiver.came]
    assert [body["type"] for body in told] == ["message.added", "task.changed"]
    assert {body["data"]["chat"] for body in told} == {str(chat.pk)}
    assert "A plan" not in str(told)
    assert "Ship it" not in str(told)
    log = of_alice.get(f"webhooks/{made['id']}/deliveries?limit=1").json()
    [newest] = log["data"]
    assert (newest["event"], newest["status"], newest["tries"], newest["answer"]) == (
        "task.changed",
        "delivered",
        1,
        200,
    )
    assert newest["next_at"] is None
    assert json.loads(newest["body"]) == told[1]
    rest = of_alice.get(f"webhooks/{made['id']}/deliveries?cursor={log['next_cursor']}").json()
    assert [row["event"] for row in rest["data"]] == ["message.added"]


def test_a_delivery_is_tried_out_and_sent_again_under_its_id(
    of_alice: Program, receiver: Receiver
) -> None:
    made = of_alice.post("webhooks", {**NEW, "url": receiver.url}).json()
    path = f"webhooks/{made['id']}"
    tried = of_alice.post(f"{path}/test", {})
    assert (tried.status_code, tried.json()["status"]) == (202, "waiting")
    assert tried.json()["next_at"]
    again = f"{path}/deliveries/{tried.json()['id']}/send"
    assert code(of_alice.post(again, {})) == "delivery_waits"
    assert deliver() == 1
    assert of_alice.post(again, {}).status_code == 202
    assert deliver() == 1
    first, second = (headers["webhook-id"] for headers, _ in receiver.came)
    assert first == second
    assert [json.loads(body)["type"] for _, body in receiver.came] == ["webhook.test"] * 2


def test_a_repeated_post_makes_one_webhook(of_alice: Program, settings: Settings) -> None:
    made: list[dict[str, Any]] = [
        of_alice.post("webhooks", NEW, HTTP_IDEMPOTENCY_KEY="once").json() for _ in range(2)
    ]
    assert made[0]["id"] == made[1]["id"]
    assert Webhook.objects.count() == 1


def test_a_key_without_the_scope_sees_no_webhook(program: MakeProgram, alice: User) -> None:
    client = program(alice, scopes=("chats:read", "chats:write"))
    assert client.get("webhooks").status_code == 403
    assert client.post("webhooks", NEW).status_code == 403


AUDIT = {"url": "https://example.org/told", "events": ["ledger.recorded"]}


def test_a_key_gets_audit_events_only_with_the_scope_that_reads_them(
    program: MakeProgram, bob: User
) -> None:
    roles.seed_roles()
    bob.groups.add(Group.objects.get(name=roles.AUDITOR))
    narrow = program(bob, scopes=["webhooks"])
    wide = program(bob, scopes=["webhooks", "audit:read"])
    assert code(narrow.post("webhooks", AUDIT)) == "insufficient_scope"
    policies = {**AUDIT, "events": ["policy.changed"]}
    assert code(wide.post("webhooks", policies)) == "insufficient_scope"
    made = wide.post("webhooks", AUDIT)
    assert made.status_code == 201
    path = f"webhooks/{made.json()['id']}"
    outbox.SUBSCRIBERS.known_until = 0.0
    ledger.record_event("chat.exported", actor="user:1", now=timezone.now(), data={})
    assert wide.get(f"{path}/deliveries").json()["data"]
    # Neither the log nor another address leads around it.
    assert narrow.get(f"{path}/deliveries").json()["data"] == []
    moved = {"url": "https://example.net/told"}
    assert code(narrow.call("PATCH", path, moved)) == "insufficient_scope"
    assert narrow.call("PATCH", path, {"is_on": False}).status_code == 200
    # Pending deliveries would go to the new address, also if the events change.
    for given in ({"events": NEW["events"], **moved}, {"events": NEW["events"]}, moved):
        answer = narrow.call("PATCH", path, given)
        assert code(answer) == "insufficient_scope" if "url" in given else answer.status_code == 200
    assert Webhook.objects.get().url == AUDIT["url"]
    WebhookDelivery.objects.update(status=WebhookDelivery.Status.DELIVERED)
    assert wide.call("PATCH", path, {"is_on": True}).status_code == 200
    ended = wide.get(f"{path}/deliveries").json()["data"][0]["id"]
    assert code(narrow.post(f"{path}/deliveries/{ended}/send", {})) == "not_found"
    assert wide.post(f"{path}/deliveries/{ended}/send", {}).status_code == 202
    own = narrow.post("webhooks", NEW).json()
    more = {"events": ["ledger.recorded"]}
    assert code(narrow.call("PATCH", f"webhooks/{own['id']}", more)) == "insufficient_scope"


def test_a_session_needs_a_recent_sign_in_for_a_new_address(browser: Program, alice: User) -> None:
    with time_machine.travel(timezone.now() + timedelta(minutes=16)):
        answer = browser.post("webhooks", NEW)
        assert code(answer) == "reauthentication_required"
        webhook, _ = managing.create_webhook(
            owner=alice, now=timezone.now(), url=NEW["url"], events=NEW["events"]
        )
        path = f"webhooks/{webhook.pk}"
        answer = browser.call("PATCH", path, {"url": "https://example.net/"})
        assert code(answer) == "reauthentication_required"
        assert browser.call("PATCH", path, {"is_on": False}).status_code == 200

"""Events of webhooks: which events are sent, when, and to which owners."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.utils import timezone

from chats.actions import lifecycle
from chats.ground import queue
from chats.ground.refusals import NotFound
from chats.models import Chat, Webhook, WebhookDelivery
from chats.providers.base import Finished, TextDelta
from chats.record import outbox
from chats.teams import conversation
from chats.turns.start import start_turn
from chats.webhooks import delivering, delivery_results, managing
from contextpolicy import ledger, publish, roles
from contextpolicy.models import AuditEvent
from tests.fakes.receiver import Receiver
from tests.support.clocks import Clock
from tests.support.scripted_worker import InlineWorker

Work = Callable[..., InlineWorker]
WORDS = "Alice's secret plan"


def bodies(webhook: Webhook) -> list[dict[str, Any]]:
    """Return the pending bodies for the webhook, in order."""
    return [json.loads(row.body) for row in webhook.deliveries.order_by("pk")]


def names(webhook: Webhook) -> list[str]:
    """Return the names of the pending events."""
    return [body["type"] for body in bodies(webhook)]


def test_a_turn_tells_of_its_messages_and_of_its_end(
    webhook: Webhook,
    chat: Chat,
    alice: User,
    now: datetime,
    work: Work,
    receiver: Receiver,
    clock: Clock,
    made: tuple[Webhook, str],
) -> None:
    turn = start_turn(user=alice, chat=chat, text=WORDS, now=now).turn
    work(turn, [TextDelta("An answer"), Finished("stop")])
    assert names(webhook) == ["message.added", "message.added", "turn.finished"]
    asked, answered, finished = (body["data"] for body in bodies(webhook))
    assert asked["chat"] == answered["chat"] == finished["chat"] == str(chat.pk)
    assert [asked["role"], answered["role"]] == ["user", "assistant"]
    assert finished["status"] == "completed"
    assert finished["turn"] == str(turn.pk)
    assert finished["message"] == answered["message"]
    # The worker uses the real time.
    clock.now = timezone.now()
    assert delivering.send_due_deliveries(lane="fast", clock=clock) == 3
    assert [json.loads(body)["type"] for _, body in receiver.came] == names(webhook)
    for headers, body in receiver.came:
        assert WORDS.encode() not in body
        assert b"An answer" not in body
        assert headers["path"] == "/told?key=a%20b"
        assert headers["content-type"] == "application/json"
        stamp = headers["webhook-timestamp"]
        assert stamp == str(int(clock().timestamp()))
        signed = f"{headers['webhook-id']}.{stamp}.".encode() + body
        key = base64.b64decode(made[1].removeprefix("whsec_"))
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
    assert {row.status for row in webhook.deliveries.all()} == {"delivered"}


def test_a_message_that_another_reply_answers_ends_its_turn(
    webhook: Webhook, chat: Chat, alice: User, now: datetime, work: Work
) -> None:
    first = start_turn(user=alice, chat=chat, text=WORDS, now=now).turn
    second = start_turn(user=alice, chat=chat, text="And this?", now=now).turn
    work(first, [TextDelta("Both"), Finished("stop")])
    ends = [body["data"] for body in bodies(webhook) if body["type"] == "turn.finished"]
    assert [(end["turn"], end["status"]) for end in ends] == [
        (str(second.pk), "absorbed"),
        (str(first.pk), "completed"),
    ]
    assert ends[0]["absorbed_by"] == str(first.pk)


def test_an_event_that_did_not_happen_is_not_told(
    webhook: Webhook, chat: Chat, alice: User, now: datetime
) -> None:
    class Never(Exception):
        pass

    def begin() -> None:
        with transaction.atomic():
            start_turn(user=alice, chat=chat, text=WORDS, now=now)
            raise Never

    with pytest.raises(Never):
        begin()
    assert names(webhook) == []


def test_nobody_hears_of_the_chats_of_others(
    webhook: Webhook, charlie: User, demo_model: object, now: datetime
) -> None:
    chat = lifecycle.create_chat(owner=charlie, now=now)
    start_turn(user=charlie, chat=chat, text=WORDS, now=now)
    assert names(webhook) == []


def test_only_chosen_events_are_told(
    webhook: Webhook, chat: Chat, alice: User, now: datetime
) -> None:
    managing.update_webhook(webhook=webhook, events=["task.changed"], now=now)
    start_turn(user=alice, chat=chat, text=WORDS, now=now)
    assert names(webhook) == []
    conversation.change_task(chat=chat, task="Plan it", actor=f"user:{alice.pk}", now=now)
    assert names(webhook) == ["task.changed"]
    assert bodies(webhook)[0]["data"] == {"chat": str(chat.pk), "bytes": 7}


def test_a_webhook_that_is_off_misses_what_happens(
    webhook: Webhook, chat: Chat, alice: User, now: datetime
) -> None:
    managing.update_webhook(webhook=webhook, is_on=False, now=now)
    start_turn(user=alice, chat=chat, text=WORDS, now=now)
    managing.update_webhook(webhook=webhook, is_on=True, now=now)
    assert names(webhook) == []


def auditor(user: User) -> User:
    """Give the user the auditor role, which reads policies and the audit log."""
    roles.seed_roles()
    user.groups.add(Group.objects.get(name=roles.AUDITOR))
    return User.objects.get(pk=user.pk)


def test_policies_and_the_ledger_are_told_to_those_who_may_see_them(
    bob: User, alice: User, receiver: Receiver, now: datetime, clock: Clock
) -> None:
    for event in ("policy.changed", "ledger.recorded"):
        with pytest.raises(managing.EventNotAllowed):
            managing.create_webhook(owner=bob, url=receiver.url, events=[event], now=now)
    webhook, _ = managing.create_webhook(
        owner=auditor(bob), url=receiver.url, events=["policy.changed", "ledger.recorded"], now=now
    )
    publish.create_policy(
        slug="short",
        name="Short",
        values={"strategy": "simple"},
        actor=f"user:{alice.pk}",
        now=now,
    )
    assert names(webhook) == [
        "policy.changed",
        "ledger.recorded",
        "policy.changed",
        "ledger.recorded",
    ]
    told = [body["data"] for body in bodies(webhook) if body["type"] == "policy.changed"]
    assert told == [
        {"action": "created", "policy": "short"},
        {"action": "version_created", "policy": "short", "version": 1},
    ]
    recorded = [body["data"] for body in bodies(webhook) if body["type"] == "ledger.recorded"]
    for data in recorded:
        row = AuditEvent.objects.get(scope=data["scope"], seq=data["seq"])
        assert (data["hash"], data["previous_hash"]) == (row.hash, row.previous_hash)
        assert ledger.compute_event_hash(row) == data["hash"]
        # The receiver can check with the hash that the row was not changed in transit.
        own = {name: data[name] for name in data if name not in ("hash", "previous_hash")}
        line = json.dumps(own, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256((data["previous_hash"] + line).encode()).hexdigest() == data["hash"]
    waiting = managing.list_delivery_log(webhook)[0]
    bob.groups.clear()
    webhook = managing.get_webhook(user=bob, webhook_id=webhook.pk)
    assert list(managing.list_delivery_log(webhook)) == []
    with pytest.raises(NotFound):
        managing.get_delivery(webhook=webhook, public_id=waiting.public_id)
    assert delivering.send_due_deliveries(lane="fast", clock=clock) == 0
    assert receiver.came == []
    failed = managing.list_delivery_log(webhook).values_list("status", "problem", "body")
    assert set(failed) == {("failed", "not_allowed", "")}
    # With the permission again, the log has no more than the result.
    webhook = managing.get_webhook(user=auditor(bob), webhook_id=webhook.pk)
    assert list(managing.list_delivery_log(webhook))
    with pytest.raises(NotFound):
        managing.get_delivery(webhook=webhook, public_id=waiting.public_id)


def test_a_process_hears_of_a_webhook_within_seconds(webhook: Webhook) -> None:
    known = outbox.Subscribers()
    assert [one.webhook for one in known.current()] == [webhook.pk]
    Webhook.objects.update(off=Webhook.Off.OWNER)
    assert known.current()
    known.known_until = 0.0
    assert known.current() == ()


def test_a_webhook_deleted_a_moment_ago_undoes_no_reply(
    webhook: Webhook, chat: Chat, alice: User, now: datetime, clock: Clock, receiver: Receiver
) -> None:
    outbox.SUBSCRIBERS.current()
    Webhook.objects.filter(pk=webhook.pk).delete()
    turn = start_turn(user=alice, chat=chat, text=WORDS, now=now).turn
    assert turn.status == turn.Status.QUEUED
    assert delivering.send_due_deliveries(lane="fast", clock=clock) == 0
    other, _ = managing.create_webhook(
        owner=alice, url=receiver.url, events=["task.changed"], now=now
    )
    delivery_results.tidy_deliveries(now=now + delivery_results.TIDY_EVERY)
    assert not WebhookDelivery.objects.exclude(webhook=other).exists()


def test_who_accepts_a_message_sends_the_task_and_the_sweep_finds_what_it_lost(
    webhook: Webhook,
    chat: Chat,
    alice: User,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        start_turn(user=alice, chat=chat, text=WORDS, now=now)
    assert (queue.DELIVER, {"lane": "fast"}) in sent
    sent.clear()
    with django_capture_on_commit_callbacks(execute=True):
        assert outbox.enqueue_due(now=now) == 1
    assert sent == [(queue.DELIVER, {"lane": "fast"})]


def test_large_data_of_the_ledger_are_left_out(now: datetime, webhook: Webhook) -> None:
    data = {"scope": "instance", "seq": 7, "data": {"long": "x" * outbox.MOST_BYTES}}
    row = outbox.build_delivery("ledger.recorded", data, webhook=webhook.pk, at=now)
    assert json.loads(row.body)["data"] == {"scope": "instance", "seq": 7, "left_out": True}


def test_the_example_of_the_documentation_knows_a_genuine_delivery(
    made: tuple[Webhook, str], receiver: Receiver, clock: Clock
) -> None:
    text = (Path(__file__).parents[3] / "docs/webhooks.md").read_text()
    code = (
        text.partition("## Verify the signature")[2].partition("```python\n")[2].partition("```")[0]
    )
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102  # our own documentation
    clock.now = timezone.now()
    managing.queue_test_event(webhook=made[0], now=clock())
    assert delivering.send_due_deliveries(lane="fast", clock=clock) == 1
    [(headers, body)] = receiver.came
    assert names["is_genuine"](made[1], headers, body)
    assert not names["is_genuine"](made[1], headers, body + b" ")
    old = {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) - 400)}
    assert not names["is_genuine"](made[1], old, body)

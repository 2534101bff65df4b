"""Webhook deliveries: retries, pauses, order, limits, and servers that hang."""

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.management import call_command
from pytest_django import Settings

from chats.background.due_jobs import run_due_job
from chats.ground import leases, secrets
from chats.models import Webhook, WebhookDelivery
from chats.record import outbox
from chats.webhooks import delivering, delivery_results, managing
from contextpolicy.models import AuditEvent
from tests.fakes.receiver import Receiver, receiving
from tests.support.clocks import Clock

Status = WebhookDelivery.Status


def told(webhook: Webhook, *, at: datetime, times: int = 1) -> list[WebhookDelivery]:
    """Create pending deliveries for the webhook."""
    rows = [
        outbox.build_delivery("task.changed", {"bytes": number}, webhook=webhook.pk, at=at)
        for number in range(times)
    ]
    return WebhookDelivery.objects.bulk_create(rows)


def numbers(receiver: Receiver) -> list[int]:
    """Return the numbers of the received deliveries."""
    return [json.loads(body)["data"]["bytes"] for _, body in receiver.came]


def send(clock: Clock, lane: str = "fast") -> int:
    """Run one task of the lane."""
    return delivering.send_due_deliveries(lane=lane, clock=clock)


def test_s16_a_server_in_trouble_rests_and_keeps_the_order(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock(), times=3)
    receiver.statuses = [500, 503]
    assert send(clock) == 0
    assert send(clock) == 0
    assert numbers(receiver) == [0]
    webhook.refresh_from_db()
    assert webhook.failing_since == clock()
    clock.wait(seconds=7)
    assert send(clock) == 0
    clock.wait(seconds=80)
    assert send(clock) == 3
    assert numbers(receiver) == [0, 0, 0, 1, 2]
    webhook.refresh_from_db()
    states = [webhook.failing_since, webhook.rests_until, webhook.lease_until]
    assert not any(states)
    first = [headers["webhook-id"] for headers, _ in receiver.came[:3]]
    assert len(set(first)) == 1


@pytest.mark.parametrize("status", [400, 401, 404])
def test_s16_a_delivery_refused_four_times_lets_the_rest_pass(
    webhook: Webhook, receiver: Receiver, clock: Clock, status: int
) -> None:
    told(webhook, at=clock(), times=3)
    receiver.statuses = [status] * 4
    for tries, seconds in enumerate((5, 60, 300), start=1):
        assert send(clock) == 0
        assert numbers(receiver) == [0] * tries
        refused = webhook.deliveries.order_by("pk")[0]
        assert (refused.tries, refused.answer, refused.problem) == (tries, status, "refused")
        assert timedelta(seconds=seconds * 0.8) <= refused.next_at - clock()
        clock.now = refused.next_at
    assert send(clock) == 2
    assert numbers(receiver) == [0, 0, 0, 0, 1, 2]
    refused = webhook.deliveries.get(status=Status.WAITING)
    assert (refused.tries, webhook.deliveries.filter(status=Status.DELIVERED).count()) == (4, 2)


def test_after_a_delivery_is_given_up_the_next_one_is_sent_soon(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock(), times=2)
    webhook.deliveries.filter(pk=min(webhook.deliveries.values_list("pk", flat=True))).update(
        tries=7
    )
    receiver.statuses = [503]
    assert send(clock) == 0
    clock.wait(seconds=7)
    assert send(clock) == 1
    assert numbers(receiver) == [0, 1]


def test_a_new_address_gets_all_attempts_again(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock())
    webhook.deliveries.update(tries=7)
    receiver.statuses = [503]
    managing.update_webhook(webhook=webhook, url=f"{receiver.url}&new=1", now=clock())
    assert send(clock) == 0
    row = webhook.deliveries.get()
    assert (row.status, row.tries) == (Status.WAITING, 1)


def test_s16_eight_tries_within_a_day_then_it_is_given_up(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    began = clock()
    [row] = told(webhook, at=began)
    receiver.statuses = [400] * 20
    while True:
        send(clock)
        row.refresh_from_db()
        if row.status != Status.WAITING:
            break
        clock.now = row.next_at
    assert (row.status, row.tries) == (Status.FAILED, 8)
    assert timedelta(hours=18) < clock() - began < timedelta(hours=30)
    managing.resend_delivery(webhook=webhook, delivery=row, now=clock())
    receiver.statuses = []
    assert send(clock) == 1
    row.refresh_from_db()
    assert row.status == Status.DELIVERED
    with pytest.raises(managing.DeliveryWaits):
        managing.resend_delivery(
            webhook=webhook, delivery=told(webhook, at=clock())[0], now=clock()
        )


def test_s16_no_redirect_is_followed(webhook: Webhook, receiver: Receiver, clock: Clock) -> None:
    told(webhook, at=clock())
    receiver.statuses = [307]
    assert send(clock) == 0
    assert len(receiver.came) == 1
    assert webhook.deliveries.get().problem == "redirected"


def test_s16_a_name_that_leads_into_a_private_network_is_told_nothing(
    webhook: Webhook, receiver: Receiver, clock: Clock, settings: Settings
) -> None:
    told(webhook, at=clock())
    settings.ALLOWED_PRIVATE_WEBHOOKS = []
    assert send(clock) == 0
    assert receiver.came == []
    assert webhook.deliveries.get().problem == "address_refused"


def test_a_closed_port_is_tried_again(webhook: Webhook, clock: Clock, settings: Settings) -> None:
    settings.ALLOWED_PRIVATE_WEBHOOKS = ["127.0.0.1:9"]
    Webhook.objects.update(url="http://127.0.0.1:9/")
    told(webhook, at=clock())
    assert send(clock) == 0
    row = webhook.deliveries.get()
    assert (row.status, row.tries, row.problem, row.answer) == (
        Status.WAITING,
        1,
        "no_connection",
        None,
    )


def test_a_server_that_hangs_costs_its_own_time_once(
    alice: User,
    receiver: Receiver,
    clock: Clock,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivering, "SECONDS", 1.0)
    with receiving() as hangs:
        hangs.seconds = 3.0
        settings.ALLOWED_PRIVATE_WEBHOOKS = [receiver.host, hangs.host]
        for url in [hangs.url] * 8 + [receiver.url]:
            row, _ = managing.create_webhook(
                owner=alice, url=url, events=["task.changed"], now=clock()
            )
            told(row, at=clock(), times=30)
        began = time.monotonic()
        assert send(clock) == 30
        # All webhooks time out in parallel, one attempt each.
        assert time.monotonic() - began < 3
        assert len(hangs.came) <= 8
        assert WebhookDelivery.objects.filter(tries=1, problem="timeout").count() == 8
        assert numbers(receiver) == list(range(30))
        assert send(clock) == 0


def test_a_test_delivery_keeps_the_order_of_what_waits(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock(), times=3)
    receiver.statuses = [200, 503]
    assert send(clock) == 1
    clock.wait(seconds=1)
    managing.queue_test_event(webhook=webhook, now=clock())
    assert send(clock) == 3
    came = [json.loads(body)["data"].get("bytes", "test") for _, body in receiver.came]
    assert came == [0, 1, 1, 2, "test"]


@pytest.mark.parametrize("how", ["switched on", "sent again"])
def test_nothing_overtakes_a_delivery_that_waits(
    webhook: Webhook, receiver: Receiver, clock: Clock, how: str
) -> None:
    first, *_ = told(webhook, at=clock(), times=3)
    receiver.statuses = [200, 503]
    assert send(clock) == 1
    clock.wait(seconds=1)
    if how == "switched on":
        for is_on in (False, True):
            managing.update_webhook(webhook=webhook, is_on=is_on, now=clock())
    else:
        managing.resend_delivery(webhook=webhook, delivery=first, now=clock())
    send(clock)
    assert numbers(receiver)[2:] == ([1, 2] if how == "switched on" else [0, 1, 2])


@pytest.mark.parametrize("status", [301, 308, 400, 403, 404, 408, 422, 429, 502])
def test_what_concerns_every_delivery_keeps_the_order(
    webhook: Webhook, receiver: Receiver, clock: Clock, status: int
) -> None:
    told(webhook, at=clock(), times=2)
    receiver.statuses = [status]
    assert send(clock) == 0
    clock.wait(seconds=1)
    told(webhook, at=clock())
    assert send(clock) == 0
    clock.wait(seconds=6)
    assert send(clock) == 3
    assert numbers(receiver) == [0, 0, 1, 0]


def test_nothing_is_sent_after_the_answer_that_an_address_is_gone(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    receiver.statuses = [410]
    told(webhook, at=clock(), times=3)
    assert send(clock) == 0
    assert numbers(receiver) == [0]
    managing.update_webhook(webhook=webhook, is_on=True, now=clock())
    assert send(clock) == 3
    assert numbers(receiver) == [0, 0, 1, 2]


def interrupt(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Run `change` while the first request of the next task is open."""
    ask, changes = delivering.send_delivery, [change]

    async def asking(*given: Any, **more: Any) -> delivery_results.Answer:
        answer = await ask(*given, **more)
        while changes:
            await sync_to_async(changes.pop())()
        return answer

    monkeypatch.setattr(delivering, "send_delivery", asking)


def test_a_test_that_is_queued_during_a_request_waits_with_it(
    webhook: Webhook, receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(webhook, at=clock(), times=2)
    receiver.statuses = [503]
    interrupt(monkeypatch, lambda: managing.queue_test_event(webhook=webhook, now=clock()))
    assert send(clock) == 0
    clock.wait(seconds=1)
    assert send(clock) == 0
    clock.wait(seconds=6)
    assert send(clock) == 3
    came = [json.loads(body)["data"].get("bytes", "test") for _, body in receiver.came]
    assert came == [0, 0, 1, "test"]


def test_a_webhook_switched_off_and_on_during_a_request_keeps_the_order(
    webhook: Webhook, receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(webhook, at=clock(), times=2)
    receiver.statuses = [503]

    def switch() -> None:
        for is_on in (False, True):
            managing.update_webhook(webhook=webhook, is_on=is_on, now=clock())
        # Another process finds it taken.
        found = delivering.claim_webhooks(lane="fast", now=clock(), most=5)
        assert found == []

    interrupt(monkeypatch, switch)
    send(clock)
    clock.wait(seconds=7)
    send(clock)
    assert numbers(receiver) == [0, 0, 1]


def test_a_failure_at_the_old_address_does_not_pause_the_new_one(
    webhook: Webhook,
    receiver: Receiver,
    clock: Clock,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told(webhook, at=clock(), times=3)
    WebhookDelivery.objects.update(tries=6)
    receiver.statuses = [200, 503]
    with receiving() as new:
        settings.ALLOWED_PRIVATE_WEBHOOKS = [receiver.host, new.host]
        interrupt(
            monkeypatch,
            lambda: managing.update_webhook(webhook=webhook, url=new.url, now=clock()),
        )
        assert send(clock) == 3
        assert (numbers(receiver), numbers(new)) == ([0, 1], [1, 2])


@pytest.mark.parametrize("status", [200, 503])
def test_a_worker_that_lost_its_webhook_changes_only_what_was_delivered(
    webhook: Webhook, receiver: Receiver, clock: Clock, status: int
) -> None:
    """It was frozen or killed during a request. Another one continued with the same delivery."""
    told(webhook, at=clock(), times=2)
    [frozen] = delivering.claim_webhooks(lane="fast", now=clock(), most=5)
    Webhook.objects.update(lease_until=leases.compute_expired_end())
    assert send(clock) == 2
    assert numbers(receiver) == [0, 1]
    told(webhook, at=clock())
    [other] = delivering.claim_webhooks(lane="fast", now=clock(), most=5)
    problem = "" if status == 200 else "refused"
    frozen.answers.append(delivery_results.Answer(status=status, problem=problem, seconds=9.0))
    delivery_results.store_delivery_results(frozen, now=clock())
    row = Webhook.objects.get()
    assert row.lease_until == other.webhook.lease_until
    assert (row.rests_until, row.failing_since, row.is_slow) == (None, None, False)
    first = WebhookDelivery.objects.order_by("pk")[0]
    assert (first.status, first.tries, first.problem) == (Status.DELIVERED, 1, "")


def test_a_webhook_that_began_to_pause_during_the_claim_is_not_claimed(
    webhook: Webhook, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(webhook, at=clock(), times=2)
    # PostgreSQL reads such a row again when it locks it, but not the conditions of other rows.
    Webhook.objects.update(rests_until=clock() + timedelta(seconds=5))
    monkeypatch.setattr(
        delivering, "select_claimable_webhooks", lambda **_given: Webhook.objects.all()
    )
    assert delivering.claim_webhooks(lane="fast", now=clock(), most=5) == []
    assert Webhook.objects.get().lease_until is None


def test_servers_that_hang_delay_nobody_else(
    alice: User,
    bob: User,
    receiver: Receiver,
    clock: Clock,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A delivery to another webhook is sent within two seconds while servers hang (A13)."""
    monkeypatch.setattr(delivering, "SECONDS", 4.0)
    claim, came = delivering.claim_webhooks, []
    with receiving() as hangs:
        hangs.seconds = 6.0
        settings.ALLOWED_PRIVATE_WEBHOOKS = [receiver.host, hangs.host]
        for _ in range(3):
            row, _ = managing.create_webhook(
                owner=alice, url=hangs.url, events=["task.changed"], now=clock()
            )
            told(row, at=clock(), times=2)
        prompt, _ = managing.create_webhook(
            owner=bob, url=receiver.url, events=["task.changed"], now=clock()
        )
        told(prompt, at=clock())

        def claiming(**given: Any) -> Any:
            """Add a delivery at each claim until the receiver has three."""
            came.append((time.monotonic(), len(receiver.came)))
            if 0 < len(receiver.came) < 3:
                told(prompt, at=clock())
            return claim(**given)

        monkeypatch.setattr(delivering, "claim_webhooks", claiming)
        assert send(clock) >= 3
        began = came[0][0]
        third = next(at for at, count in came if count >= 3)
        assert third - began < 2.5
        assert len(hangs.came) == 3
        assert WebhookDelivery.objects.filter(problem="timeout").count() == 3


@contextmanager
def refusing_to_answer() -> Iterator[str]:
    """Return the host of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def hanging(owner: User, *, url: str, count: int, at: datetime) -> None:
    """Create new webhooks with one delivery each, which are claimed before all others."""
    rows = [
        Webhook(
            pk=uuid.UUID(int=number),
            owner=owner,
            url=url,
            secret=secrets.encrypt("whsec_eA=="),
            events=["task.changed"],
            created_at=at,
            tidied_at=at,
        )
        for number in range(count)
    ]
    for row in Webhook.objects.bulk_create(rows):
        told(row, at=at)


def measure_arrivals(receiver: Receiver, run: Callable[[], int]) -> list[float]:
    """Return the seconds after which the receiver got each delivery while `run` sends."""
    arrived: list[float] = []
    over = threading.Event()
    began = time.monotonic()

    def watch() -> None:
        while not over.wait(0.01):
            new = len(receiver.came) - len(arrived)
            arrived.extend([time.monotonic() - began] * new)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        over.set()
        watcher.join()
    return arrived


@pytest.mark.parametrize("count", [30, 130])
def test_new_webhooks_whose_servers_hang_delay_nobody_else(
    webhook: Webhook,
    bob: User,
    receiver: Receiver,
    clock: Clock,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
) -> None:
    """More of them than the lane has slots do not delay a delivery by more than 2 seconds."""
    monkeypatch.setattr(delivering, "SECONDS", 4.0)
    with refusing_to_answer() as host:
        settings.ALLOWED_PRIVATE_WEBHOOKS = [receiver.host, host]
        hanging(bob, url=f"http://{host}/", count=count, at=clock())
        told(webhook, at=clock())
        [arrived] = measure_arrivals(receiver, lambda: send(clock))
    assert arrived < 2
    moved = Webhook.objects.filter(owner=bob, is_slow=True, failing_since=None)
    # Those that made room are tried again as slow ones. It does not count as a failure.
    assert moved.exists() == (count > delivering.AT_ONCE)
    assert not WebhookDelivery.objects.filter(webhook__in=moved, tries__gt=0).exists()
    assert Webhook.objects.filter(owner=bob, is_slow=True).count() == count


def test_the_oldest_deliveries_of_each_webhook_are_claimed_together(
    webhook: Webhook, bob: User, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "IN_A_ROW", 3)
    first = told(webhook, at=clock(), times=20)[:3]
    hanging(bob, url="https://example.com/", count=2, at=clock())
    batches = delivering.claim_webhooks(lane="fast", now=clock(), most=5)
    assert [len(batch.waiting) for batch in batches] == [1, 1, 3]
    assert list(batches[-1].waiting) == first


def test_a_full_lane_gives_up_no_request_while_nobody_waits(
    webhook: Webhook, receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "AT_ONCE", 1)
    monkeypatch.setattr(delivering, "PATIENT_SECONDS", 0.1)
    receiver.seconds = 1.0
    told(webhook, at=clock())
    assert send(clock) == 1
    assert len(receiver.came) == 1
    assert not Webhook.objects.get().is_slow


def test_a_name_server_that_hangs_delays_nobody_else(
    webhook: Webhook,
    bob: User,
    receiver: Receiver,
    clock: Clock,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivering, "SECONDS", 3.0)
    look_up, over = socket.getaddrinfo, threading.Event()

    def looking_up(host: str, *given: Any, **more: Any) -> Any:
        if host == "hangs.example":
            over.wait(10)
        return look_up("127.0.0.1", *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", looking_up)
    hanging(bob, url="https://hangs.example/", count=40, at=clock())
    told(webhook, at=clock())
    try:
        [arrived] = measure_arrivals(receiver, lambda: send(clock))
    finally:
        over.set()
    assert arrived < 2


def test_slow_servers_have_a_lane_of_their_own(
    webhook: Webhook, receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_results, "SLOW_SECONDS", 0.1)
    receiver.seconds = 0.2
    told(webhook, at=clock())
    assert send(clock) == 1
    told(webhook, at=clock())
    assert send(clock) == 0
    receiver.seconds = 0.0
    assert send(clock, lane="slow") == 1
    told(webhook, at=clock())
    assert send(clock) == 1


def test_one_sender_of_a_process_serves_a_lane(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock())
    with delivering._lanes["fast"]:
        assert send(clock) == 0
    assert receiver.came == []
    assert send(clock) == 1


def test_a_webhook_that_another_process_tells_is_left_to_it(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock())
    Webhook.objects.update(lease_until=leases.compute_lease_end())
    assert send(clock) == 0
    # That process ended without releasing its lease.
    Webhook.objects.update(lease_until=leases.compute_expired_end())
    assert send(clock) == 1
    assert len(receiver.came) == 1


def test_three_days_of_failures_switch_it_off(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    receiver.statuses = [500] * 100
    began = clock()
    told(webhook, at=began)
    send(clock)
    while (row := Webhook.objects.get()).off == Webhook.Off.ON:
        clock.now = row.rests_until or clock.wait(hours=1)
        told(webhook, at=clock())
        send(clock)
    assert row.off == Webhook.Off.FAILING
    assert timedelta(days=3) <= clock() - began < timedelta(days=4)
    event = AuditEvent.objects.get(type="webhook.switched_off")
    assert event.data["off"] == "failing"
    assert receiver.host in event.data["host"]
    assert "told" not in str(event.data)
    came = len(receiver.came)
    assert send(clock) == 0
    assert len(receiver.came) == came
    with pytest.raises(managing.WebhookIsOff):
        managing.queue_test_event(webhook=Webhook.objects.get(), now=clock())
    receiver.statuses = []
    managing.update_webhook(webhook=webhook, is_on=True, now=clock())
    clock.wait(days=1)
    assert send(clock) > 0


def test_an_address_that_is_gone_is_switched_off_at_once(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    receiver.statuses = [410]
    told(webhook, at=clock())
    send(clock)
    assert Webhook.objects.get().off == Webhook.Off.GONE


def test_of_too_much_that_waits_the_oldest_is_given_up(
    webhook: Webhook, receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_results, "MOST_WAITING", 5)
    old = told(webhook, at=clock(), times=2)
    WebhookDelivery.objects.filter(pk=old[0].pk).update(status=Status.DELIVERED)
    clock.wait(days=31)
    told(webhook, at=clock(), times=7)
    assert send(clock) == 5
    assert numbers(receiver) == [2, 3, 4, 5, 6]
    assert webhook.deliveries.filter(problem="queue_full").count() == 3
    assert not webhook.deliveries.filter(pk=old[0].pk).exists()
    assert AuditEvent.objects.get(type="webhook.overflowed").data["given_up"] == 3


@pytest.mark.parametrize("off", [Webhook.Off.ON, Webhook.Off.OWNER])
def test_deliveries_are_pruned_although_none_is_sent(
    webhook: Webhook, clock: Clock, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setattr(delivery_results, "MOST_WAITING", 5)
    old = told(webhook, at=clock())[0]
    WebhookDelivery.objects.filter(pk=old.pk).update(status=Status.DELIVERED)
    clock.wait(days=31)
    told(webhook, at=clock(), times=7)
    # The server is down, or the owner disabled the webhook.
    Webhook.objects.update(rests_until=clock() + timedelta(hours=15), off=off)
    run_due_job("webhooks", now=clock())
    assert not webhook.deliveries.filter(pk=old.pk).exists()
    assert webhook.deliveries.filter(status=Status.WAITING).count() == 5
    assert webhook.deliveries.filter(problem="queue_full").count() == 2
    told(webhook, at=clock())
    run_due_job("webhooks", now=clock())
    assert webhook.deliveries.filter(status=Status.WAITING).count() == 6


def test_who_left_is_told_nothing(
    webhook: Webhook, alice: User, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock())
    User.objects.filter(pk=alice.pk).update(is_active=False)
    assert send(clock) == 0
    assert outbox.enqueue_due(now=clock()) == 0
    assert receiver.came == []


def test_a_process_that_ends_begins_nothing(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    told(webhook, at=clock())
    assert delivering.send_due_deliveries(lane="fast", clock=clock, is_closing=lambda: True) == 0
    assert receiver.came == []


def test_s14_the_secret_is_encrypted_and_takes_a_new_encryption_key(
    made: tuple[Webhook, str], receiver: Receiver, clock: Clock, settings: Settings
) -> None:
    webhook, secret = made
    assert secret not in Webhook.objects.get().secret
    new = "bmV3LWtleS1uZXcta2V5LW5ldy1rZXktbmV3LWtleTE="
    settings.ENCRYPTION_KEYS = [new, *settings.ENCRYPTION_KEYS]
    call_command("rotate_keys", verbosity=0)
    settings.ENCRYPTION_KEYS = [new]
    assert secrets.decrypt(Webhook.objects.get().secret) == secret
    settings.ENCRYPTION_KEYS = ["b3RoZXIta2V5b3RoZXIta2V5b3RoZXIta2V5b3RoZXI="]
    told(webhook, at=clock())
    assert send(clock) == 0
    assert webhook.deliveries.get().status == Status.WAITING
    assert receiver.came == []


def test_two_threads_send_each_delivery_once(
    webhook: Webhook, receiver: Receiver, clock: Clock
) -> None:
    """Of two tasks for one lane, the second ends immediately while the first one sends."""
    told(webhook, at=clock())
    ended: list[int] = []

    def second() -> None:
        ended.append(delivering.send_due_deliveries(lane="fast", clock=clock))

    receiver.seconds = 0.3
    other = threading.Timer(0.1, second)
    other.start()
    assert send(clock) == 1
    other.join()
    assert ended == [0]
    assert len(receiver.came) == 1

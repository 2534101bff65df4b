"""Stores the results of webhook deliveries, and disables failing webhooks."""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction

from chats.ground import databases, leases, queue
from chats.models import SkippedRow, Webhook, WebhookDelivery
from chats.record import outbox
from chats.webhooks import managing

# A webhook with a slower response moves to the slow lane.
SLOW_SECONDS = 2.0


# Delay in seconds after each failed attempt: eight attempts within a day.
DELAYS = (5, 60, 300, 1_800, 7_200, 21_600, 54_000)


# Number of refusals (4xx) of one delivery for which later deliveries wait. After one more, they are
# sent before its next retry.
HOLDING_REFUSALS = 3


JITTER = 0.2


# A webhook that fails for this long without one success is switched off.
FAILS_FOR = timedelta(days=3)


KEPT_FOR = timedelta(days=30)


MOST_WAITING = 10_000


TIDY_EVERY = timedelta(hours=1)


# Webhooks whose deliveries one run of the due job prunes.
TIDIED_AT_ONCE = 50


# The fields of a webhook that change with the results of its deliveries.
STORED = ("lease_until", "is_slow", "failing_since", "rests_until", "off")


Status = WebhookDelivery.Status


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt. `problem` is empty on success."""

    status: int | None = None
    problem: str = ""
    seconds: float = 0.0

    def holds_queue(self, *, tries: int) -> bool:
        """Return True if later deliveries must wait for the retry.

        `tries` includes this attempt.
        """
        refused = self.status is not None and 400 <= self.status < 500
        about_server = not refused or self.status in {408, 410, 429}
        return bool(self.problem) and (about_server or tries <= HOLDING_REFUSALS)


@dataclass(slots=True)
class Batch:
    """A webhook, its deliveries to send now, and the results so far.

    `asked_at`: the monotonic time at which the current request began. `is_moved`: the request was
    cancelled to move the webhook to the slow lane.
    """

    webhook: Webhook
    waiting: Sequence[WebhookDelivery]
    answers: list[Answer] = field(default_factory=list)
    asked_at: float = field(default_factory=time.monotonic)
    is_moved: bool = False


def store_results_safely(batch: Batch, *, now: datetime) -> int:
    """Store the results of one webhook's deliveries. Returns the number that succeeded.

    An error is logged, so that other webhooks are not affected.
    """
    try:
        return store_delivery_results(batch, now=now)
    except Exception as error:
        if databases.is_retryable_error(error):
            raise
        SkippedRow.note(job="webhooks", row=f"webhook {batch.webhook.pk}", error=error, now=now)
        return 0


@transaction.atomic
def store_delivery_results(batch: Batch, *, now: datetime) -> int:
    """Store the result of each delivery and release the webhook. Return how many succeeded.

    If another process has claimed the webhook since, only successes are stored. If the address was
    changed since, failures are not stored either, because the delivery is sent to the new address.
    """
    rows = Webhook.objects.select_for_update(no_key=True).select_related("owner")
    webhook = rows.filter(pk=batch.webhook.pk).first()
    if webhook is None:
        return 0
    is_held = webhook.lease_until == batch.webhook.lease_until
    is_same = is_held and webhook.url == batch.webhook.url
    for delivery, answer in zip(batch.waiting, batch.answers, strict=False):
        if is_same or not answer.problem:
            store_delivery_attempt(webhook, delivery, answer=answer, now=now)
    if is_held:
        webhook.lease_until = None
        if is_same:
            store_batch_state(webhook, batch, now=now)
        webhook.save(update_fields=STORED)
    return sum(not answer.problem for answer in batch.answers)


def store_batch_state(webhook: Webhook, batch: Batch, *, now: datetime) -> None:
    """Set the webhook's lane, and disable the webhook if its server is gone.

    It is also disabled if its deliveries have failed for at least three days (`FAILS_FOR`).
    """
    was_slow = webhook.is_slow
    if batch.answers:
        webhook.is_slow = max(answer.seconds for answer in batch.answers) > SLOW_SECONDS
    webhook.is_slow |= batch.is_moved
    if webhook.is_slow != was_slow:
        queue.enqueue(queue.DELIVER, lane=outbox.LANES[webhook.is_slow])
    if webhook.failing_since and now - webhook.failing_since >= FAILS_FOR:
        disable_webhook(webhook, off=Webhook.Off.FAILING, now=now)
    elif any(answer.status == 410 for answer in batch.answers):
        disable_webhook(webhook, off=Webhook.Off.GONE, now=now)


def store_delivery_attempt(
    webhook: Webhook, delivery: WebhookDelivery, *, answer: Answer, now: datetime
) -> None:
    """Store the result of one attempt and schedule the next one."""
    changes: dict[str, Any] = {"answer": answer.status, "problem": answer.problem}
    tries = delivery.tries + 1
    if not answer.problem:
        webhook.failing_since = webhook.rests_until = None
        changes |= {"status": Status.DELIVERED, "ended_at": now}
    else:
        webhook.failing_since = webhook.failing_since or now
        is_given_up = tries > len(DELAYS)
        if is_given_up:
            changes |= {"status": Status.FAILED, "ended_at": now}
        # The next delivery has its own retries: one that was given up does not delay it.
        delay = DELAYS[0 if is_given_up else tries - 1]
        seconds = delay * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # no secret
        changes["next_at"] = now + timedelta(seconds=seconds)
        if answer.holds_queue(tries=tries):
            webhook.rests_until = changes["next_at"]
    # A delivery that another process completed since then stays delivered.
    waiting = WebhookDelivery.objects.filter(pk=delivery.pk, status=Status.WAITING)
    waiting.update(tries=tries, **changes)


def disable_webhook(webhook: Webhook, *, off: str, now: datetime) -> None:
    """Mark an enabled webhook as disabled, and record the reason in the ledger.

    The caller saves the webhook. It stays disabled until its owner enables it.
    """
    if webhook.off == Webhook.Off.ON:
        webhook.off = off
        managing.record_webhook_event("webhook.switched_off", webhook, actor="worker", now=now)


def prune_deliveries(webhook: Webhook, *, now: datetime) -> None:
    """Delete old finished deliveries, and fail the oldest pending ones over `MOST_WAITING`."""
    ended = WebhookDelivery.objects.exclude(status=Status.WAITING)
    ended.filter(webhook=webhook, created_at__lt=now - KEPT_FOR).delete()
    waiting = webhook.deliveries.filter(status=Status.WAITING).order_by("-pk")
    kept = waiting.values_list("pk", flat=True)[MOST_WAITING - 1 : MOST_WAITING].first()
    if kept is not None:
        over = webhook.deliveries.filter(status=Status.WAITING, pk__lt=kept)
        given_up = over.update(status=Status.FAILED, ended_at=now, problem="queue_full")
        if given_up:
            managing.record_webhook_event(
                "webhook.overflowed", webhook, actor="worker", now=now, given_up=given_up
            )
    Webhook.objects.filter(pk=webhook.pk).update(tidied_at=now)


def tidy_deliveries(*, now: datetime) -> int:
    """Prune the deliveries of all webhooks, each once an hour. Return the number of webhooks.

    This includes disabled webhooks, webhooks without deliveries to send, and those that wait for a
    retry. Also deletes deliveries that were stored while their webhook was being deleted.
    """
    due = Webhook.objects.filter(leases.match_free_leases(), tidied_at__lte=now - TIDY_EVERY)
    found = list(due.order_by("tidied_at").values_list("pk", flat=True)[:TIDIED_AT_ONCE])
    for pk in found:
        with transaction.atomic():
            rows = due.filter(pk=pk).select_for_update(skip_locked=True, no_key=True)
            webhook = rows.first()
            if webhook is not None:
                prune_deliveries(webhook, now=now)
    if found or not Webhook.objects.exists():
        WebhookDelivery.objects.exclude(webhook__in=Webhook.objects.all()).delete()
    return len(found)

"""Sends what waits for webhooks: at least once, each webhook's deliveries in their order.

One sender of a process serves all webhooks at the same time, a few deliveries of each, so a hundred
servers that hang cost one thread ten seconds. Slow servers have a lane of their own: they hold up
each other and nobody else. A server in trouble (no connection, too late, a status of 5xx or 429)
rests until the next try and keeps the order of what waits; a single delivery that is refused is
tried again while others go on.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from chats.ground import databases, leases, secrets
from chats.models import SkippedRow, Webhook, WebhookDelivery
from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.transport import Client, guarded_client, post
from chats.record import outbox
from chats.webhooks import managing, signing

logger = logging.getLogger(__name__)
SECONDS = 10.0
AT_ONCE, IN_A_ROW = 100, 20
# Longer answers lead to the lane of the slow.
SLOW_SECONDS = 2.0
# After the first, second, … try that failed: eight tries within a day.
DELAYS = (5, 60, 300, 1_800, 7_200, 21_600, 54_000)
JITTER = 0.2
# A webhook that failed so long without one success is switched off.
FAILS_FOR = timedelta(days=3)
KEPT_FOR = timedelta(days=30)
MOST_WAITING = 10_000
TIDY_EVERY = timedelta(hours=1)

# In this process one sender a lane; it takes up what comes while it works.
_lanes = {lane: threading.Lock() for lane in outbox.LANES.values()}
Status = WebhookDelivery.Status


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of one try; `problem` is empty when it was taken."""

    status: int | None = None
    problem: str = ""
    seconds: float = 0.0

    @property
    def is_trouble(self) -> bool:
        """Whether the next delivery would fare no better."""
        refused = self.status is not None and 300 <= self.status < 500
        return bool(self.problem) and (not refused or self.status in {408, 429})


@dataclass(slots=True)
class Batch:
    """A webhook, what it is told now, and its answers so far."""

    webhook: Webhook
    waiting: Sequence[WebhookDelivery]
    answers: list[Answer] = field(default_factory=list)


def deliver(
    *, lane: str, clock: Callable[[], datetime], is_closing: Callable[[], bool] = lambda: False
) -> int:
    """Send what is due in a lane until nothing is; return how many were taken.

    Does nothing while another thread of this process does so.
    """
    lock, taken = _lanes[lane], 0
    if not lock.acquire(blocking=False):
        return 0
    try:
        while not is_closing() and (batches := claim(lane=lane, now=clock())):
            databases.give_back()
            asyncio.run(send_all(batches, clock=clock))
            for batch in batches:
                taken += note_apart(batch, now=clock())
    finally:
        lock.release()
    return taken


@transaction.atomic
def claim(*, lane: str, now: datetime) -> list[Batch]:
    """Take the webhooks of the lane for which something is due, each with its first deliveries.

    A webhook that another process tells is left to it.
    """
    free = Q(lease_until=None) | leases.ended()
    due = outbox.due(now=now).filter(webhook__is_slow=lane == outbox.LANES[True])
    rows = Webhook.objects.filter(free, pk__in=due.values("webhook"))
    rows = rows.select_for_update(skip_locked=True, of=("self",), no_key=True)
    found = list(rows.select_related("owner").order_by("pk")[:AT_ONCE])
    Webhook.objects.filter(pk__in=[row.pk for row in found]).update(lease_until=leases.until())
    for webhook in found:
        if now - webhook.tidied_at >= TIDY_EVERY:
            tidy(webhook, now=now)
    batches = []
    for webhook in found:
        waiting = webhook.deliveries.filter(status=Status.WAITING, next_at__lte=now)
        first = list(waiting.order_by("pk")[:IN_A_ROW])
        batches.append(Batch(webhook, still_allowed(webhook, first, now=now)))
    return batches


def still_allowed(
    webhook: Webhook, waiting: Iterable[WebhookDelivery], *, now: datetime
) -> list[WebhookDelivery]:
    """Leave out what the owner may not see any more, and end it."""
    rows = list(waiting)
    allowed = [row for row in rows if outbox.may_hear(webhook.owner, row.event)]
    if len(allowed) < len(rows):
        ended = {row.pk for row in rows} - {row.pk for row in allowed}
        changes = {"status": Status.FAILED, "ended_at": now, "problem": "not_allowed"}
        WebhookDelivery.objects.filter(pk__in=ended).update(**changes)
    return allowed


async def send_all(batches: Iterable[Batch], *, clock: Callable[[], datetime]) -> None:
    """Tell all webhooks at the same time."""
    async with guarded_client(
        allowed_private=settings.ALLOWED_PRIVATE_WEBHOOKS, connect_seconds=SECONDS
    ) as client:
        await asyncio.gather(*(send_batch(batch, client=client, clock=clock) for batch in batches))


async def send_batch(batch: Batch, *, client: Client, clock: Callable[[], datetime]) -> None:
    """Tell one webhook, one delivery after another, within the time of one try."""
    latest = time.monotonic() + SECONDS
    try:
        secret = secrets.decrypt(batch.webhook.secret)
    except secrets.SecretUnreadable as refusal:
        batch.answers.append(Answer(problem=refusal.code))
        return
    for delivery in batch.waiting:
        if time.monotonic() >= latest:
            return
        try:
            answer = await send(
                batch.webhook.url, delivery, secret=secret, client=client, now=clock()
            )
        except Exception as error:  # noqa: BLE001  # one webhook holds up no other
            logger.error("webhook %s: %s", batch.webhook.pk, type(error).__name__)  # noqa: TRY400  # no address
            answer = Answer(problem="no_connection")
        batch.answers.append(answer)
        if answer.is_trouble:
            return


async def send(
    url: str,
    delivery: WebhookDelivery,
    *,
    secret: str,
    client: Client,
    now: datetime,
) -> Answer:
    """Send one delivery and wait for the status; no redirect is followed, no body is read."""
    signed = signing.headers(
        secret=secret, public_id=delivery.public_id, body=delivery.body, now=now
    )
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            headers = {"Content-Type": "application/json", **signed}
            status = await post(client, url, body=delivery.body, headers=headers)
    except AddressRefused:
        return Answer(problem="address_refused", seconds=time.monotonic() - began)
    except TimeoutError:
        return Answer(problem="timeout", seconds=SECONDS)
    except ProviderError as error:
        problem = "timeout" if error.code == "provider_timeout" else "no_connection"
        return Answer(problem=problem, seconds=time.monotonic() - began)
    problem = "" if 200 <= status < 300 else "redirected" if status < 400 else "refused"
    return Answer(status=status, problem=problem, seconds=time.monotonic() - began)


def note_apart(batch: Batch, *, now: datetime) -> int:
    """Store what came of one webhook's deliveries; what fails is noted, and holds up no other."""
    try:
        return note(batch, now=now)
    except Exception as error:
        if databases.may_pass(error):
            raise
        SkippedRow.note(job="webhooks", row=f"webhook {batch.webhook.pk}", error=error, now=now)
        return 0


@transaction.atomic
def note(batch: Batch, *, now: datetime) -> int:
    """Store what came of each delivery, and let the webhook go; return how many were taken."""
    rows = Webhook.objects.select_for_update(no_key=True).select_related("owner")
    webhook = rows.filter(pk=batch.webhook.pk).first()
    if webhook is None:
        return 0
    for delivery, answer in zip(batch.waiting, batch.answers, strict=False):
        note_answer(webhook, delivery, answer=answer, now=now)
    webhook.lease_until = None
    if batch.answers:
        webhook.is_slow = max(answer.seconds for answer in batch.answers) > SLOW_SECONDS
    if webhook.failing_since and now - webhook.failing_since >= FAILS_FOR:
        switch_off(webhook, off=Webhook.Off.FAILING, now=now)
    elif any(answer.status == 410 for answer in batch.answers):
        switch_off(webhook, off=Webhook.Off.GONE, now=now)
    webhook.save(update_fields=["lease_until", "is_slow", "failing_since", "rests_until", "off"])
    return sum(not answer.problem for answer in batch.answers)


def note_answer(
    webhook: Webhook, delivery: WebhookDelivery, *, answer: Answer, now: datetime
) -> None:
    """Store what came of one try, and when the next one is."""
    changes: dict[str, Any] = {"answer": answer.status, "problem": answer.problem}
    tries = delivery.tries + 1
    if not answer.problem:
        webhook.failing_since = webhook.rests_until = None
        changes |= {"status": Status.DELIVERED, "ended_at": now}
    else:
        webhook.failing_since = webhook.failing_since or now
        if tries > len(DELAYS):
            changes |= {"status": Status.FAILED, "ended_at": now}
        delay = DELAYS[min(tries, len(DELAYS)) - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # no secret
        changes["next_at"] = now + timedelta(seconds=delay)
        if answer.is_trouble:
            webhook.rests_until = changes["next_at"]
    WebhookDelivery.objects.filter(pk=delivery.pk).update(tries=tries, **changes)


def switch_off(webhook: Webhook, *, off: str, now: datetime) -> None:
    """Send nothing more until its owner switches it on; the ledger says why."""
    if webhook.off == Webhook.Off.ON:
        webhook.off = off
        managing.note("webhook.switched_off", webhook, actor="worker", now=now)


def tidy(webhook: Webhook, *, now: datetime) -> None:
    """Forget what ended long ago; of too much that waits, give up the oldest."""
    ended = WebhookDelivery.objects.exclude(status=Status.WAITING)
    ended.filter(webhook=webhook, created_at__lt=now - KEPT_FOR).delete()
    # What was stored while its webhook was being deleted.
    WebhookDelivery.objects.exclude(webhook__in=Webhook.objects.all()).delete()
    waiting = webhook.deliveries.filter(status=Status.WAITING).order_by("-pk")
    kept = waiting.values_list("pk", flat=True)[MOST_WAITING - 1 : MOST_WAITING].first()
    if kept is not None:
        over = webhook.deliveries.filter(status=Status.WAITING, pk__lt=kept)
        given_up = over.update(status=Status.FAILED, ended_at=now, problem="queue_full")
        if given_up:
            managing.note("webhook.overflowed", webhook, actor="worker", now=now, given_up=given_up)
    Webhook.objects.filter(pk=webhook.pk).update(tidied_at=now)

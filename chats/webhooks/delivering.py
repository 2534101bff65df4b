"""Send queued webhook deliveries at least once, in order for each webhook.

One sender per process serves up to 100 webhooks concurrently, a few deliveries of each. A webhook
whose server hangs delays only its own deliveries. Slow servers use a separate lane, so that they
cannot fill the 100 slots. A failing server (no connection, timeout, 5xx or 429) pauses until its
next retry, and its queue keeps its order. A delivery that is refused for another reason is retried
while later ones continue.
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

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import transaction
from django.db.models import Q

from chats.ground import databases, leases, secrets
from chats.models import SkippedRow, Webhook, WebhookDelivery
from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.transport import Client, build_guarded_client, post_body
from chats.record import outbox
from chats.webhooks import managing, signing

logger = logging.getLogger(__name__)
SECONDS = 10.0
AT_ONCE, IN_A_ROW = 100, 20
# Interval in seconds between polls for new deliveries while requests are open.
LOOK_EVERY = 0.5
# A webhook with a slower response moves to the slow lane.
SLOW_SECONDS = 2.0
# Delay in seconds after each failed attempt: eight attempts within a day.
DELAYS = (5, 60, 300, 1_800, 7_200, 21_600, 54_000)
JITTER = 0.2
# A webhook that fails for this long without one success is switched off.
FAILS_FOR = timedelta(days=3)
KEPT_FOR = timedelta(days=30)
MOST_WAITING = 10_000
TIDY_EVERY = timedelta(hours=1)

# One sender per lane and process. A running sender picks up new deliveries.
_lanes = {lane: threading.Lock() for lane in outbox.LANES.values()}
Status = WebhookDelivery.Status


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one attempt; `problem` is empty on success."""

    status: int | None = None
    problem: str = ""
    seconds: float = 0.0

    @property
    def is_trouble(self) -> bool:
        """Return True if the next delivery would fail for the same reason."""
        refused = self.status is not None and 300 <= self.status < 500
        return bool(self.problem) and (not refused or self.status in {408, 429})


@dataclass(slots=True)
class Batch:
    """A webhook, its deliveries to send now, and the answers so far."""

    webhook: Webhook
    waiting: Sequence[WebhookDelivery]
    answers: list[Answer] = field(default_factory=list)


def send_due_deliveries(
    *, lane: str, clock: Callable[[], datetime], is_closing: Callable[[], bool] = lambda: False
) -> int:
    """Send the due deliveries of a lane until none are left; return how many were accepted.

    Does nothing while another thread of this process serves the lane.
    """
    lock = _lanes[lane]
    if not lock.acquire(blocking=False):
        return 0
    try:
        return async_to_sync(send_in_lane)(lane=lane, clock=clock, is_closing=is_closing)
    finally:
        lock.release()


async def send_in_lane(
    *, lane: str, clock: Callable[[], datetime], is_closing: Callable[[], bool]
) -> int:
    """Send the due deliveries of a lane, each webhook independently; return how many succeeded."""
    taken = 0
    sending: dict[asyncio.Task[None], Batch] = {}
    async with build_guarded_client(
        allowed_private=settings.ALLOWED_PRIVATE_WEBHOOKS, connect_seconds=SECONDS
    ) as client:
        while True:
            room = AT_ONCE - len(sending)
            found = await claim_in_thread(lane=lane, now=clock(), most=room) if room else ()
            for batch in () if is_closing() else found:
                task = asyncio.create_task(send_batch(batch, client=client, clock=clock))
                sending[task] = batch
            if not sending:
                return taken
            done, _ = await asyncio.wait(
                sending, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                taken += await store_results_in_thread(sending.pop(task), now=clock())


@sync_to_async
def claim_in_thread(*, lane: str, now: datetime, most: int) -> Sequence[Batch]:
    """Claim webhooks in the task's thread, and release its connection before waiting."""
    found = claim_webhooks(lane=lane, now=now, most=most)
    databases.give_back()
    return found


@sync_to_async
def store_results_in_thread(batch: Batch, *, now: datetime) -> int:
    """Store the results of one webhook's deliveries, in the task's thread."""
    taken = store_results_safely(batch, now=now)
    databases.give_back()
    return taken


@transaction.atomic
def claim_webhooks(*, lane: str, now: datetime, most: int) -> list[Batch]:
    """Claim up to `most` webhooks of the lane that have due deliveries; return the oldest of each.

    Skips webhooks that this or another process is already sending to.
    """
    free = Q(lease_until=None) | leases.match_expired_leases()
    due = outbox.list_due_deliveries(now=now).filter(webhook__is_slow=lane == outbox.LANES[True])
    rows = Webhook.objects.filter(free, pk__in=due.values("webhook"))
    rows = rows.select_for_update(skip_locked=True, of=("self",), no_key=True)
    found = list(rows.select_related("owner").order_by("pk")[:most])
    Webhook.objects.filter(pk__in=[row.pk for row in found]).update(
        lease_until=leases.compute_lease_end()
    )
    for webhook in found:
        if now - webhook.tidied_at >= TIDY_EVERY:
            prune_deliveries(webhook, now=now)
    batches = []
    for webhook in found:
        waiting = webhook.deliveries.filter(status=Status.WAITING, next_at__lte=now)
        first = list(waiting.order_by("pk")[:IN_A_ROW])
        batches.append(Batch(webhook, fail_forbidden_deliveries(webhook, first, now=now)))
    return batches


def fail_forbidden_deliveries(
    webhook: Webhook, waiting: Iterable[WebhookDelivery], *, now: datetime
) -> list[WebhookDelivery]:
    """Fail the deliveries whose event the owner may no longer receive; return the others."""
    rows = list(waiting)
    allowed = [row for row in rows if outbox.can_receive_event(webhook.owner, row.event)]
    if len(allowed) < len(rows):
        ended = {row.pk for row in rows} - {row.pk for row in allowed}
        changes = {"status": Status.FAILED, "ended_at": now, "problem": "not_allowed"}
        WebhookDelivery.objects.filter(pk__in=ended).update(**changes)
    return allowed


async def send_batch(batch: Batch, *, client: Client, clock: Callable[[], datetime]) -> None:
    """Send a webhook's deliveries one after the other, for at most `SECONDS`."""
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
            answer = await send_delivery(
                batch.webhook.url, delivery, secret=secret, client=client, now=clock()
            )
        except Exception as error:  # noqa: BLE001  # one webhook holds up no other
            logger.error("webhook %s: %s", batch.webhook.pk, type(error).__name__)  # noqa: TRY400  # no address
            answer = Answer(problem="no_connection")
        batch.answers.append(answer)
        if answer.is_trouble:
            return


async def send_delivery(
    url: str,
    delivery: WebhookDelivery,
    *,
    secret: str,
    client: Client,
    now: datetime,
) -> Answer:
    """Send one delivery and return its status. Follows no redirect and reads no body."""
    signed = signing.build_signature_headers(
        secret=secret, public_id=delivery.public_id, body=delivery.body, now=now
    )
    began = time.monotonic()
    try:
        async with asyncio.timeout(SECONDS):
            headers = {"Content-Type": "application/json", **signed}
            status = await post_body(client, url, body=delivery.body, headers=headers)
    except AddressRefused:
        return Answer(problem="address_refused", seconds=time.monotonic() - began)
    except TimeoutError:
        return Answer(problem="timeout", seconds=SECONDS)
    except ProviderError as error:
        problem = "timeout" if error.code == "provider_timeout" else "no_connection"
        return Answer(problem=problem, seconds=time.monotonic() - began)
    problem = "" if 200 <= status < 300 else "redirected" if status < 400 else "refused"
    return Answer(status=status, problem=problem, seconds=time.monotonic() - began)


def store_results_safely(batch: Batch, *, now: datetime) -> int:
    """Store the results of one webhook's deliveries.

    An error is logged and blocks no other webhook.
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
    """Store the result of each delivery and release the webhook; return how many succeeded."""
    rows = Webhook.objects.select_for_update(no_key=True).select_related("owner")
    webhook = rows.filter(pk=batch.webhook.pk).first()
    if webhook is None:
        return 0
    for delivery, answer in zip(batch.waiting, batch.answers, strict=False):
        store_delivery_attempt(webhook, delivery, answer=answer, now=now)
    webhook.lease_until = None
    if batch.answers:
        webhook.is_slow = max(answer.seconds for answer in batch.answers) > SLOW_SECONDS
    if webhook.failing_since and now - webhook.failing_since >= FAILS_FOR:
        disable_webhook(webhook, off=Webhook.Off.FAILING, now=now)
    elif any(answer.status == 410 for answer in batch.answers):
        disable_webhook(webhook, off=Webhook.Off.GONE, now=now)
    webhook.save(update_fields=["lease_until", "is_slow", "failing_since", "rests_until", "off"])
    return sum(not answer.problem for answer in batch.answers)


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
        if tries > len(DELAYS):
            changes |= {"status": Status.FAILED, "ended_at": now}
        delay = DELAYS[min(tries, len(DELAYS)) - 1] * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311  # no secret
        changes["next_at"] = now + timedelta(seconds=delay)
        if answer.is_trouble:
            webhook.rests_until = changes["next_at"]
    WebhookDelivery.objects.filter(pk=delivery.pk).update(tries=tries, **changes)


def disable_webhook(webhook: Webhook, *, off: str, now: datetime) -> None:
    """Stop sending until the owner switches the webhook on again; record why in the ledger."""
    if webhook.off == Webhook.Off.ON:
        webhook.off = off
        managing.record_webhook_event("webhook.switched_off", webhook, actor="worker", now=now)


def prune_deliveries(webhook: Webhook, *, now: datetime) -> None:
    """Delete old finished deliveries, and fail the oldest pending ones over `MOST_WAITING`."""
    ended = WebhookDelivery.objects.exclude(status=Status.WAITING)
    ended.filter(webhook=webhook, created_at__lt=now - KEPT_FOR).delete()
    # Deliveries that were stored while their webhook was being deleted.
    WebhookDelivery.objects.exclude(webhook__in=Webhook.objects.all()).delete()
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

"""Sends queued webhook deliveries at least once, in order for each webhook.

One sender per process and lane serves up to 100 webhooks concurrently, a few deliveries of each.
A webhook whose server hangs delays only its own deliveries. Slow servers use a separate
lane, so that they cannot fill the 100 slots. If all slots are taken while other
webhooks wait, requests without a response are moved to the lane of slow servers, where
they start again under the same id.

After a failed attempt a webhook pauses until the next retry, so its queue stays in
order. There is one exception, because one delivery must not delay the others for a day.
After the fourth refusal of a delivery with a 4xx status other than 408, 410 and 429, later
deliveries no longer wait for it. This takes about six minutes.
"""

import asyncio
import functools
import logging
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from chats.ground import databases, leases, secrets
from chats.models import Webhook, WebhookDelivery
from chats.providers.address import AddressRefused
from chats.providers.base import ProviderError
from chats.providers.transport import Client, build_guarded_client, post_body
from chats.record import outbox
from chats.webhooks import signing
from chats.webhooks.delivery_results import (
    TIDY_EVERY,
    Answer,
    Batch,
    Status,
    prune_deliveries,
    store_results_safely,
)

logger = logging.getLogger(__name__)


SECONDS = 10.0


AT_ONCE, IN_A_ROW = 100, 20


# Webhooks whose results are stored between two claims.
STORED_AT_ONCE = 10


# Interval in seconds between polls for new deliveries while requests are open.
LOOK_EVERY = 0.5


# In a full lane, a request without an answer for this long makes room for a webhook that waits.
PATIENT_SECONDS = 0.5


# Interval in seconds between polls while a lane is full.
FULL_LOOK_EVERY = 0.1


# One sender per lane and process. A running sender picks up new deliveries.
_lanes = {lane: threading.Lock() for lane in outbox.LANES.values()}


_resolvers = ThreadPoolExecutor(len(_lanes) * AT_ONCE, thread_name_prefix="webhook-names")


def send_due_deliveries(
    *, lane: str, clock: Callable[[], datetime], is_closing: Callable[[], bool] = lambda: False
) -> int:
    """Send the due deliveries of a lane until none are left. Return the number accepted.

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
    """Send the due deliveries of a lane, each webhook independently. Return how many succeeded."""
    taken = 0
    sending: dict[asyncio.Task[None], Batch] = {}
    ended: list[Batch] = []
    async with build_guarded_client(
        allowed_private=settings.ALLOWED_PRIVATE_WEBHOOKS,
        connect_seconds=SECONDS,
        resolve=resolve_webhook_host,
    ) as client:
        while True:
            room = 0 if is_closing() else AT_ONCE - len(sending)
            found = await claim_in_thread(lane=lane, now=clock(), most=room) if room else ()
            for batch in found:
                task = asyncio.create_task(send_batch(batch, client=client, clock=clock))
                sending[task] = batch
            if not sending and not ended:
                return taken
            # Results are stored a few at a time and after the claim, so that they delay no waiting
            # webhook.
            for batch in ended[:STORED_AT_ONCE]:
                taken += await store_results_in_thread(batch, now=clock())
            ended = ended[STORED_AT_ONCE:]
            is_full = len(sending) >= AT_ONCE
            if is_full and lane == outbox.LANES[False]:
                await make_room(sending, now=clock())
            if sending:
                patience = 0.0 if ended else FULL_LOOK_EVERY if is_full else LOOK_EVERY
                done, _ = await asyncio.wait(
                    sending, timeout=patience, return_when=asyncio.FIRST_COMPLETED
                )
                ended += [sending.pop(task) for task in done]


async def make_room(sending: dict[asyncio.Task[None], Batch], *, now: datetime) -> None:
    """Cancel requests without a response after `PATIENT_SECONDS` if other webhooks are waiting.

    Their webhooks move to the slow lane.
    """
    latest = time.monotonic() - PATIENT_SECONDS
    late = [task for task, batch in sending.items() if batch.asked_at < latest]
    if late and await is_lane_waiting_in_thread(lane=outbox.LANES[False], now=now):
        for task in late:
            sending[task].is_moved = task.cancel()


@sync_to_async
def is_lane_waiting_in_thread(*, lane: str, now: datetime) -> bool:
    """Return True if a webhook could be claimed. Releases the thread's database connection."""
    found = select_claimable_webhooks(lane=lane, now=now).exists()
    databases.give_back()
    return found


@sync_to_async
def claim_in_thread(*, lane: str, now: datetime, most: int) -> Sequence[Batch]:
    """Claim webhooks in the task's thread, and release its database connection before waiting."""
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
    """Claim up to `most` webhooks of the lane, and return their oldest due deliveries.

    Skips webhooks that this or another process is already sending to. Fails deliveries that the
    owner may no longer receive, and removes old ones once an hour.
    """
    rows = select_claimable_webhooks(lane=lane, now=now)
    rows = rows.select_for_update(skip_locked=True, of=("self",), no_key=True)
    locked = list(rows.select_related("owner").order_by("pk")[:most])
    # A row that another process released after this query began may have been paused since then.
    found = [row for row in locked if row.rests_until is None or row.rests_until <= now]
    claimed = Webhook.objects.filter(pk__in=[row.pk for row in found])
    claimed.update(lease_until=leases.compute_lease_end())
    ends = dict(claimed.values_list("pk", "lease_until"))
    for webhook in found:
        # When the results are stored, this value proves that no other process has claimed the
        # webhook since.
        webhook.lease_until = ends[webhook.pk]
        if now - webhook.tidied_at >= TIDY_EVERY:
            prune_deliveries(webhook, now=now)
    first = load_next_deliveries(found, now=now)
    return [
        Batch(webhook, fail_forbidden_deliveries(webhook, first[webhook.pk], now=now))
        for webhook in found
    ]


def load_next_deliveries(
    webhooks: Sequence[Webhook], *, now: datetime
) -> Mapping[uuid.UUID, Sequence[WebhookDelivery]]:
    """Return up to `IN_A_ROW` due deliveries of each webhook, the oldest first."""
    due = WebhookDelivery.objects.filter(status=Status.WAITING, next_at__lte=now).order_by("pk")
    most = IN_A_ROW * len(webhooks)
    together = list(due.filter(webhook__in=webhooks)[:most])
    by_webhook: dict[uuid.UUID, list[WebhookDelivery]] = defaultdict(list)
    for row in together:
        by_webhook[row.webhook_id].append(row)
    # If many deliveries wait for one webhook, the common query may lack those of the others.
    is_complete = len(together) < most
    return {
        webhook.pk: by_webhook[webhook.pk][:IN_A_ROW]
        if is_complete or len(by_webhook[webhook.pk]) >= IN_A_ROW
        else list(due.filter(webhook=webhook)[:IN_A_ROW])
        for webhook in webhooks
    }


def select_claimable_webhooks(*, lane: str, now: datetime) -> QuerySet[Webhook]:
    """Return the webhooks of the lane that have due deliveries and are not being sent to."""
    due = outbox.list_due_deliveries(now=now).filter(webhook__is_slow=lane == outbox.LANES[True])
    return Webhook.objects.filter(leases.match_free_leases(), pk__in=due.values("webhook"))


def fail_forbidden_deliveries(
    webhook: Webhook, waiting: Iterable[WebhookDelivery], *, now: datetime
) -> list[WebhookDelivery]:
    """Fail the deliveries whose event the owner may no longer receive; return the others.

    Their bodies are deleted.
    """
    rows = list(waiting)
    allowed = [row for row in rows if outbox.can_receive_event(webhook.owner, row.event)]
    if len(allowed) < len(rows):
        ended = {row.pk for row in rows} - {row.pk for row in allowed}
        changes = {"status": Status.FAILED, "ended_at": now, "problem": "not_allowed", "body": ""}
        WebhookDelivery.objects.filter(pk__in=ended).update(**changes)
    return allowed


async def send_batch(batch: Batch, *, client: Client, clock: Callable[[], datetime]) -> None:
    """Send a webhook's deliveries one after the other, and add the results to the batch.

    Ends after a failure for which later deliveries must wait. Starts no request after `SECONDS`.
    """
    latest = time.monotonic() + SECONDS
    try:
        secret = secrets.decrypt(batch.webhook.secret)
    except secrets.SecretUnreadable as refusal:
        batch.answers.append(Answer(problem=refusal.code))
        return
    for delivery in batch.waiting:
        batch.asked_at = time.monotonic()
        if batch.asked_at >= latest:
            return
        try:
            answer = await send_delivery(
                batch.webhook.url, delivery, secret=secret, client=client, now=clock()
            )
        except Exception as error:  # noqa: BLE001  # one webhook holds up no other
            logger.error("webhook %s: %s", batch.webhook.pk, type(error).__name__)  # noqa: TRY400  # no address
            answer = Answer(problem="no_connection")
        batch.answers.append(answer)
        if answer.holds_queue(tries=delivery.tries + 1):
            return


async def resolve_webhook_host(host: str, port: int) -> list[str]:
    """Return all addresses of a host. Raises ProviderError.

    If a name server does not answer, the lookup occupies a thread for longer than the request
    waits. The event loop has only a few threads for lookups, so webhooks use their own, one per
    request.
    """
    loop = asyncio.get_running_loop()
    look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = await loop.run_in_executor(_resolvers, look_up)
    except (OSError, UnicodeError):
        raise ProviderError("provider_unavailable") from None
    return [str(entry[4][0]) for entry in found]


async def send_delivery(
    url: str,
    delivery: WebhookDelivery,
    *,
    secret: str,
    client: Client,
    now: datetime,
) -> Answer:
    """Send one delivery and return the result. Follows no redirects and reads no body."""
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

"""Makes, changes and deletes webhooks, each a person's own, and asks for tests and repetitions."""

import re
import uuid
from collections.abc import Collection
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from chats.ground import queue, secrets
from chats.ground.refusals import NotFound, Refusal
from chats.models import Webhook, WebhookDelivery
from chats.providers.address import AddressRefused, check_base_url
from chats.record import outbox
from chats.webhooks import signing
from contextpolicy import ledger

WEBHOOKS_PER_PERSON = 10
LONGEST_URL = 2000
TEST = "webhook.test"
_QUERY = re.compile(r"[\x21-\x7e]*")


class WebhookAddressRefused(Refusal):
    """The address may not be told of anything."""

    code = "webhook_address_refused"
    status = 422
    sentence = (
        "A webhook needs a public address that begins with https://, without user name, password"
        " or “#”, of at most {limit} characters. An operator can allow a server of your own"
        " network in ALLOWED_PRIVATE_WEBHOOKS."
    )
    param = "url"


class UnknownEvent(Refusal):
    """No event was chosen, or one that does not exist."""

    code = "unknown_event"
    status = 422
    sentence = "A webhook needs at least one event, and only these exist: {known}."
    param = "events"


class EventNotAllowed(Refusal):
    """The event tells of everybody, and this person may not see it."""

    code = "event_not_allowed"
    status = 403
    sentence = "{event} tells of everybody. It needs a role that you do not have."
    param = "events"


class TooManyWebhooks(Refusal):
    """The person has as many webhooks as they may."""

    code = "too_many_webhooks"
    status = 422
    sentence = "You have {limit} webhooks and cannot make another. Delete one first."


class WebhookIsOff(Refusal):
    """Nothing is sent to a webhook that is switched off."""

    code = "webhook_off"
    status = 409
    sentence = "This webhook is switched off. Switch it on first."


class DeliveryWaits(Refusal):
    """The delivery still waits for its next try, and is not sent again."""

    code = "delivery_waits"
    status = 409
    sentence = "This delivery still waits for its next try. It is sent by itself."


@transaction.atomic
def create(*, owner: User, url: str, events: Collection[str], now: datetime) -> tuple[Webhook, str]:
    """Make a webhook; returns it with its secret, which can never be shown again.

    Raises `WebhookAddressRefused`, `UnknownEvent`, `EventNotAllowed` and `TooManyWebhooks`.
    """
    check_address(url)
    check_events(events, owner=owner)
    # Locked, so that two requests at once cannot both make the last one.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if Webhook.objects.filter(owner=owner).count() >= WEBHOOKS_PER_PERSON:
        raise TooManyWebhooks(limit=WEBHOOKS_PER_PERSON)
    secret = signing.new_secret()
    webhook = Webhook.objects.create(
        owner=owner,
        url=url,
        secret=secrets.encrypt(secret),
        events=sorted(set(events)),
        created_at=now,
        tidied_at=now,
    )
    note("webhook.created", webhook, actor=f"user:{owner.pk}", now=now)
    return webhook, secret


@transaction.atomic
def change(
    *,
    webhook: Webhook,
    now: datetime,
    url: str | None = None,
    events: Collection[str] | None = None,
    is_on: bool | None = None,
) -> Webhook:
    """Change what is given. What waits stays, and goes to the new address.

    Switched on again, a webhook begins without its failures. Raises `WebhookAddressRefused`,
    `UnknownEvent` and `EventNotAllowed`.
    """
    row = Webhook.objects.select_for_update(no_key=True).select_related("owner").get(pk=webhook.pk)
    before = (row.url, row.events, row.off)
    if url is not None:
        check_address(url)
        row.url = url
    if events is not None:
        check_events(events, owner=row.owner)
        row.events = sorted(set(events))
    if is_on is not None and is_on != (row.off == Webhook.Off.ON):
        row.off = Webhook.Off.ON if is_on else Webhook.Off.OWNER
    if (row.url, row.events, row.off) == before:
        return row
    if row.off == Webhook.Off.ON:
        row.failing_since = row.rests_until = None
    row.save(update_fields=["url", "events", "off", "failing_since", "rests_until"])
    note("webhook.changed", row, actor=f"user:{row.owner_id}", now=now)
    return row


@transaction.atomic
def delete(*, webhook: Webhook, now: datetime) -> None:
    """Delete the webhook with its log; what waits is not sent. Of two at once one is recorded."""
    # The row before the ledger, as whoever sends to it locks them.
    row = Webhook.objects.select_for_update().filter(pk=webhook.pk).first()
    if row is not None:
        note("webhook.deleted", row, actor=f"user:{row.owner_id}", now=now)
        row.delete()


@transaction.atomic
def test(*, webhook: Webhook, now: datetime) -> WebhookDelivery:
    """Send a delivery that tells of nothing. Raises `WebhookIsOff`."""
    require_on(webhook)
    row = outbox.delivery(TEST, {"webhook": str(webhook.pk)}, webhook=webhook.pk, at=now)
    row.save()
    Webhook.objects.filter(pk=webhook.pk).update(rests_until=None)
    queue.enqueue(queue.DELIVER, lane=outbox.LANES[webhook.is_slow])
    return row


@transaction.atomic
def send_again(*, webhook: Webhook, delivery: WebhookDelivery, now: datetime) -> WebhookDelivery:
    """Send a delivery that has ended once more, under its id.

    Raises `WebhookIsOff` and `DeliveryWaits`.
    """
    require_on(webhook)
    ended = webhook.deliveries.filter(pk=delivery.pk).exclude(status=WebhookDelivery.Status.WAITING)
    changes: dict[str, Any] = {"status": WebhookDelivery.Status.WAITING, "tries": 0}
    if not ended.update(**changes, next_at=now, ended_at=None):
        raise DeliveryWaits
    Webhook.objects.filter(pk=webhook.pk).update(rests_until=None)
    queue.enqueue(queue.DELIVER, lane=outbox.LANES[webhook.is_slow])
    delivery.refresh_from_db()
    return delivery


def webhooks_of(*, owner: User) -> list[Webhook]:
    """Return the person's webhooks, newest first."""
    return list(Webhook.objects.filter(owner=owner).order_by("-created_at", "-pk"))


def webhook_for(*, user: User, webhook_id: uuid.UUID) -> Webhook:
    """Return the person's own webhook. Raises `NotFound`."""
    webhook = Webhook.objects.filter(pk=webhook_id, owner=user).first()
    if webhook is None:
        raise NotFound
    return webhook


def delivery_for(*, webhook: Webhook, public_id: uuid.UUID) -> WebhookDelivery:
    """Return a delivery of the webhook. Raises `NotFound`."""
    delivery = webhook.deliveries.filter(public_id=public_id).first()
    if delivery is None:
        raise NotFound
    return delivery


def log_of(webhook: Webhook) -> QuerySet[WebhookDelivery]:
    """Return what the webhook was told and is to be told, newest first."""
    return webhook.deliveries.order_by("-pk")


def offered_to(user: User) -> dict[str, str]:
    """Return the events that the person may choose, each with what it tells."""
    return {name: words for name, words in outbox.EVENTS.items() if outbox.may_hear(user, name)}


def host_of(webhook: Webhook) -> str:
    """Return the host of the address: the rest of it may be a secret."""
    return urlsplit(webhook.url).netloc


def check_address(url: str) -> None:
    """Raise `WebhookAddressRefused` unless the address may be called."""
    address, _, query = url.partition("?")
    if len(url) > LONGEST_URL or "#" in url or not _QUERY.fullmatch(query):
        raise WebhookAddressRefused(limit=LONGEST_URL)
    try:
        check_base_url(address, allowed_private=settings.ALLOWED_PRIVATE_WEBHOOKS)
    except AddressRefused:
        raise WebhookAddressRefused(limit=LONGEST_URL) from None


def check_events(events: Collection[str], *, owner: User) -> None:
    """Raise `UnknownEvent`, and `EventNotAllowed` for what the person may not see."""
    if not events or not set(events) <= set(outbox.EVENTS):
        raise UnknownEvent(known=", ".join(outbox.EVENTS))
    for event in sorted(set(events)):
        if not outbox.may_hear(owner, event):
            raise EventNotAllowed(event=event)


def require_on(webhook: Webhook) -> None:
    """Raise `WebhookIsOff`."""
    if webhook.off != Webhook.Off.ON:
        raise WebhookIsOff


def note(event: str, webhook: Webhook, *, actor: str, now: datetime, **more: object) -> None:
    """Write the ledger's row about a webhook; of its address only the host."""
    data = {
        "webhook": str(webhook.pk),
        "owner": webhook.owner_id,
        "host": host_of(webhook),
        "events": webhook.events,
        "off": webhook.off,
        **more,
    }
    ledger.record(event, actor=actor, now=now, data=data)
    outbox.SUBSCRIBERS.forget()


def encrypt_anew() -> int:
    """Encrypt every secret with the newest encryption key; return how many there were.

    Raises `SecretUnreadable`.
    """
    with transaction.atomic():
        found = list(Webhook.objects.select_for_update(no_key=True).order_by("pk"))
        for webhook in found:
            webhook.secret = secrets.rotate(webhook.secret)
            webhook.save(update_fields=["secret"])
    return len(found)

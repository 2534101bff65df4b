"""Creates, changes and deletes a user's webhooks, sends test events and redelivers."""

import re
import uuid
from collections.abc import Collection
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.translation import gettext, gettext_noop

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
    """The URL is not a public `https://` address, or has a user name, a password or a fragment."""

    code = "webhook_address_refused"
    status = 422
    sentence = gettext_noop(
        "The URL must be public and begin with https://, without user name, password"
        " or “#”, and have at most {limit} characters. An operator can allow a server on your"
        " own network in ALLOWED_PRIVATE_WEBHOOKS."
    )
    param = "url"


class UnknownEvent(Refusal):
    """The list of events is empty or contains an unknown event.

    The error message lists the valid events.
    """

    code = "unknown_event"
    status = 422
    sentence = gettext_noop("Choose at least one of these events: {known}.")
    param = "events"


class EventNotAllowed(Refusal):
    """The event reports on all users, and your role does not allow that."""

    code = "event_not_allowed"
    status = 403
    sentence = gettext_noop(
        "Your role does not allow the event {event}, because it reports on every user. "
        "Choose other events."
    )
    param = "events"


class TooManyWebhooks(Refusal):
    """You have 10 webhooks, which is the limit. Delete one first."""

    code = "too_many_webhooks"
    status = 422
    sentence = gettext_noop("You have reached the limit of {limit} webhooks. Delete one first.")


class WebhookIsOff(Refusal):
    """The webhook is disabled. Enable it first."""

    code = "webhook_off"
    status = 409
    sentence = gettext_noop("This webhook is disabled. Enable it first.")


class DeliveryWaits(Refusal):
    """The delivery is queued and is sent automatically, so it cannot be sent again."""

    code = "delivery_waits"
    status = 409
    sentence = gettext_noop(
        "This delivery is waiting for its next attempt, which starts automatically."
    )


@transaction.atomic
def create_webhook(
    *, owner: User, url: str, events: Collection[str], now: datetime
) -> tuple[Webhook, str]:
    """Create a webhook and return it with its secret. The secret cannot be shown again.

    Raises `WebhookAddressRefused`, `UnknownEvent`, `EventNotAllowed` and `TooManyWebhooks`.
    """
    check_address(url)
    check_events(events, owner=owner)
    # Lock the owner, so that parallel requests cannot exceed the limit.
    User.objects.select_for_update(no_key=True).get(pk=owner.pk)
    if Webhook.objects.filter(owner=owner).count() >= WEBHOOKS_PER_PERSON:
        raise TooManyWebhooks(limit=WEBHOOKS_PER_PERSON)
    secret = signing.generate_webhook_secret()
    webhook = Webhook.objects.create(
        owner=owner,
        url=url,
        secret=secrets.encrypt(secret),
        events=sorted(set(events)),
        created_at=now,
        tidied_at=now,
    )
    record_webhook_event("webhook.created", webhook, actor=f"user:{owner.pk}", now=now)
    return webhook, secret


@transaction.atomic
def update_webhook(
    *,
    webhook: Webhook,
    now: datetime,
    url: str | None = None,
    events: Collection[str] | None = None,
    is_on: bool | None = None,
) -> Webhook:
    """Change the given fields. Pending deliveries stay queued and are sent to the new address.

    If the webhook is then enabled, a change resets its failure state, and all pending deliveries
    are due. After a change of address, each of them gets all attempts again. Raises
    `WebhookAddressRefused`, `UnknownEvent` and `EventNotAllowed`.
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
        row.failing_since = None
    row.save(update_fields=["url", "events", "off", "failing_since"])
    if row.url != before[0]:
        row.deliveries.filter(status=WebhookDelivery.Status.WAITING).update(tries=0)
    if row.off == Webhook.Off.ON:
        end_rest(row, now=now)
    record_webhook_event("webhook.changed", row, actor=f"user:{row.owner_id}", now=now)
    return row


@transaction.atomic
def delete_webhook(*, webhook: Webhook, now: datetime) -> None:
    """Delete the webhook with its deliveries, including pending ones.

    If several calls run concurrently, only one records the deletion.
    """
    # Lock the webhook before the ledger, in the same order as the sender.
    row = Webhook.objects.select_for_update().filter(pk=webhook.pk).first()
    if row is not None:
        record_webhook_event("webhook.deleted", row, actor=f"user:{row.owner_id}", now=now)
        row.delete()


@transaction.atomic
def queue_test_event(*, webhook: Webhook, now: datetime) -> WebhookDelivery:
    """Queue a test event without content. Raises `WebhookIsOff`."""
    require_on(webhook)
    row = outbox.build_delivery(TEST, {"webhook": str(webhook.pk)}, webhook=webhook.pk, at=now)
    row.save()
    end_rest(webhook, now=now)
    return row


@transaction.atomic
def resend_delivery(
    *, webhook: Webhook, delivery: WebhookDelivery, now: datetime
) -> WebhookDelivery:
    """Queue a finished delivery again under the same id.

    Raises `WebhookIsOff` and `DeliveryWaits`.
    """
    require_on(webhook)
    ended = webhook.deliveries.filter(pk=delivery.pk).exclude(status=WebhookDelivery.Status.WAITING)
    changes: dict[str, Any] = {"status": WebhookDelivery.Status.WAITING, "tries": 0}
    if not ended.update(**changes, next_at=now, ended_at=None):
        raise DeliveryWaits
    end_rest(webhook, now=now)
    delivery.refresh_from_db()
    return delivery


def end_rest(webhook: Webhook, *, now: datetime) -> None:
    """Make all pending deliveries due now. Failed ones come first, so the order is kept."""
    webhook.deliveries.filter(status=WebhookDelivery.Status.WAITING, next_at__gt=now).update(
        next_at=now
    )
    Webhook.objects.filter(pk=webhook.pk).update(rests_until=None)
    queue.enqueue(queue.DELIVER, lane=outbox.LANES[webhook.is_slow])


def list_webhooks(*, owner: User) -> list[Webhook]:
    return list(Webhook.objects.filter(owner=owner).order_by("-created_at", "-pk"))


def get_webhook(*, user: User, webhook_id: uuid.UUID) -> Webhook:
    """Return a webhook of the user. Raises `NotFound`."""
    webhook = Webhook.objects.filter(pk=webhook_id, owner=user).first()
    if webhook is None:
        raise NotFound
    return webhook


def get_delivery(*, webhook: Webhook, public_id: uuid.UUID) -> WebhookDelivery:
    """Return a delivery of the log. Raises `NotFound`, also for a delivery without its body."""
    delivery = list_delivery_log(webhook).exclude(body="").filter(public_id=public_id).first()
    if delivery is None:
        raise NotFound
    return delivery


def list_delivery_log(webhook: Webhook) -> QuerySet[WebhookDelivery]:
    """Return the webhook's finished and pending deliveries, newest first.

    Bodies of events that its owner may no longer receive are left out with their rows.
    """
    events = [name for name in outbox.NEEDED if not outbox.can_receive_event(webhook.owner, name)]
    return webhook.deliveries.exclude(~Q(body=""), event__in=events).order_by("-pk")


def list_pending_events(webhook: Webhook) -> set[str]:
    """Return the events of the webhook's deliveries that are still to be sent."""
    waiting = webhook.deliveries.filter(status=WebhookDelivery.Status.WAITING)
    return set(waiting.values_list("event", flat=True).distinct())


def list_available_events(user: User) -> dict[str, str]:
    """Return the events that the user may subscribe to, with localized descriptions."""
    allowed = [name for name in outbox.EVENTS if outbox.can_receive_event(user, name)]
    return {name: gettext(outbox.EVENTS[name]) for name in allowed}


def get_webhook_host(webhook: Webhook) -> str:
    """Return the host and port of the address. The rest of it may contain a secret."""
    return urlsplit(webhook.url).netloc


def check_address(url: str) -> None:
    """Raise `WebhookAddressRefused` unless the address is allowed."""
    address, _, query = url.partition("?")
    if len(url) > LONGEST_URL or "#" in url or not _QUERY.fullmatch(query):
        raise WebhookAddressRefused(limit=LONGEST_URL)
    try:
        check_base_url(address, allowed_private=settings.ALLOWED_PRIVATE_WEBHOOKS)
    except AddressRefused:
        raise WebhookAddressRefused(limit=LONGEST_URL) from None


def check_events(events: Collection[str], *, owner: User) -> None:
    """Raise `UnknownEvent`, or `EventNotAllowed` for an event that the user may not receive."""
    if not events or not set(events) <= set(outbox.EVENTS):
        raise UnknownEvent(known=", ".join(outbox.EVENTS))
    for event in sorted(set(events)):
        if not outbox.can_receive_event(owner, event):
            raise EventNotAllowed(event=event)


def require_on(webhook: Webhook) -> None:
    """Raise `WebhookIsOff` if the webhook is disabled."""
    if webhook.off != Webhook.Off.ON:
        raise WebhookIsOff


def record_webhook_event(
    event: str, webhook: Webhook, *, actor: str, now: datetime, **more: object
) -> None:
    """Record an event about a webhook in the ledger, with only the host of its address.

    Also clears the cache of the webhooks that receive events.
    """
    data = {
        "webhook": str(webhook.pk),
        "owner": webhook.owner_id,
        "host": get_webhook_host(webhook),
        "events": webhook.events,
        "off": webhook.off,
        **more,
    }
    ledger.record_event(event, actor=actor, now=now, data=data)
    outbox.SUBSCRIBERS.forget()


def reencrypt_webhook_secrets() -> int:
    """Re-encrypt all secrets with the newest encryption key; return the number of secrets.

    Raises `SecretUnreadable`.
    """
    with transaction.atomic():
        found = list(Webhook.objects.select_for_update(no_key=True).order_by("pk"))
        for webhook in found:
            webhook.secret = secrets.rotate_secret(webhook.secret)
            webhook.save(update_fields=["secret"])
    return len(found)

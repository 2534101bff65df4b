"""Webhooks of a user: create, update, test, and the delivery log."""

import uuid
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint, get_request_key
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.inputs import EmptyBody, Flag, PageQuery, PlainText, Strict
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.ground.refusals import NotFound
from chats.models import Webhook, WebhookDelivery
from chats.people import sessions
from chats.people.keys import InsufficientScope
from chats.record.outbox import AUDIT, CHECKPOINT, EVENTS
from chats.webhooks import managing

SCOPE = "webhooks"
# Events that an API key may receive only with the scope that reads the same data.
EVENT_SCOPES = {"policy.changed": "policy:read", CHECKPOINT: "audit:read", AUDIT: "audit:read"}


class EventName(PlainText):
    """The name of an event. Unknown names are refused with a list of the valid events."""


class NewWebhook(Strict):
    """A webhook to create."""

    url = PlainText(
        max_length=managing.LONGEST_URL,
        help_text=(
            "Public HTTPS URL that receives the events by POST, without user name, password "
            "or fragment."
        ),
    )
    events = serializers.ListField(
        child=EventName(),
        max_length=len(EVENTS),
        help_text="Names of one or more events that the server sends to the webhook.",
    )


class WebhookChange(Strict):
    """The fields of a webhook to change. Omitted fields keep their values."""

    url = PlainText(
        max_length=managing.LONGEST_URL,
        required=False,
        help_text=(
            "New URL, as for a new webhook. Pending deliveries are sent to the new URL, with the "
            "full number of attempts."
        ),
    )
    events = serializers.ListField(
        child=EventName(),
        max_length=len(EVENTS),
        required=False,
        help_text="Names of one or more events. They replace the earlier events.",
    )
    is_on = Flag(
        required=False,
        help_text=(
            "False: disable the webhook; new events are not queued, and pending deliveries wait. "
            "True: enable it."
        ),
    )


class WebhookOut(serializers.Serializer[Webhook]):
    """A webhook and its state, without the secret."""

    id = serializers.UUIDField()
    url = serializers.CharField(help_text="URL that receives the events.")
    events = serializers.ListField(
        child=serializers.ChoiceField(choices=list(EVENTS)),
        help_text="Names of the events that are sent.",
    )
    off = serializers.ChoiceField(
        choices=["", "owner", "failing", "gone"],
        help_text=(
            "Reason why the webhook is disabled: `owner` (you disabled it), `failing` (deliveries "
            "failed for three days) or `gone` (the URL answered 410). Empty: enabled."
        ),
    )
    created_at = serializers.DateTimeField()
    failing_since = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time of the first failure since the last success or change. After three days, the "
            "webhook is disabled. Null: no failure since then."
        ),
    )
    rests_until = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time until which the server delays deliveries after a failure. Null: not delayed."
        ),
    )


class NewWebhookOut(WebhookOut):
    """A new webhook with its secret, which no later response contains."""

    secret = serializers.CharField(
        help_text=(
            "Key that signs each delivery (Standard Webhooks). Starts with `whsec_`. Store it now."
        )
    )


class WebhookList(serializers.Serializer[object]):
    """All webhooks, on one page."""

    data = WebhookOut(many=True)  # type: ignore[assignment]  # DRF's metaclass removes fields


class DeliveryOut(serializers.Serializer[WebhookDelivery]):
    """The delivery of one event: its body, its attempts and its result."""

    id = serializers.UUIDField(
        source="public_id", help_text="Id of the delivery. Retries use the same id."
    )
    event = serializers.CharField(help_text="Name of the event.")
    status = serializers.ChoiceField(
        choices=WebhookDelivery.Status.choices,
        help_text=(
            "`waiting`: the next attempt is pending. `delivered`: the URL answered with a 2xx "
            "status. `failed`: it failed and is not retried."
        ),
    )
    tries = serializers.IntegerField(
        help_text=(
            "Number of attempts so far, at most 8. A redelivery or a new URL starts again at 0."
        )
    )
    created_at = serializers.DateTimeField()
    next_at = serializers.SerializerMethodField()
    ended_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the delivery succeeded or its last attempt failed. Null: pending.",
    )
    answer = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "HTTP status of the response to the last attempt. Null: no attempt yet, or no response."
        ),
    )
    problem = serializers.CharField(
        help_text=(
            "Error of the last attempt: `refused` (status 4xx or 5xx), `redirected`, "
            "`timeout`, `no_connection`, `address_refused`, `not_allowed`, `queue_full` or "
            "`secret_unreadable`. Empty: none."
        )
    )
    body = serializers.CharField(
        help_text="Body as sent and signed: JSON in UTF-8. Empty for the error `not_allowed`."
    )

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_next_at(self, row: WebhookDelivery) -> Any:
        """Time of the next attempt. Null if no attempt is scheduled."""
        is_waiting = row.status == WebhookDelivery.Status.WAITING
        field = serializers.DateTimeField()
        return field.to_representation(row.next_at) if is_waiting else None


def list_missing_scopes(request: Request, events: Iterable[str]) -> dict[str, str]:
    """Return the events whose scope the request's API key lacks, with that scope."""
    key = get_request_key(request)
    needed = {event: EVENT_SCOPES[event] for event in events if event in EVENT_SCOPES}
    return {event: scope for event, scope in needed.items() if key and scope not in key.scopes}


def check_event_permissions(
    request: Request, events: Iterable[str], *, is_new_address: bool, now: datetime
) -> None:
    """Check that the request may send these events to a URL.

    Raises `InsufficientScope`, and in a session `ReauthenticationRequired` for a new URL.
    """
    if is_new_address and get_request_key(request) is None:
        sessions.require_recent(session=request.session, now=now)
    for scope in list_missing_scopes(request, events).values():
        raise InsufficientScope(scope=scope)


class WebhookViewSet(ConditionalEndpoint):
    serializer_class = WebhookOut
    read_scope = write_scope = SCOPE
    lookup_url_kwarg = "webhook_id"

    def rows(self) -> QuerySet[Webhook]:
        return Webhook.objects.filter(pk=self.kwargs["webhook_id"])

    @extend_schema(summary="List webhooks", responses=WebhookList)
    def list(self, request: Request) -> Response:
        """List your webhooks, newest first, without secrets."""
        return Response(
            {"data": serialize_rows(WebhookOut, managing.list_webhooks(owner=self.user))}
        )

    @extend_schema(summary="Create a webhook", request=NewWebhook, responses=NewWebhookOut)
    def create(self, request: Request) -> Response:
        """Create a webhook. Only this response contains `secret`, which signs its deliveries.

        In a session, you must have signed in within the last 15 minutes. For `policy.changed`, an
        API key also needs the scope `policy:read`; for `checkpoint.signed` and `ledger.recorded`,
        `audit:read`.
        """
        values = NewWebhook.read(request.data)
        now = timezone.now()
        check_event_permissions(request, values["events"], is_new_address=True, now=now)
        webhook, secret = managing.create_webhook(owner=self.user, now=now, **values)
        return Response({**serialize_row(WebhookOut, webhook), "secret": secret}, status=201)

    @extend_schema(operation_id="webhooks_retrieve", summary="Get a webhook")
    def retrieve(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Retrieve one of your webhooks, without its secret."""
        return self.respond(managing.get_webhook(user=self.user, webhook_id=webhook_id))

    @extend_schema(summary="Update a webhook", request=WebhookChange)
    def partial_update(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Change the URL or the events of a webhook, or enable or disable it.

        If the webhook is enabled, a change resets `failing_since`, and pending deliveries are sent
        immediately. A new URL needs a recent sign-in, and a new URL or new events need the scopes
        of the events, as for a new webhook. A new URL also needs the scopes of the events in
        pending deliveries.
        """
        webhook = managing.get_webhook(user=self.user, webhook_id=webhook_id)
        values: Mapping[str, Any] = WebhookChange.read(request.data)
        now = timezone.now()
        events = set(values.get("events", ()))
        if "url" in values:
            # The new address also gets the pending deliveries.
            events |= {*webhook.events, *managing.list_pending_events(webhook)}
        check_event_permissions(request, events, is_new_address="url" in values, now=now)
        return self.respond(managing.update_webhook(webhook=webhook, now=now, **values))

    @extend_schema(summary="Delete a webhook")
    def destroy(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Delete a webhook and its delivery log. Pending deliveries are not sent."""
        webhook = managing.get_webhook(user=self.user, webhook_id=webhook_id)
        EmptyBody.read(request.data)
        managing.delete_webhook(webhook=webhook, now=timezone.now())
        return Response(status=204)

    @extend_schema(summary="Send a test event", responses={202: DeliveryOut})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Queue a test delivery of the event `webhook.test`. The delivery log shows the result."""
        webhook = managing.get_webhook(user=self.user, webhook_id=webhook_id)
        EmptyBody.read(request.data)
        sent = managing.queue_test_event(webhook=webhook, now=timezone.now())
        return Response(serialize_row(DeliveryOut, sent), status=202)


class DeliveryViewSet(Endpoint):
    serializer_class = DeliveryOut
    read_scope = write_scope = SCOPE
    lookup_url_kwarg = "delivery_id"

    @extend_schema(
        summary="List webhook deliveries",
        parameters=[PageQuery],
        responses=build_page_serializer(DeliveryOut),
    )
    def list(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """List the deliveries, newest first, including pending ones.

        Finished deliveries are deleted after 30 days. With an API key, the list contains only
        events that the scopes of the key allow.
        """
        webhook = managing.get_webhook(user=self.user, webhook_id=webhook_id)
        name = f"deliveries:{webhook.pk}"
        hidden = list_missing_scopes(request, EVENT_SCOPES)
        log = managing.list_delivery_log(webhook).exclude(event__in=hidden)
        return self.respond_page(log, order=("-id",), name=name)

    @extend_schema(summary="Redeliver a webhook event", responses={202: DeliveryOut})
    @action(detail=True, methods=["post"])
    def send(self, request: Request, webhook_id: uuid.UUID, delivery_id: uuid.UUID) -> Response:
        """Resend a succeeded or failed delivery. Its id and body do not change.

        The server makes up to eight new attempts. Raises `NotFound`, also for an event whose scope
        the API key lacks.
        """
        webhook = managing.get_webhook(user=self.user, webhook_id=webhook_id)
        delivery = managing.get_delivery(webhook=webhook, public_id=delivery_id)
        if list_missing_scopes(request, [delivery.event]):
            raise NotFound
        EmptyBody.read(request.data)
        sent = managing.resend_delivery(webhook=webhook, delivery=delivery, now=timezone.now())
        return self.respond(sent, status=202)

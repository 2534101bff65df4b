"""A person's webhooks: made, changed, tried out, and what they were told."""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Nothing, PageQuery, PlainText, Strict
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.schema import EDIT_ERRORS, READ_ERRORS, answers
from chats.api.unchanged import Unchanged
from chats.models import Webhook, WebhookDelivery
from chats.record.outbox import EVENTS
from chats.webhooks import managing

SCOPE = "webhooks"


class EventName(PlainText):
    """The name of an event; the domain refuses others, with the list of them."""


class NewWebhook(Strict):
    """A webhook to make."""

    url = PlainText(max_length=managing.LONGEST_URL, help_text="A public https address.")
    events = serializers.ListField(
        child=EventName(), max_length=len(EVENTS), help_text="At least one."
    )


class WebhookChange(Strict):
    """Changes of a webhook; a field that is left out stays."""

    url = PlainText(max_length=managing.LONGEST_URL, required=False)
    events = serializers.ListField(child=EventName(), max_length=len(EVENTS), required=False)
    is_on = serializers.BooleanField(
        required=False, help_text="False: nothing is sent, and no event is kept for later."
    )


class WebhookOut(serializers.Serializer[Webhook]):
    """A webhook without its secret."""

    id = serializers.UUIDField()
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.ChoiceField(choices=list(EVENTS)))
    off = serializers.ChoiceField(
        choices=["", "owner", "failing", "gone"],
        help_text="Empty while it sends; otherwise why it does not: its owner switched it off, it"
        " failed for three days, or its address answered 410.",
    )
    created_at = serializers.DateTimeField()
    failing_since = serializers.DateTimeField(
        allow_null=True, help_text="Since when nothing was taken; null after a success."
    )
    rests_until = serializers.DateTimeField(
        allow_null=True, help_text="When a server in trouble is tried next."
    )


class NewWebhookOut(WebhookOut):
    """A new webhook; its secret is shown this once."""

    secret = serializers.CharField(help_text="Signs each delivery; begins with `whsec_`.")


class WebhookList(serializers.Serializer[object]):
    """Every webhook; there is one page of them."""

    data = WebhookOut(many=True)  # type: ignore[assignment]  # the metaclass takes fields out


class DeliveryOut(serializers.Serializer[WebhookDelivery]):
    """One delivery of a webhook, and what came of it."""

    id = serializers.UUIDField(source="public_id", help_text="Stays the same at each try.")
    event = serializers.CharField()
    status = serializers.ChoiceField(choices=WebhookDelivery.Status.choices)
    tries = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    next_at = serializers.SerializerMethodField()
    ended_at = serializers.DateTimeField(allow_null=True)
    answer = serializers.IntegerField(
        allow_null=True, help_text="The status that the last try was answered with."
    )
    problem = serializers.CharField(
        help_text="Of the last try; empty, `refused`, `redirected`, `timeout`, `no_connection`,"
        " `address_refused`, `not_allowed`, `queue_full` or `secret_unreadable`."
    )
    body = serializers.CharField(help_text="As it is sent and signed: JSON in UTF-8.")

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_next_at(self, row: WebhookDelivery) -> Any:
        """Return when the next try is; None when there is none."""
        is_waiting = row.status == WebhookDelivery.Status.WAITING
        field = serializers.DateTimeField()
        return field.to_representation(row.next_at) if is_waiting else None


class Webhooks(Endpoint):
    """The person's webhooks."""

    scopes: ClassVar = {"GET": SCOPE, "POST": SCOPE}

    @extend_schema(
        operation_id="webhooks_list", responses=answers({200: WebhookList}, errors=READ_ERRORS)
    )
    def get(self, request: Request) -> Response:
        """List the webhooks, newest first; never their secrets."""
        return Response({"data": items(WebhookOut, managing.webhooks_of(owner=person(request)))})

    @extend_schema(
        operation_id="webhooks_create",
        request=NewWebhook,
        responses=answers({201: NewWebhookOut}),
    )
    def post(self, request: Request) -> Response:
        """Make a webhook. `secret` is shown this once."""
        values = NewWebhook.read(request.data)
        webhook, secret = managing.create(owner=person(request), now=timezone.now(), **values)
        return Response({**one(WebhookOut, webhook), "secret": secret}, status=201)


class OneWebhook(Unchanged):
    """One webhook of the person."""

    scopes: ClassVar = {"GET": SCOPE, "PATCH": SCOPE, "DELETE": SCOPE}

    def rows(self, _request: Request, *, webhook_id: uuid.UUID) -> QuerySet[Webhook]:
        """Return the webhook."""
        return Webhook.objects.filter(pk=webhook_id)

    @extend_schema(
        operation_id="webhooks_retrieve",
        responses=answers({200: WebhookOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Return the webhook."""
        return Response(one(WebhookOut, webhook_of(request, webhook_id)))

    @extend_schema(
        operation_id="webhooks_change",
        request=WebhookChange,
        responses=answers({200: WebhookOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Change address or events, or switch it off and on; on again it forgets its failures."""
        webhook = webhook_of(request, webhook_id)
        values: Mapping[str, Any] = WebhookChange.read(request.data)
        changed = managing.change(webhook=webhook, now=timezone.now(), **values)
        return Response(one(WebhookOut, changed))

    @extend_schema(
        operation_id="webhooks_delete",
        request=None,
        responses=answers({204: None}, errors=EDIT_ERRORS),
    )
    def delete(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Delete the webhook with its log; what waits is not sent."""
        webhook = webhook_of(request, webhook_id)
        Nothing.read(request.data)
        managing.delete(webhook=webhook, now=timezone.now())
        return Response(status=204)


class TryWebhook(Endpoint):
    """A delivery that tells of nothing."""

    scopes: ClassVar = {"POST": SCOPE}

    @extend_schema(
        operation_id="webhooks_test", request=None, responses=answers({202: DeliveryOut})
    )
    def post(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """Send the event `webhook.test`; the log says what came of it."""
        webhook = webhook_of(request, webhook_id)
        Nothing.read(request.data)
        sent = managing.test(webhook=webhook, now=timezone.now())
        return Response(one(DeliveryOut, sent), status=202)


class Deliveries(Endpoint):
    """The log of a webhook."""

    scopes: ClassVar = {"GET": SCOPE}

    @extend_schema(
        operation_id="webhooks_deliveries_list",
        parameters=[PageQuery],
        responses=answers({200: listed(DeliveryOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, webhook_id: uuid.UUID) -> Response:
        """List what the webhook was told and is to be told, newest first, for 30 days."""
        webhook = webhook_of(request, webhook_id)
        query = PageQuery.read(request.query_params.dict())
        name = f"deliveries:{webhook.pk}"
        page = page_of(managing.log_of(webhook), order=("-id",), name=name, **query)
        return Response({"data": items(DeliveryOut, page.rows), "next_cursor": page.next_cursor})


class SendAgain(Endpoint):
    """A delivery that has ended, once more."""

    scopes: ClassVar = {"POST": SCOPE}

    @extend_schema(
        operation_id="webhooks_deliveries_send",
        request=None,
        responses=answers({202: DeliveryOut}),
    )
    def post(self, request: Request, webhook_id: uuid.UUID, delivery_id: uuid.UUID) -> Response:
        """Send it again under its id, whether it was taken or given up."""
        webhook = webhook_of(request, webhook_id)
        delivery = managing.delivery_for(webhook=webhook, public_id=delivery_id)
        Nothing.read(request.data)
        sent = managing.send_again(webhook=webhook, delivery=delivery, now=timezone.now())
        return Response(one(DeliveryOut, sent), status=202)


def webhook_of(request: Request, webhook_id: uuid.UUID) -> Webhook:
    """Return the person's own webhook. Raises `NotFound`."""
    return managing.webhook_for(user=person(request), webhook_id=webhook_id)

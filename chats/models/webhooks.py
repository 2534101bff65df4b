"""Webhooks and their deliveries."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class Webhook(Stored):
    """A user's URL that receives events, signed with the webhook's secret."""

    class Off(models.TextChoices):
        """The reason why a webhook is disabled; empty while it is active.

        Either its owner disabled it, its deliveries failed for three days, or its URL returned
        status 410.
        """

        ON = "", gettext_lazy("active")
        OWNER = "owner", gettext_lazy("disabled")
        FAILING = "failing", gettext_lazy("disabled after three days of failures")
        GONE = "gone", gettext_lazy("disabled because the address no longer exists")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    url = models.CharField(max_length=2000)
    # Encrypted. Signs each delivery.
    secret = models.TextField()
    events = models.JSONField(default=list)
    off = models.CharField(max_length=10, choices=Off, blank=True, default=Off.ON)
    created_at = models.DateTimeField()
    # Start of the current series of failures. Empty: the last delivery succeeded.
    failing_since = models.DateTimeField(null=True, blank=True)
    # Backoff: nothing is sent before this time.
    rests_until = models.DateTimeField(null=True, blank=True)
    # Recent responses were slow, so it is served separately from the others.
    is_slow = models.BooleanField(default=False)
    # The sending worker holds this lease, which keeps deliveries in order.
    lease_until = models.DateTimeField(null=True, blank=True)
    tidied_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"webhook {self.pk}"


class WebhookDelivery(Stored):
    """One event for one webhook. The body contains IDs and numbers, never message text.

    The column of the webhook has no database constraint, because deleting a webhook must
    not roll back a reply whose end notifies it.
    """

    class Status(models.TextChoices):
        WAITING = "waiting", gettext_lazy("waiting")
        DELIVERED = "delivered", gettext_lazy("delivered")
        FAILED = "failed", gettext_lazy("failed")

    webhook = models.ForeignKey(
        Webhook,
        on_delete=models.CASCADE,
        related_name="deliveries",
        db_constraint=False,
        # `delivery_of_webhook` covers it.
        db_index=False,
    )
    # The same for each attempt, so that the receiver can detect repetitions.
    public_id = models.UUIDField(default=uuid.uuid4, editable=False)
    event = models.CharField(max_length=60)
    body = models.TextField()
    created_at = models.DateTimeField()
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    # Result of the last attempt: HTTP status, or the reason there was none.
    answer = models.PositiveIntegerField(null=True, blank=True)
    problem = models.CharField(max_length=40, blank=True, default="")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["webhook", "-id"], name="delivery_of_webhook"),
            models.Index(
                fields=["next_at"],
                condition=models.Q(status="waiting"),
                name="delivery_waiting",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.public_id}"

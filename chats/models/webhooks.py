"""Webhooks: addresses that are told of events, and every telling."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models

from contextpolicy.models.base import Stored


class Webhook(Stored):
    """An address of a person's program that is told of events, signed with its own secret."""

    class Off(models.TextChoices):
        """The reasons for which nothing is sent any more."""

        ON = "", "sends"
        OWNER = "owner", "switched off"
        FAILING = "failing", "switched off after three days of failures"
        GONE = "gone", "switched off because the address is gone"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    url = models.CharField(max_length=2000)
    # Encrypted: it signs each delivery.
    secret = models.TextField()
    events = models.JSONField(default=list)
    off = models.CharField(max_length=10, choices=Off, blank=True, default=Off.ON)
    created_at = models.DateTimeField()
    # Since its last success, if it failed after that.
    failing_since = models.DateTimeField(null=True, blank=True)
    # A server in trouble is left alone until then.
    rests_until = models.DateTimeField(null=True, blank=True)
    # Its last answers were slow: it is served apart from the others.
    is_slow = models.BooleanField(default=False)
    # Who sends to it holds it, so that what it is told keeps its order.
    lease_until = models.DateTimeField(null=True, blank=True)
    tidied_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"webhook {self.pk}"


class WebhookDelivery(Stored):
    """One event for one webhook; its body has ids and numbers, never words.

    There is no constraint to the webhook: one that was deleted a moment ago must not undo the
    reply whose end it would have been told.
    """

    class Status(models.TextChoices):
        """The states of a delivery."""

        WAITING = "waiting", "waits"
        DELIVERED = "delivered", "delivered"
        FAILED = "failed", "given up"

    webhook = models.ForeignKey(
        Webhook,
        on_delete=models.CASCADE,
        related_name="deliveries",
        db_constraint=False,
        # That of its log serves.
        db_index=False,
    )
    # The same at each try, so that the receiver can tell a repetition.
    public_id = models.UUIDField(default=uuid.uuid4, editable=False)
    event = models.CharField(max_length=60)
    body = models.TextField()
    created_at = models.DateTimeField()
    status = models.CharField(max_length=10, choices=Status, default=Status.WAITING)
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    # Of the last try: the status of HTTP, or why there was none.
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

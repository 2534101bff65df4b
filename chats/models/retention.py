"""Later erasures: wishes that a legal hold keeps waiting, and the runs of retention."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from contextpolicy.models.base import Stored


class ErasureWish(Stored):
    """A person's wish to erase something that a legal hold covers. It goes with what it names."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    chat = models.OneToOneField("Chat", null=True, blank=True, on_delete=models.CASCADE)
    message = models.OneToOneField("Message", null=True, blank=True, on_delete=models.CASCADE)
    preference = models.OneToOneField("Preference", null=True, blank=True, on_delete=models.CASCADE)
    asked_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(chat__isnull=False, message=None, preference=None)
                | Q(chat=None, message__isnull=False, preference=None)
                | Q(chat=None, message=None, preference__isnull=False),
                name="wish_names_one_thing",
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["asked_at"], name="wish_by_time")]

    def __str__(self) -> str:
        return f"wish of {self.owner_id}, asked at {self.asked_at}"


class RetentionRun(Stored):
    """One run of retention. It goes through the chats by their ids and keeps its place.

    Whoever works on it holds its lease; what it erased, its place and its counts change in one
    transaction, so that a run that was killed goes on where it ended.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    is_open = models.BooleanField(default=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # The last chat that is done.
    place = models.UUIDField(null=True, blank=True)
    # Of all chats that were looked at.
    chats = models.PositiveBigIntegerField(default=0)
    chats_erased = models.PositiveBigIntegerField(default=0)
    messages_erased = models.PositiveBigIntegerField(default=0)
    # Chats with something that is due and was left: because of a hold, of a reply that was being
    # written, or of a fault that the log tells of.
    chats_held = models.PositiveBigIntegerField(default=0)
    chats_busy = models.PositiveBigIntegerField(default=0)
    chats_failed = models.PositiveBigIntegerField(default=0)
    # SHA-256 over the digest before and the line of the newest entry; see `RetentionEntry`.
    digest = models.CharField(max_length=64)

    class Meta:
        ordering: ClassVar = ["-started_at"]
        verbose_name = "run of retention"
        verbose_name_plural = "runs of retention"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["is_open"], condition=Q(is_open=True), name="one_run_of_retention"
            )
        ]

    def __str__(self) -> str:
        return f"run of {self.started_at:%d %b %Y %H:%M:%S} UTC"


class RetentionEntry(Stored):
    """One transaction of a run in one chat, and the rows of the ledger that certify it."""

    run = models.ForeignKey(RetentionRun, on_delete=models.CASCADE, related_name="entries")
    number = models.PositiveBigIntegerField()
    # A plain id: the chat may be gone.
    chat_id = models.UUIDField()
    messages = models.PositiveBigIntegerField()
    days = models.PositiveIntegerField()
    first_seq = models.PositiveBigIntegerField()
    last_seq = models.PositiveBigIntegerField()
    last_hash = models.CharField(max_length=64)

    class Meta:
        ordering: ClassVar = ["number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "number"], name="retention_entry_once")
        ]

    def __str__(self) -> str:
        return f"{self.messages} messages of chat {self.chat_id}"

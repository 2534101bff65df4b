"""Pending erasures (delayed by a legal hold) and retention runs."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class PendingErasure(Stored):
    """A user's request to erase something under a legal hold. Deleted together with its target."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    chat = models.OneToOneField("Chat", null=True, blank=True, on_delete=models.CASCADE)
    message = models.OneToOneField("Message", null=True, blank=True, on_delete=models.CASCADE)
    preference = models.OneToOneField("Preference", null=True, blank=True, on_delete=models.CASCADE)
    asked_at = models.DateTimeField()

    class Meta:
        # The table, its constraint and its index keep their first names.
        db_table = "chats_erasurewish"
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
        return f"erasure by {self.owner_id}, requested at {self.asked_at}"


class KeptText(Stored):
    """The previous value of text that its owner replaced or deleted under a legal hold.

    Messages, preferences, summaries, states and teams keep their own earlier versions.
    """

    class Kind(models.TextChoices):
        CHAT_TITLE = "chat_title", gettext_lazy("Chat title")
        SYSTEM_TEXT = "system_text", gettext_lazy("System text of a chat")
        TEAM_TASK = "team_task", gettext_lazy("Team task of a chat")
        INSTRUCTIONS = "instructions", gettext_lazy("Personal instructions")
        FOLDER_NAME = "folder_name", gettext_lazy("Folder name")
        METADATA = "metadata", gettext_lazy("Metadata of a conversation")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="kept_texts",
        verbose_name=gettext_lazy("owner"),
    )
    # The chat that the text belongs to; for a folder name, a held chat of the folder. Empty if the
    # hold covers the user.
    chat = models.ForeignKey(
        "Chat", null=True, blank=True, on_delete=models.CASCADE, related_name="kept_texts"
    )
    kind = models.CharField(max_length=12, choices=Kind.choices, verbose_name=gettext_lazy("kind"))
    # Only for folder names: the folder may be deleted.
    folder_id = models.UUIDField(null=True, blank=True)
    text = models.TextField()
    replaced_at = models.DateTimeField(verbose_name=gettext_lazy("replaced at"))
    replaced_by = models.CharField(max_length=200, verbose_name=gettext_lazy("replaced by"))

    class Meta:
        verbose_name = gettext_lazy("text kept under a legal hold")
        verbose_name_plural = gettext_lazy("texts kept under legal holds")
        indexes: ClassVar = [models.Index(fields=["replaced_at"], name="kept_text_by_time")]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.owner_id}, replaced at {self.replaced_at}"


class RetentionRun(Stored):
    """One run of the retention job. It processes chats by ID and saves its position.

    The worker holds a lease. Erasures, position and counts change in one transaction, so a killed
    run continues where it stopped.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    started_at = models.DateTimeField(verbose_name=gettext_lazy("started at"))
    finished_at = models.DateTimeField(
        null=True, blank=True, verbose_name=gettext_lazy("finished at")
    )
    is_open = models.BooleanField(default=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # Last chat processed.
    place = models.UUIDField(null=True, blank=True)
    # Chats checked.
    chats = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("chats checked"))
    chats_erased = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("chats erased")
    )
    messages_erased = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("messages erased")
    )
    # Chats that are due but were skipped: under a legal hold, with a reply in progress, or after an
    # error (see the log).
    chats_held = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("chats under a hold")
    )
    chats_busy = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("chats with a running reply")
    )
    chats_failed = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("chats with an error")
    )
    # SHA-256 of the previous digest and the newest entry's line; see `RetentionEntry`.
    digest = models.CharField(max_length=64, verbose_name=gettext_lazy("digest"))

    class Meta:
        ordering: ClassVar = ["-started_at"]
        verbose_name = gettext_lazy("retention run")
        verbose_name_plural = gettext_lazy("retention runs")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["is_open"], condition=Q(is_open=True), name="one_run_of_retention"
            )
        ]

    def __str__(self) -> str:
        return f"run of {self.started_at:%d %b %Y %H:%M:%S} UTC"


class RetentionEntry(Stored):
    """One transaction of a run in one chat, and the ledger rows that certify it."""

    run = models.ForeignKey(RetentionRun, on_delete=models.CASCADE, related_name="entries")
    number = models.PositiveBigIntegerField()
    # No foreign key: the chat may be erased.
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

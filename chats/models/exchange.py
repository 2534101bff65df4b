"""Chat imports, the outcome of each chat, and the source of imported chats."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy

from chats.ground.sentences import localize_sentence
from contextpolicy.models.base import Stored


class ImportedChat(Stored):
    """A chat created from a file. Each source chat is imported once."""

    chat = models.OneToOneField("Chat", on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    # File format, and the chat's ID in the file.
    form = models.CharField(max_length=20)
    source_id = models.CharField(max_length=200)
    # The ID of an imported summary's row here, its original ID, and its metadata.
    details = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "form", "source_id"], name="imported_once")
        ]

    def __str__(self) -> str:
        return f"{self.form} {self.source_id}"


class FileImport(Stored):
    """A user's file that the background job imports, with its progress.

    The job imports the chats in file order and saves its position. The worker holds a lease. A
    chat, its outcome and the position are written in one transaction, so a killed worker duplicates
    nothing. The file is deleted when the import ends.
    """

    class State(models.TextChoices):
        QUEUED = "queued", gettext_lazy("Waiting")
        RUNNING = "running", gettext_lazy("Running")
        DONE = "done", gettext_lazy("Done")
        FAILED = "failed", gettext_lazy("Failed")
        STOPPED = "stopped", gettext_lazy("Stopped")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The `import_of_person` index covers it.
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    # File size in bytes.
    size = models.PositiveIntegerField()
    # File format and number of chats. Known once the file was parsed.
    form = models.CharField(max_length=20, blank=True, default="")
    found = models.PositiveIntegerField(null=True, blank=True)
    # Number of chats processed so far, then counts by outcome.
    place = models.PositiveIntegerField(default=0)
    added = models.PositiveIntegerField(default=0)
    were_here = models.PositiveIntegerField(default=0)
    not_taken = models.PositiveIntegerField(default=0)
    # Chats that already existed and received new messages.
    grown = models.PositiveIntegerField(default=0, db_default=0)
    messages = models.PositiveIntegerField(default=0)
    # Messages in the file, and how many of them exist here.
    messages_in_file = models.PositiveBigIntegerField(default=0, db_default=0)
    messages_here = models.PositiveBigIntegerField(default=0, db_default=0)
    # Position of the next chat: part of the file, and offset within the part.
    mark_part = models.PositiveIntegerField(default=0, db_default=0)
    mark_offset = models.BigIntegerField(default=0, db_default=0)
    # Start, number of chats and product of each list of chats in the file. Saves a second scan.
    outline = models.JSONField(default=dict, blank=True, null=True)
    # Error code and reason if the import failed or was stopped.
    code = models.CharField(max_length=60, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    # Template and values of the reason; see `chats.ground.sentences`.
    reason_values = models.JSONField(default=dict, blank=True, null=True)
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # Attempts since the last progress.
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["owner", "-created_at"], name="import_of_person"),
            models.Index(
                fields=["created_at"],
                condition=models.Q(finished_at=None),
                name="import_not_over",
            ),
            models.Index(fields=["finished_at"], name="import_over"),
        ]

    def __str__(self) -> str:
        return f"import {self.pk}"

    @property
    def localized_reason(self) -> str:
        return localize_sentence(self.reason, self.reason_values)


class FilePiece(Stored):
    """A chunk of a file being imported. Stored in the database because processes share no disk."""

    # The unique constraint's index covers it.
    file = models.ForeignKey(
        FileImport, on_delete=models.CASCADE, related_name="pieces", db_index=False
    )
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["file", "number"], name="piece_of_file_once")
        ]

    def __str__(self) -> str:
        return f"piece {self.number} of import {self.file_id}"


class ImportOutcome(Stored):
    """The outcome for one chat of a file: imported, or rejected with `code` and `reason`."""

    # The unique constraint's index covers it.
    file = models.ForeignKey(
        FileImport, on_delete=models.CASCADE, related_name="outcomes", db_index=False
    )
    place = models.PositiveIntegerField()
    chat = models.ForeignKey("Chat", on_delete=models.CASCADE, null=True, related_name="+")
    # Title of a chat that was not imported. Imported chats have their own.
    title = models.CharField(max_length=200, blank=True, default="")
    # Number of messages added.
    messages = models.PositiveIntegerField(default=0)
    was_here = models.BooleanField(default=False)
    # Messages of the chat in the file, and how many of them exist here.
    in_file = models.PositiveIntegerField(default=0, db_default=0)
    here = models.PositiveIntegerField(default=0, db_default=0)
    losses = models.JSONField(default=list, blank=True)
    code = models.CharField(max_length=60, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    # Template and values of the reason; see `chats.ground.sentences`.
    reason_values = models.JSONField(default=dict, blank=True, null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["file", "place"], name="outcome_of_chat_once")
        ]

    def __str__(self) -> str:
        return f"chat {self.place} of import {self.file_id}"

    @property
    def localized_reason(self) -> str:
        return localize_sentence(self.reason, self.reason_values)

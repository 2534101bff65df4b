"""Files that are made into chats, what became of each chat, and where chats came from."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models

from contextpolicy.models.base import Stored


class ImportedChat(Stored):
    """A chat that was made of a file. The same chat is imported once."""

    chat = models.OneToOneField("Chat", on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    # The kind of file, and the id that the chat has there.
    form = models.CharField(max_length=20)
    source_id = models.CharField(max_length=200)
    # Of the summary that came along: the id of its row here, its own, and what it came with.
    details = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "form", "source_id"], name="imported_once")
        ]

    def __str__(self) -> str:
        return f"{self.form} {self.source_id}"


class FileImport(Stored):
    """A file of a person that is made into chats in the background, and how far that is.

    It goes through the chats of the file in their order and keeps its place. Whoever works on it
    holds its lease; a chat, its outcome and the place are one transaction, so that a worker that is
    killed doubles nothing. The file itself is deleted with the end.
    """

    class State(models.TextChoices):
        QUEUED = "queued", "Waiting"
        RUNNING = "running", "Under way"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"
        STOPPED = "stopped", "Stopped"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # That of its list serves.
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    state = models.CharField(max_length=10, choices=State, default=State.QUEUED)
    # Bytes of the file.
    size = models.PositiveIntegerField()
    # Its kind, and the chats in it; known once it was read.
    form = models.CharField(max_length=20, blank=True, default="")
    found = models.PositiveIntegerField(null=True, blank=True)
    # The chats of the file that are dealt with, and what became of them.
    place = models.PositiveIntegerField(default=0)
    added = models.PositiveIntegerField(default=0)
    were_here = models.PositiveIntegerField(default=0)
    not_taken = models.PositiveIntegerField(default=0)
    # Of those that were here, the chats that got new messages.
    grown = models.PositiveIntegerField(default=0, db_default=0)
    messages = models.PositiveIntegerField(default=0)
    # The messages in the file, and those of them that are here.
    messages_in_file = models.PositiveBigIntegerField(default=0, db_default=0)
    messages_here = models.PositiveBigIntegerField(default=0, db_default=0)
    # Where the next chat stands in the file: its part, and the place in it.
    mark_part = models.PositiveIntegerField(default=0, db_default=0)
    mark_offset = models.BigIntegerField(default=0, db_default=0)
    # Of each list of chats in it: begin, number of chats, product. Later tasks need not look again.
    outline = models.JSONField(default=dict, blank=True, null=True)
    # Why it ended before its end.
    code = models.CharField(max_length=60, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    created_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # How often it was begun since it last came on.
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


class FilePiece(Stored):
    """A piece of a file that is being imported: no disk is shared by the processes."""

    # The constraint's index serves.
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
    """The outcome for one chat of a file: it is here, or `code` and `reason` say why not."""

    # The constraint's index serves.
    file = models.ForeignKey(
        FileImport, on_delete=models.CASCADE, related_name="outcomes", db_index=False
    )
    place = models.PositiveIntegerField()
    chat = models.ForeignKey("Chat", on_delete=models.CASCADE, null=True, related_name="+")
    # Of one that is not here: a chat has its own.
    title = models.CharField(max_length=200, blank=True, default="")
    # How many were added.
    messages = models.PositiveIntegerField(default=0)
    was_here = models.BooleanField(default=False)
    # The messages of the chat in the file, and those of them that are here.
    in_file = models.PositiveIntegerField(default=0, db_default=0)
    here = models.PositiveIntegerField(default=0, db_default=0)
    losses = models.JSONField(default=list, blank=True)
    code = models.CharField(max_length=60, blank=True, default="")
    reason = models.TextField(blank=True, default="")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["file", "place"], name="outcome_of_chat_once")
        ]

    def __str__(self) -> str:
        return f"chat {self.place} of import {self.file_id}"

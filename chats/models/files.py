"""Uploaded files: their rows, and stored bytes that are no longer needed."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from contextpolicy.models.base import Stored

# The reasons why a file could not be read, by code.
READING_FAILURES = {
    "file_damaged": gettext_noop(
        "The file is damaged, or its content does not match its kind. Open and save it again in the"
        " application that made it, then attach it again."
    ),
    "file_locked": gettext_noop(
        "The file is protected with a password. Attach a copy without a password."
    ),
    "file_without_text": gettext_noop(
        "The file contains no text, for example because it is a scan. Attach its pages as images,"
        " or a version with text."
    ),
    "file_unpacks_too_large": gettext_noop(
        "Files that unpack to more than 200 MiB or 10,000 parts are not read. Attach a smaller "
        "document."
    ),
    "file_needs_memory": gettext_noop(
        "Reading the file needs more than 512 MiB of memory. Attach a smaller file."
    ),
    "file_takes_long": gettext_noop(
        "Reading the file takes more than 30 seconds. Attach a smaller document."
    ),
    "image_too_many_pixels": gettext_noop(
        "The image has more than 50 million pixels. Attach a smaller one."
    ),
    "file_refused": gettext_noop(
        "This instance’s virus scanner refused the file. Remove it from the message. If "
        "you trust the file, ask an operator."
    ),
    "scanner_unavailable": gettext_noop(
        "This instance’s virus scanner does not answer, so the file was not read. Attach it "
        "again later."
    ),
    "file_storage_unavailable": gettext_noop(
        "The server could not get the file from its file storage several times. Attach it again; "
        "if that fails, tell an operator."
    ),
    "worker_lost": gettext_noop(
        "The server stopped several times while it read the file. Attach it again; if that "
        "fails, tell an operator."
    ),
}


class StoredFile(Stored):
    """A file of a user. The bytes are in the file storage, under `path`.

    Each content is stored once per user. People never share a row or bytes.
    """

    class Kind(models.TextChoices):
        IMAGE = "image", gettext_lazy("Image")
        TEXT = "text", gettext_lazy("Text")
        CSV = "csv", gettext_lazy("CSV table")
        HTML = "html", gettext_lazy("Web page")
        PDF = "pdf", gettext_lazy("PDF")
        DOCX = "docx", gettext_lazy("Word document")
        XLSX = "xlsx", gettext_lazy("Excel workbook")

    class State(models.TextChoices):
        PENDING = "pending", gettext_lazy("Reading")
        READY = "ready", gettext_lazy("Ready")
        FAILED = "failed", gettext_lazy("Failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The unique constraint's index covers it.
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_index=False)
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=8, choices=Kind)
    # Detected from the content, never taken from the upload.
    media_type = models.CharField(max_length=100)
    size = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    path = models.CharField(max_length=200)
    # The key of the stored bytes, encrypted; empty if they are not encrypted.
    sealed_key = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(db_index=True)
    # Whether a worker has read the file: extracted the text, or made a copy of an image for models
    # and pages.
    state = models.CharField(max_length=8, choices=State, default=State.PENDING)
    # The code of the reason why the file could not be read.
    code = models.CharField(max_length=40, blank=True, default="")
    # `pages` is 0 if the kind has no pages. `characters` and `tokens` give the length of the text.
    pages = models.PositiveIntegerField(default=0)
    characters = models.PositiveIntegerField(default=0)
    tokens = models.PositiveIntegerField(default=0)
    # False: only the beginning was read, because a limit was reached.
    is_whole = models.BooleanField(default=True)
    # The copy of an image, at `copy_path` in the storage.
    copy_path = models.CharField(max_length=200, blank=True, default="")
    copy_type = models.CharField(max_length=20, blank=True, default="")
    copy_sha256 = models.CharField(max_length=64, blank=True, default="")
    copy_size = models.PositiveIntegerField(default=0)
    width = models.PositiveIntegerField(default=0)
    height = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # The number of workers that began to read the file.
    tries = models.PositiveIntegerField(default=0)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "sha256"], name="file_content_once")
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["created_at"], condition=models.Q(state="pending"), name="file_pending"
            )
        ]

    def __str__(self) -> str:
        return f"file {self.pk}"

    @property
    def localized_reason(self) -> str:
        """The reason why the file could not be read, in the active language; empty if it could."""
        return gettext(READING_FAILURES[self.code]) if self.code else ""


class FileChunk(Stored):
    """A part of a file's text. Joined in order, the chunks are the text."""

    file = models.ForeignKey(
        StoredFile, on_delete=models.CASCADE, related_name="chunks", db_index=False
    )
    number = models.PositiveIntegerField()
    # The number of characters of the text before this chunk.
    start = models.PositiveIntegerField()
    # The page on which the chunk begins; 0 if the kind has no pages.
    page = models.PositiveIntegerField(default=0)
    text = models.TextField()
    # The distinct stems of the chunk (`chats.memory.search.words`), separated by spaces.
    words = models.TextField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["file", "number"], name="chunk_of_file_once")
        ]

    def __str__(self) -> str:
        return f"chunk {self.number} of {self.file_id}"


class MessageFile(Stored):
    """A file that a message uses. The file is deleted with its last message."""

    message = models.ForeignKey(
        "Message", on_delete=models.CASCADE, related_name="file_links", db_index=False
    )
    file = models.ForeignKey(StoredFile, on_delete=models.CASCADE, related_name="uses")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["message", "file"], name="file_of_message_once")
        ]

    def __str__(self) -> str:
        return f"file {self.file_id} in message {self.message_id}"


class FileExcerpt(Stored):
    """A part of a document that was sent with a turn's question."""

    turn = models.ForeignKey(
        "Turn", on_delete=models.CASCADE, related_name="file_excerpts", db_index=False
    )
    place = models.PositiveSmallIntegerField()
    chunk = models.ForeignKey(FileChunk, on_delete=models.CASCADE, related_name="excerpts")
    # Relevance for the question. None: the excerpt was chosen before scores were stored.
    score = models.FloatField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["turn", "place"], name="file_excerpt_place_once")
        ]

    def __str__(self) -> str:
        return f"file excerpt {self.place} of {self.turn_id}"


class FileRemoval(Stored):
    """Stored bytes to delete after `due_at`.

    Created in the transaction that deletes the file's row, and before an upload. A crash or an
    unavailable storage therefore leaves no bytes behind.
    """

    path = models.CharField(max_length=200, primary_key=True)
    due_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.path

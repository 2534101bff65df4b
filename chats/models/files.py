"""Uploaded files: their rows, and stored bytes that are no longer needed."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class StoredFile(Stored):
    """A file of a person. The bytes are in the file storage, under `path`.

    A person has each content once. People never share a row or bytes, even if the content is equal.
    """

    class Kind(models.TextChoices):
        IMAGE = "image", gettext_lazy("Image")
        TEXT = "text", gettext_lazy("Text")
        CSV = "csv", gettext_lazy("CSV table")
        HTML = "html", gettext_lazy("Web page")
        PDF = "pdf", gettext_lazy("PDF")
        DOCX = "docx", gettext_lazy("Word document")
        XLSX = "xlsx", gettext_lazy("Excel workbook")

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
    created_at = models.DateTimeField(db_index=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "sha256"], name="file_content_once")
        ]

    def __str__(self) -> str:
        return f"file {self.pk}"


class FileRemoval(Stored):
    """Stored bytes to delete from `due_at` on.

    Created in the transaction that deletes their row, and before an upload, so that neither a crash
    nor a storage that does not answer leaves bytes behind.
    """

    path = models.CharField(max_length=200, primary_key=True)
    due_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.path

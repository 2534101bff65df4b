"""The chats that were imported, and where they came from."""

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

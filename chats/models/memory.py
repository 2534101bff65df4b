"""A user's instructions and preferences that apply beyond one chat."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from chats.ground.commitments import new_salt
from contextpolicy.models.base import Stored


class MemorySettings(Stored):
    """A user's memory settings: instructions for every chat, and consent to save preferences."""

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    instructions = models.TextField(blank=True, default="")
    # Empty: without consent no preference is saved or sent.
    consented_at = models.DateTimeField(null=True, blank=True)
    paused = models.BooleanField(default=False)
    # Time from which a model may infer preferences from messages. Empty: never.
    inferring_since = models.DateTimeField(null=True, blank=True)
    # UTC day of the last inference calls, and their number on that day.
    inferred_on = models.DateField(null=True, blank=True)
    inferred_calls = models.PositiveIntegerField(default=0, db_default=0)
    # Key of the hashes that recognise deleted preferences without storing their text.
    salt = models.CharField(max_length=64, default=new_salt)

    def __str__(self) -> str:
        return f"memory of {self.owner_id}"


class Preference(Stored):
    """A preference of a user. Its text never changes: a reworded preference is a new row."""

    class Slot(models.TextChoices):
        NAME = "name", gettext_lazy("Name")
        LANGUAGE = "language", gettext_lazy("Language")
        TONE = "tone", gettext_lazy("Tone")
        FORMAT = "format", gettext_lazy("Format")
        PLACE = "place", gettext_lazy("Place")
        JOB = "job", gettext_lazy("Job")
        DIET = "diet", gettext_lazy("Diet")
        TIMEZONE = "timezone", gettext_lazy("Time zone")
        NOTE = "note", gettext_lazy("Note")

    class Kind(models.TextChoices):
        WRITTEN = "written", gettext_lazy("Written by you")
        TOLD = "told", gettext_lazy("Stated in a chat")
        INFERRED = "inferred", gettext_lazy("Inferred from your chats")

    class Status(models.TextChoices):
        PROPOSED = "proposed", gettext_lazy("Suggested")
        CURRENT = "current", gettext_lazy("In use")
        SUPERSEDED = "superseded", gettext_lazy("Outdated")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    # Applies only in the chats of this folder. None: in every chat. Deleted with the folder,
    # because without it the preference would apply more widely than intended.
    folder = models.ForeignKey("Folder", null=True, blank=True, on_delete=models.CASCADE)
    slot = models.CharField(max_length=10, choices=Slot.choices)
    text = models.CharField(max_length=200)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    status = models.CharField(max_length=10, choices=Status.choices)
    # In percent. Rises each time the user repeats the preference.
    confidence = models.PositiveSmallIntegerField(default=100)
    # Period in which the preference was true. `closed_at` is when the change became known.
    valid_from = models.DateTimeField()
    valid_to = models.DateTimeField(null=True, blank=True)
    learned_at = models.DateTimeField()
    closed_at = models.DateTimeField(null=True, blank=True)
    superseded_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="supersedes"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["owner", "slot"],
                condition=Q(status="current", folder=None) & ~Q(slot="note"),
                name="one_current_preference",
            ),
            models.UniqueConstraint(
                fields=["owner", "folder", "slot"],
                condition=Q(status="current", folder__isnull=False) & ~Q(slot="note"),
                name="one_current_in_a_folder",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["owner", "status"], name="preference_of_person"),
        ]

    def __str__(self) -> str:
        return f"preference {self.pk}"


class PreferenceEvidence(Stored):
    """The part of a user's message from which a preference was taken.

    A preference that no user wrote is deleted with its last evidence.
    """

    preference = models.ForeignKey(Preference, on_delete=models.CASCADE, related_name="evidence")
    message = models.ForeignKey("Message", on_delete=models.CASCADE, related_name="+")
    # Character offsets in the message's text.
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["preference", "message"], name="evidence_once")
        ]

    def __str__(self) -> str:
        return f"evidence of {self.preference_id}"


class ForgottenPreference(Stored):
    """Keyed hash of a preference that the user deleted, so that it is not learned again."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    digest = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "digest"], name="forgotten_once")
        ]

    def __str__(self) -> str:
        return self.digest[:12]


class PreferenceReading(Stored):
    """Position up to which a model has searched a chat for preferences of its owner.

    The worker holds a lease. After a crash the same messages are processed at most once more.
    """

    chat = models.OneToOneField(
        "Chat", primary_key=True, on_delete=models.CASCADE, related_name="preference_reading"
    )
    # Values of `Message.accepted`: processed, and in progress.
    read_to = models.PositiveBigIntegerField(default=0)
    reading_to = models.PositiveBigIntegerField(default=0)
    # Time from which the remaining messages are due. Empty: none are due.
    due_at = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveSmallIntegerField(default=0)
    receipt = models.OneToOneField(
        "Receipt", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    lease_token = models.CharField(max_length=43, blank=True, default="")
    lease_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(
                fields=["due_at"], condition=Q(due_at__isnull=False), name="preference_reading_due"
            )
        ]

    def __str__(self) -> str:
        return f"reading of {self.chat_id} up to {self.read_to}"

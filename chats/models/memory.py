"""A person's own instructions and preferences, which hold beyond one chat."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from chats.ground.seals import new_salt
from contextpolicy.models.base import Stored


class MemorySettings(Stored):
    """A person's memory: the text that they wrote for every chat, and whether more is noted."""

    owner = models.OneToOneField(
        settings.AUTH_USER_MODEL, primary_key=True, on_delete=models.CASCADE, related_name="+"
    )
    instructions = models.TextField(blank=True, default="")
    # Empty: nothing is noted, and no preference is sent, until the person agrees.
    consented_at = models.DateTimeField(null=True, blank=True)
    paused = models.BooleanField(default=False)
    # Since when a model may read what they say for preferences; empty: none does.
    inferring_since = models.DateTimeField(null=True, blank=True)
    # The day of UTC of the last such calls, and how many there were.
    inferred_on = models.DateField(null=True, blank=True)
    inferred_calls = models.PositiveIntegerField(default=0, db_default=0)
    # The key under which deleted preferences are known again without keeping their words.
    salt = models.CharField(max_length=64, default=new_salt)

    def __str__(self) -> str:
        return f"memory of {self.owner_id}"


class Preference(Stored):
    """One thing that holds of a person. Its text never changes; another text is another row."""

    class Slot(models.TextChoices):
        NAME = "name", "Name"
        LANGUAGE = "language", "Language"
        TONE = "tone", "Tone"
        FORMAT = "format", "Format"
        PLACE = "place", "Place"
        JOB = "job", "Job"
        DIET = "diet", "Diet"
        TIMEZONE = "timezone", "Time zone"
        NOTE = "note", "Note"

    class Kind(models.TextChoices):
        WRITTEN = "written", "Written by you"
        TOLD = "told", "Told in a chat"
        INFERRED = "inferred", "Read from your chats"

    class Status(models.TextChoices):
        PROPOSED = "proposed", "Proposed"
        CURRENT = "current", "In use"
        SUPERSEDED = "superseded", "No longer so"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    # Holds in the chats of this folder alone; None: in every chat. It goes with the folder, because
    # without it the row would hold in more chats than it was meant for.
    folder = models.ForeignKey("Folder", null=True, blank=True, on_delete=models.CASCADE)
    slot = models.CharField(max_length=10, choices=Slot.choices)
    text = models.CharField(max_length=200)
    kind = models.CharField(max_length=8, choices=Kind.choices)
    status = models.CharField(max_length=10, choices=Status.choices)
    # In percent: told again, it rises.
    confidence = models.PositiveSmallIntegerField(default=100)
    # When it was said, and when something else was; `closed_at` is when we learned of that.
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
    """The place in a message of the person's own from which a preference was taken.

    With its last evidence a preference that nobody wrote goes too.
    """

    preference = models.ForeignKey(Preference, on_delete=models.CASCADE, related_name="evidence")
    message = models.ForeignKey("Message", on_delete=models.CASCADE, related_name="+")
    # In characters of the message's text.
    start = models.PositiveIntegerField()
    end = models.PositiveIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["preference", "message"], name="evidence_once")
        ]

    def __str__(self) -> str:
        return f"evidence of {self.preference_id}"


class ForgottenPreference(Stored):
    """A preference that its person deleted, by a keyed hash: it is not learned again."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    digest = models.CharField(max_length=64)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "digest"], name="forgotten_once")
        ]

    def __str__(self) -> str:
        return self.digest[:12]


class PreferenceReading(Stored):
    """The place up to which a model has read a chat for what holds of its owner.

    Read with a lease: who dies leaves a trace, and what they read is read once more at most.
    """

    chat = models.OneToOneField(
        "Chat", primary_key=True, on_delete=models.CASCADE, related_name="preference_reading"
    )
    # By `Message.accepted`: read, and being read.
    read_to = models.PositiveBigIntegerField(default=0)
    reading_to = models.PositiveBigIntegerField(default=0)
    # The time from which the rest is read; empty when nothing is to do.
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

"""The state that a policy keeps of a chat in place of its dialogue."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from contextpolicy.models.base import Stored


class ChatState(Stored):
    """One version of the state of a branch. The newest counts; only an erasure changes a row.

    A branch without rows of its own has the state that its parent had at the fork. The cost of the
    extraction stands in its receipt: call 0 of the turn.
    """

    class Kind(models.TextChoices):
        EXTRACTED = "extracted", "Read from a message"
        CORRECTED = "corrected", "Corrected by a person"
        RESET = "reset", "Emptied by a person"
        RESTORED = "restored", "Restored by a person"
        ERASED = "erased", "Cleared by an erasure"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="states")
    # Continues the count of the parent's state.
    version = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=Kind.choices)
    values = models.JSONField(default=dict)
    # {name: {"seq": …, "by": kind, "at": …}, …}: where each value came from.
    origins = models.JSONField(default=dict)
    # The state includes messages up to here; the next extraction reads those after it.
    to_seq = models.PositiveBigIntegerField()
    turn = models.ForeignKey(
        "Turn", null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    model_name = models.CharField(max_length=200, blank=True, default="")
    prompt_version = models.CharField(max_length=40, blank=True, default="")
    corrected_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["branch", "version"], name="state_version_once"),
            models.UniqueConstraint(
                fields=["turn"], condition=Q(turn__isnull=False), name="state_once_per_turn"
            ),
        ]

    def __str__(self) -> str:
        return f"state {self.version} of {self.branch_id}"

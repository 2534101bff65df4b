"""Chat state, kept by a policy in place of the dialogue."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class ChatState(Stored):
    """One version of the state of a branch. The newest applies; only an erasure changes a row.

    A branch without rows inherits the state its parent had at the fork. The receipt of the
    extraction has its cost: call 0 of the step of `turn` that extracted it, with the purpose
    `state`.
    """

    class Kind(models.TextChoices):
        EXTRACTED = "extracted", gettext_lazy("Extracted from a message")
        CORRECTED = "corrected", gettext_lazy("Corrected by a user")
        RESET = "reset", gettext_lazy("Reset by a user")
        RESTORED = "restored", gettext_lazy("Restored by a user")
        ERASED = "erased", gettext_lazy("Cleared by an erasure")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    branch = models.ForeignKey("Branch", on_delete=models.CASCADE, related_name="states")
    # Continues the parent's numbering.
    version = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=Kind.choices)
    values = models.JSONField(default=dict)
    # {name: {"seq": …, "by": kind, "at": …}, …}: source of each value.
    origins = models.JSONField(default=dict)
    # Last message covered by the state. The next extraction starts after it.
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

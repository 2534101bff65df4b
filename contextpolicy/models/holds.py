"""Legal holds: while one is active, the data that it covers cannot be erased."""

import uuid
from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored
from contextpolicy.models.policies import PolicyAssignment

LONGEST_CASE, LONGEST_REASON = 120, 500


class LegalHold(Stored):
    """A hold on everything, on a group's members, on a user, or on one chat.

    The chat is a plain id, because this package does not depend on chats. A hold is never deleted;
    it stays active for seven days after its release.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    level = models.CharField(
        max_length=10, choices=PolicyAssignment.Level.choices, verbose_name=gettext_lazy("level")
    )
    group = models.ForeignKey(
        Group, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    chat_id = models.UUIDField(null=True, blank=True)
    # The group's members when the hold was placed, and when the group was deleted. They stay held
    # if they leave the group.
    people = models.JSONField(default=list, blank=True)
    case = models.CharField(max_length=LONGEST_CASE, verbose_name=gettext_lazy("case"))
    reason = models.CharField(max_length=LONGEST_REASON, verbose_name=gettext_lazy("reason"))
    review_on = models.DateField(null=True, blank=True, verbose_name=gettext_lazy("review date"))
    placed_by = models.CharField(max_length=200, verbose_name=gettext_lazy("placed by"))
    placed_at = models.DateTimeField(verbose_name=gettext_lazy("placed"))
    released_by = models.CharField(
        max_length=200, blank=True, default="", verbose_name=gettext_lazy("released by")
    )
    released_at = models.DateTimeField(null=True, blank=True, verbose_name=gettext_lazy("released"))
    release_reason = models.CharField(
        max_length=LONGEST_REASON,
        blank=True,
        default="",
        verbose_name=gettext_lazy("reason for the release"),
    )
    # Data stays held until this moment, so that another hold can follow a release.
    ends_at = models.DateTimeField(null=True, blank=True, verbose_name=gettext_lazy("end"))

    class Meta:
        ordering: ClassVar = ["-placed_at", "-pk"]
        verbose_name = gettext_lazy("legal hold")
        verbose_name_plural = gettext_lazy("legal holds")
        constraints: ClassVar = [
            # A group or a user may be removed long after the release.
            models.CheckConstraint(
                condition=Q(level="instance", group=None, user=None, chat_id=None)
                | Q(level="group", user=None, chat_id=None)
                | Q(level="user", group=None, chat_id=None)
                | Q(level="chat", group=None, user=None, chat_id__isnull=False),
                name="hold_names_its_level",
            ),
            models.CheckConstraint(
                condition=Q(released_at=None, ends_at=None)
                | Q(released_at__isnull=False, ends_at__isnull=False),
                name="hold_ends_after_its_release",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["ends_at"], name="hold_in_force"),
        ]

    def __str__(self) -> str:
        return f"{self.case}: {self.target}"

    @property
    def target(self) -> str:
        if self.level == PolicyAssignment.Level.INSTANCE:
            return "everything"
        if self.level == PolicyAssignment.Level.CHAT:
            return f"chat {self.chat_id}"
        if self.level == PolicyAssignment.Level.GROUP:
            return f"group {self.group.name}" if self.group else "a group that is gone"
        return f"person {self.user.username}" if self.user else "a deleted person"

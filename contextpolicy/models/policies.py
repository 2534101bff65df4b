"""Policies, their immutable versions, their assignments, and the effective policies."""

from typing import ClassVar

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class ContextPolicy(Stored):
    """A named policy. Its values are stored in its versions."""

    slug = models.SlugField(max_length=60, unique=True, verbose_name=gettext_lazy("slug"))
    name = models.CharField(max_length=200, verbose_name=gettext_lazy("name"))
    description = models.TextField(
        max_length=2000, blank=True, default="", verbose_name=gettext_lazy("description")
    )
    current = models.ForeignKey(
        "PolicyVersion", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    retired = models.BooleanField(default=False, verbose_name=gettext_lazy("retired"))

    class Meta:
        ordering: ClassVar = ["name"]
        verbose_name = gettext_lazy("policy")
        verbose_name_plural = gettext_lazy("policies")

    def __str__(self) -> str:
        return self.name

    @property
    def newest(self) -> "PolicyVersion | None":
        """The version with the highest number: a draft or the active one; None without versions."""
        return self.versions.order_by("-number").first()


class PolicyVersion(Stored):
    """One immutable set of values, which may leave fields to other policies.

    `values` contains only the fields that are set, by the names of `PolicyValues` in the engine.
    `locks` lists the fields that no nearer level may override.
    """

    policy = models.ForeignKey(ContextPolicy, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    values = models.JSONField(default=dict)
    locks = models.JSONField(default=list)
    note = models.CharField(max_length=500, blank=True, default="")
    created_by_id = models.BigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField()
    # The time at which the version was first published; empty for a draft.
    activated_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering: ClassVar = ["policy", "-number"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["policy", "number"], name="version_number_once"),
            models.CheckConstraint(condition=Q(number__gt=0), name="version_from_1"),
        ]

    def __str__(self) -> str:
        return f"{self.policy} v{self.number}"

    @property
    def state(self) -> str:
        """The version's state: `draft`, `active`, or `retired` once it was replaced."""
        if self.policy.current_id == self.pk:
            return "active"
        return "draft" if self.activated_at is None else "retired"


class PolicyAssignment(Stored):
    """An assignment of a policy: to everyone, to a group, to a user, or to one chat.

    The chat is a plain id, because this package does not depend on chats.
    """

    class Level(models.TextChoices):
        INSTANCE = "instance", gettext_lazy("Everyone")
        GROUP = "group", gettext_lazy("A group")
        USER = "user", gettext_lazy("A user")
        CHAT = "chat", gettext_lazy("One chat")

    policy = models.ForeignKey(
        ContextPolicy,
        on_delete=models.PROTECT,
        related_name="assignments",
        verbose_name=gettext_lazy("policy"),
    )
    level = models.CharField(
        max_length=10, choices=Level.choices, verbose_name=gettext_lazy("level")
    )
    group = models.ForeignKey(Group, null=True, blank=True, on_delete=models.CASCADE)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.CASCADE
    )
    chat_id = models.UUIDField(null=True, blank=True, db_index=True)

    class Meta:
        verbose_name = gettext_lazy("policy assignment")
        verbose_name_plural = gettext_lazy("policy assignments")
        ordering: ClassVar = ["level", "pk"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(level="instance", group=None, user=None, chat_id=None)
                | Q(level="group", group__isnull=False, user=None, chat_id=None)
                | Q(level="user", group=None, user__isnull=False, chat_id=None)
                | Q(level="chat", group=None, user=None, chat_id__isnull=False),
                name="assignment_names_its_level",
            ),
            models.UniqueConstraint(
                fields=["level"], condition=Q(level="instance"), name="one_instance_policy"
            ),
            models.UniqueConstraint(
                fields=["group"], condition=Q(level="group"), name="one_policy_per_group"
            ),
            models.UniqueConstraint(
                fields=["user"], condition=Q(level="user"), name="one_policy_per_user"
            ),
            models.UniqueConstraint(
                fields=["chat_id"], condition=Q(level="chat"), name="one_policy_per_chat"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.policy} for {self.get_level_display()}"


class EffectivePolicy(Stored):
    """The effective values for a target, and the source of each. Immutable, keyed by content.

    `sources` maps each field to [level, policy slug, version, locked].
    """

    digest = models.CharField(max_length=64, primary_key=True, verbose_name=gettext_lazy("digest"))
    values = models.JSONField()
    sources = models.JSONField()
    adjusted = models.JSONField(default=list)
    # The name and version of the nearest policy, shown next to the title.
    label = models.CharField(
        max_length=250, blank=True, default="", verbose_name=gettext_lazy("label")
    )

    class Meta:
        verbose_name = gettext_lazy("effective policy")
        verbose_name_plural = gettext_lazy("effective policies")

    def __str__(self) -> str:
        return self.label or self.digest[:12]

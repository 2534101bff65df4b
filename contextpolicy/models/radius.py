"""Jobs that count how many chats an edited policy would change."""

import uuid
from typing import ClassVar

from django.contrib.auth.models import Group
from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored
from contextpolicy.models.policies import ContextPolicy


class BlastRadius(Stored):
    """One count of the chats that an edited policy would change.

    It compares the edited content with the version that was active when the count began. It visits
    the active chats by id and stores its position. The worker holds a lease on the count. Position
    and counts change in one statement, so a killed worker neither repeats nor skips a chat. The
    text of chats is not stored.
    """

    class State(models.TextChoices):
        COUNTING = "counting", gettext_lazy("Counting")
        STOPPED = "stopped", gettext_lazy("Stopped")
        FINISHED = "finished", gettext_lazy("Finished")
        VOID = "void", gettext_lazy("Outdated")

    class Place(models.TextChoices):
        INSTANCE = "instance", gettext_lazy("Everyone")
        ASSIGNED = "assigned", gettext_lazy("Current assignments")
        REMOVED = "removed", gettext_lazy("Nowhere (as if the policy were removed)")

    # The places where a version can apply. A removal is not one of them.
    APPLIED: ClassVar = [(each.value, each.label) for each in (Place.INSTANCE, Place.ASSIGNED)]

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    policy = models.ForeignKey(
        ContextPolicy,
        on_delete=models.PROTECT,
        related_name="radii",
        verbose_name=gettext_lazy("policy"),
    )
    values = models.JSONField(default=dict)
    locks = models.JSONField(default=list)
    # SHA-256 of values and locks; the count applies to a version with the same digest.
    digest = models.CharField(max_length=64, verbose_name=gettext_lazy("digest"))
    # The number of the active version when the count began; 0: none.
    base = models.PositiveIntegerField(verbose_name=gettext_lazy("compared with version"))
    place = models.CharField(
        max_length=10, choices=Place.choices, verbose_name=gettext_lazy("counted chats")
    )
    # The chats of this group's members are counted, as if the policy replaced the group's current
    # one; with `REMOVED`, as if it did not apply to the group.
    group = models.ForeignKey(
        Group,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="+",
        verbose_name=gettext_lazy("group"),
    )
    state = models.CharField(
        max_length=10,
        choices=State.choices,
        default=State.COUNTING,
        verbose_name=gettext_lazy("state"),
    )
    started_by_id = models.BigIntegerField(null=True, blank=True)
    started_at = models.DateTimeField(verbose_name=gettext_lazy("started"))
    finished_at = models.DateTimeField(null=True, blank=True, verbose_name=gettext_lazy("finished"))
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # The last chat that was counted.
    cursor = models.UUIDField(null=True, blank=True)
    # Active chats when the count began; chats removed since are not counted.
    in_use = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("chats in use"))
    judged = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("chats checked"))
    changed = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("would change"))
    would_refuse = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("would be refused")
    )
    # Chats that could not be counted because of an error, which is logged.
    failed = models.PositiveBigIntegerField(
        default=0, verbose_name=gettext_lazy("could not be evaluated")
    )
    # The result of a random sample; empty until the sample was taken.
    sampled = models.PositiveIntegerField(null=True, blank=True)
    sampled_changed = models.PositiveIntegerField(default=0)
    sampled_refuse = models.PositiveIntegerField(default=0)
    low = models.FloatField(null=True, blank=True)
    high = models.FloatField(null=True, blank=True)
    # The chats with the largest change: ids and numbers.
    worst = models.JSONField(default=list)

    class Meta:
        ordering: ClassVar = ["-started_at"]
        verbose_name = gettext_lazy("count of affected chats")
        verbose_name_plural = gettext_lazy("counts of affected chats")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["policy"],
                condition=models.Q(state__in=["counting", "stopped"]),
                name="one_open_radius_per_policy",
            )
        ]

    def __str__(self) -> str:
        return f"{self.policy}, counted on {self.started_at:%d %b %Y %H:%M} UTC"

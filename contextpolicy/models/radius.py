"""Jobs that count how many chats a policy as it is written would change."""

import uuid
from typing import ClassVar

from django.contrib.auth.models import Group
from django.db import models

from contextpolicy.models.base import Stored
from contextpolicy.models.policies import ContextPolicy


class BlastRadius(Stored):
    """One count: of this content of a policy, over the version that was in force when it began.

    It goes through the chats in use by their ids and keeps its place. Whoever works on it holds its
    lease; its place and its counts change in one statement, so that no chat counts twice and none
    is left out when a worker is killed. No words of a chat are in it.
    """

    class State(models.TextChoices):
        COUNTING = "counting", "Counting"
        STOPPED = "stopped", "Stopped"
        FINISHED = "finished", "Finished"
        VOID = "void", "Void"

    class Place(models.TextChoices):
        INSTANCE = "instance", "Everyone"
        ASSIGNED = "assigned", "Where it is assigned"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    policy = models.ForeignKey(ContextPolicy, on_delete=models.PROTECT, related_name="radii")
    values = models.JSONField(default=dict)
    locks = models.JSONField(default=list)
    # SHA-256 of values and locks: what a version has to be, so that this count is of it.
    digest = models.CharField(max_length=64)
    # The number of the version in force; 0: none.
    base = models.PositiveIntegerField()
    place = models.CharField(max_length=10, choices=Place.choices)
    # Of a count for an assignment to a group: the chats of its members are counted, as if it were
    # assigned to the group in place of what the group has.
    group = models.ForeignKey(
        Group, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.COUNTING)
    started_by_id = models.BigIntegerField(null=True, blank=True)
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    lease_token = models.UUIDField(null=True, blank=True)
    # The last chat that is counted.
    cursor = models.UUIDField(null=True, blank=True)
    # Chats in use when it began; those that are gone meanwhile are not judged.
    in_use = models.PositiveBigIntegerField(default=0)
    judged = models.PositiveBigIntegerField(default=0)
    changed = models.PositiveBigIntegerField(default=0)
    would_refuse = models.PositiveBigIntegerField(default=0)
    # Chats that could not be judged, because of a fault that the log tells of.
    failed = models.PositiveBigIntegerField(default=0)
    # What a random sample said before: empty until it was taken.
    sampled = models.PositiveIntegerField(null=True, blank=True)
    sampled_changed = models.PositiveIntegerField(default=0)
    sampled_refuse = models.PositiveIntegerField(default=0)
    low = models.FloatField(null=True, blank=True)
    high = models.FloatField(null=True, blank=True)
    # The chats that change most: ids and numbers.
    worst = models.JSONField(default=list)

    class Meta:
        ordering: ClassVar = ["-started_at"]
        verbose_name = "blast radius"
        verbose_name_plural = "blast radii"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["policy"],
                condition=models.Q(state__in=["counting", "stopped"]),
                name="one_open_radius_per_policy",
            )
        ]

    def __str__(self) -> str:
        return f"{self.policy}, counted on {self.started_at:%d %b %Y %H:%M} UTC"

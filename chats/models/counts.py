"""Counts of calls and compactions: by day, and for each compaction."""

from typing import Any, ClassVar

from django.db import models

from chats.models.compactions import Compaction
from contextpolicy.models.base import Stored


def number() -> "models.PositiveBigIntegerField[Any, Any]":
    """Return a column that counts."""
    return models.PositiveBigIntegerField(default=0)


def worth() -> "models.DecimalField[Any, Any]":
    """Return a column of money in the row's currency; what saves nothing can be below 0."""
    return models.DecimalField(max_digits=24, decimal_places=10, default=0)


class DailyCount(Stored):
    """The sums of one day (UTC) for one model under one version of a policy, in one currency.

    They are added to as the ledger grows, and by nothing else: what is erased later stays counted.
    The policy is the one that chose the strategy; empty: built-in defaults, or no policy at all.
    """

    day = models.DateField()
    # Slugs, so that the row stays when a model or a policy is renamed or gone.
    model = models.CharField(max_length=120, blank=True, default="")
    policy = models.CharField(max_length=60, blank=True, default="")
    version = models.PositiveIntegerField(default=0)
    currency = models.CharField(max_length=8, blank=True, default="")
    replies = number()
    stopped = number()
    failed = number()
    # {code: how many}
    failures = models.JSONField(default=dict)
    # {milliseconds: how many replies began within them and not within the bucket before}
    first_tokens = models.JSONField(default=dict)
    calls = number()
    # Calls that were answered without a word of their tokens.
    unreported = number()
    input = number()
    cached = number()
    written = number()
    output = number()
    cost = worth()
    # Calls that used something without a price.
    unpriced = number()
    # {what became of it: how many}
    compactions = models.JSONField(default=dict)
    summaries = number()
    summary_cost = worth()
    summaries_unpriced = number()
    # Of calls whose prompt a compaction governed.
    governed = number()
    saved_tokens = models.BigIntegerField(default=0)
    saved = worth()
    saved_unpriced = number()
    lost_tokens = number()
    lost = worth()
    lost_unpriced = number()

    class Meta:
        verbose_name = "daily count"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "model", "policy", "version", "currency"], name="counted_once_a_day"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["policy", "day"], name="counts_of_policy")]

    def __str__(self) -> str:
        return f"{self.day}, {self.model or 'no model'}, {self.policy or 'no policy'}"


class CompactionBalance(Stored):
    """The effect of a compaction on the calls that it governed, in one currency."""

    compaction = models.ForeignKey(Compaction, on_delete=models.CASCADE, related_name="balances")
    currency = models.CharField(max_length=8, blank=True, default="")
    calls = number()
    unreported = number()
    saved_tokens = models.BigIntegerField(default=0)
    saved = worth()
    saved_unpriced = number()
    lost_tokens = number()
    lost = worth()
    lost_unpriced = number()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["compaction", "currency"], name="balance_once")
        ]

    def __str__(self) -> str:
        return f"balance of {self.compaction_id}"

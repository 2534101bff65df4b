"""Statistics of calls and compactions, per day and per compaction."""

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy

from chats.models.compactions import Compaction
from contextpolicy.models.base import Stored


def counter_field() -> "models.PositiveBigIntegerField[Any, Any]":
    return models.PositiveBigIntegerField(default=0)


def amount_field() -> "models.DecimalField[Any, Any]":
    """Return a model field for an amount in the row's currency. Savings can be negative."""
    return models.DecimalField(max_digits=24, decimal_places=10, default=0)


class DailyCount(Stored):
    """Totals of one UTC day per model, policy version and currency.

    Only new ledger entries add to the totals, so erased messages stay counted. `policy` is the
    policy that chose the strategy. Empty: built-in defaults or no policy.
    """

    day = models.DateField(verbose_name=gettext_lazy("day"))
    # Slugs, so that the row survives a renamed or deleted model or policy.
    model = models.CharField(
        max_length=120, blank=True, default="", verbose_name=gettext_lazy("model")
    )
    policy = models.CharField(
        max_length=60, blank=True, default="", verbose_name=gettext_lazy("policy")
    )
    version = models.PositiveIntegerField(default=0, verbose_name=gettext_lazy("version"))
    currency = models.CharField(
        max_length=8, blank=True, default="", verbose_name=gettext_lazy("currency")
    )
    replies = counter_field()
    stopped = counter_field()
    failed = counter_field()
    # {error code: number of failures}
    failures = models.JSONField(default=dict)
    # {upper bound in ms: number of replies whose first token fell in this histogram bucket}
    first_tokens = models.JSONField(default=dict)
    calls = counter_field()
    # Calls for which the provider reported no token usage.
    unreported = counter_field()
    input = counter_field()
    cached = counter_field()
    written = counter_field()
    output = counter_field()
    cost = amount_field()
    # Calls with usage that has no price.
    unpriced = counter_field()
    # {outcome: number of compactions}
    compactions = models.JSONField(default=dict)
    summaries = counter_field()
    summary_cost = amount_field()
    summaries_unpriced = counter_field()
    # Calls whose prompt used a compaction.
    governed = counter_field()
    saved_tokens = models.BigIntegerField(default=0)
    saved = amount_field()
    saved_unpriced = counter_field()
    lost_tokens = counter_field()
    lost = amount_field()
    lost_unpriced = counter_field()

    class Meta:
        verbose_name = gettext_lazy("daily count")
        verbose_name_plural = gettext_lazy("daily counts")
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["day", "model", "policy", "version", "currency"], name="counted_once_a_day"
            )
        ]
        indexes: ClassVar = [models.Index(fields=["policy", "day"], name="counts_of_policy")]

    def __str__(self) -> str:
        return f"{self.day}, {self.model or 'no model'}, {self.policy or 'no policy'}"


class CompactionBalance(Stored):
    """Effect of a compaction on the calls whose prompt used it, in one currency."""

    compaction = models.ForeignKey(Compaction, on_delete=models.CASCADE, related_name="balances")
    currency = models.CharField(max_length=8, blank=True, default="")
    calls = counter_field()
    unreported = counter_field()
    saved_tokens = models.BigIntegerField(default=0)
    saved = amount_field()
    saved_unpriced = counter_field()
    lost_tokens = counter_field()
    lost = amount_field()
    lost_unpriced = counter_field()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["compaction", "currency"], name="balance_once")
        ]

    def __str__(self) -> str:
        return f"balance of {self.compaction_id}"

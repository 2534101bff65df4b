"""Usage that counts towards the quotas of policies."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored


class QuotaUsage(Stored):
    """Tokens and cost of a user's model calls under policies with quotas, for one UTC day.

    Independent of chats, so erased chats stay counted.
    """

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    day = models.DateField(verbose_name=gettext_lazy("day"))
    # Currency of the model's price. Empty: no price.
    currency = models.CharField(
        max_length=8, blank=True, default="", verbose_name=gettext_lazy("currency")
    )
    tokens = models.PositiveBigIntegerField(default=0, verbose_name=gettext_lazy("tokens"))
    cost = models.DecimalField(
        max_digits=24, decimal_places=10, default=0, verbose_name=gettext_lazy("cost")
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["owner", "day", "currency"], name="quota_usage_once_a_day"
            )
        ]

    def __str__(self) -> str:
        return f"usage of {self.owner_id} on {self.day}"

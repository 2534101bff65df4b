"""The language models that a policy can name."""

import re
from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.engine.policy.calibration import Factors
from contextpolicy.engine.policy.costs import Prices
from contextpolicy.models.base import Stored


class Thinking(models.TextChoices):
    """Ways to request reasoning from a model. Numbers are token budgets."""

    OWN = "", gettext_lazy("The model’s default")
    ADAPTIVE = "adaptive", gettext_lazy("Chosen by the model")
    LITTLE = "1024", gettext_lazy("Up to 1,024 tokens")
    SOME = "4096", gettext_lazy("Up to 4,096 tokens")
    MUCH = "16384", gettext_lazy("Up to 16,384 tokens")


# Chinese keyboards write the last two.
_SEPARATORS = re.compile("[,，、]")


def split_tool_types(names: str) -> list[str]:
    """Split a list of types at commas, also Chinese ones, and spaces, without duplicates."""
    return list(dict.fromkeys(_SEPARATORS.sub(" ", names).split()))


class ModelSpec(Stored):
    """One model of one provider: its limits, its prices, and values learned from its usage.

    The provider is referenced by slug, because accounts belong to a higher layer.
    """

    slug = models.SlugField(max_length=120, unique=True, verbose_name=gettext_lazy("slug"))
    provider = models.SlugField(max_length=60, verbose_name=gettext_lazy("provider"))
    name = models.CharField(
        max_length=200,
        help_text=gettext_lazy(
            "Enter the model’s name in the provider’s API, such as “gpt-4o-mini”."
        ),
        verbose_name=gettext_lazy("name"),
    )
    label = models.CharField(
        max_length=200, blank=True, default="", verbose_name=gettext_lazy("label")
    )
    context_window = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=gettext_lazy(
            "The model’s context window has this many tokens. Empty: the policy’s token budget "
            "limits prompts. A learned window also limits them."
        ),
        verbose_name=gettext_lazy("context window"),
    )
    max_output = models.PositiveIntegerField(
        null=True, blank=True, verbose_name=gettext_lazy("maximum output")
    )
    input_price = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text=gettext_lazy(
            "Enter the price per million tokens, in the currency below. Empty: unknown."
        ),
        verbose_name=gettext_lazy("input price"),
    )
    output_price = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        verbose_name=gettext_lazy("output price"),
    )
    cached_price = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text=gettext_lazy(
            "Enter the price of input that the provider reads from its cache. Empty: unknown."
        ),
        verbose_name=gettext_lazy("Price of cached input"),
    )
    written_price = models.DecimalField(
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text=(
            gettext_lazy(
                "Enter the price of input written to the cache, if the provider reports it. "
                "Empty: unknown."
            )
        ),
        verbose_name=gettext_lazy("Price of input written to the cache"),
    )
    currency = models.CharField(
        max_length=8,
        blank=True,
        default="",
        db_default="",
        help_text=(
            gettext_lazy("Enter the currency of this model’s prices, such as “USD” or “€”.")
        ),
        verbose_name=gettext_lazy("currency"),
    )
    takes_images = models.BooleanField(
        default=True,
        db_default=True,
        help_text=gettext_lazy(
            "If off, the model receives a line with the image’s name instead of the image."
        ),
        verbose_name=gettext_lazy("supports images"),
    )
    supports_tools = models.BooleanField(default=True, verbose_name=gettext_lazy("supports tools"))
    # Same as the policy field of this name. None: no limit.
    tools = models.JSONField(
        null=True,
        blank=True,
        default=None,
        verbose_name=gettext_lazy("allowed MCP tools"),
    )
    hosted_tools = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text=gettext_lazy(
            "Enter the types of tools that this model’s server runs itself, separated by commas, "
            "such as “web_search”. Gateway clients can then request them. These tools may send "
            "parts of the chat to other services."
        ),
        verbose_name=gettext_lazy("hosted tools"),
    )
    strict_roles = models.BooleanField(
        default=False,
        help_text=gettext_lazy(
            "Select this if the server requires alternating roles, starting with the user. "
            "Consecutive messages of one role are then sent as one message."
        ),
        verbose_name=gettext_lazy("strict roles"),
    )
    cannot_stream = models.BooleanField(
        default=False,
        help_text=gettext_lazy(
            "Select this if the server does not support streaming. Replies then appear when "
            "they are complete."
        ),
        verbose_name=gettext_lazy("no streaming"),
    )
    embeds = models.BooleanField(
        default=False,
        db_default=False,
        help_text=gettext_lazy(
            "API clients can request embeddings at /v1/embeddings, even if the model is "
            "disabled for chats. Operators can choose it for semantic search under Setup."
        ),
        verbose_name=gettext_lazy("Provides embeddings"),
    )
    thinking = models.CharField(
        max_length=10,
        choices=Thinking.choices,
        default=Thinking.OWN,
        blank=True,
        help_text=gettext_lazy(
            "Controls reasoning before a reply, for models with Anthropic’s API. Reasoning "
            "tokens count towards the reply limit."
        ),
        verbose_name=gettext_lazy("reasoning"),
    )
    enabled = models.BooleanField(default=True, verbose_name=gettext_lazy("enabled"))
    is_default = models.BooleanField(default=False, verbose_name=gettext_lazy("default"))
    # Provider tokens ÷ our estimate, learned from usage; 1.0 until the first usage.
    calibration = models.FloatField(default=1.0, editable=False)
    # The same factors for prompts that are nearly all in one script, by its name in
    # `engine.text.scripts`.
    calibration_by_script = models.JSONField(default=dict, editable=False)
    calibration_samples = models.PositiveIntegerField(default=0, editable=False)
    # The same numbers by script. A script without a count was learned before counts were stored.
    calibration_samples_by_script = models.JSONField(default=dict, db_default={}, editable=False)
    # A smaller window, learned from an overflow error.
    learned_window = models.PositiveIntegerField(
        null=True, blank=True, editable=False, verbose_name=gettext_lazy("learned window")
    )

    # Options that the server refused, and when that was learned. See `providers.learned_options`.
    learned_options = models.JSONField(default=dict, db_default={}, editable=False)

    class Meta:
        verbose_name = gettext_lazy("model")
        verbose_name_plural = gettext_lazy("models")
        ordering: ClassVar = ["provider", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["provider", "name"], name="model_once_per_provider"),
            models.UniqueConstraint(
                fields=["is_default"],
                condition=models.Q(is_default=True),
                name="one_default_model",
            ),
            models.CheckConstraint(
                condition=models.Q(calibration__gte=0.5, calibration__lte=2.0),
                name="calibration_is_clamped",
            ),
        ]

    def __str__(self) -> str:
        return self.label or self.name

    @property
    def factors(self) -> Factors:
        return Factors(
            self.calibration,
            self.calibration_by_script,
            self.calibration_samples,
            self.calibration_samples_by_script,
        )

    @property
    def prices(self) -> Prices:
        return Prices(
            input=self.input_price,
            output=self.output_price,
            cached=self.cached_price,
            written=self.written_price,
            currency=self.currency,
        )

    @property
    def hosted_types(self) -> frozenset[str]:
        """The types of tools that the server of this model runs itself."""
        return frozenset(split_tool_types(self.hosted_tools))

    @property
    def window(self) -> int | None:
        """The smallest known context window, in tokens; None if unknown."""
        known = [size for size in (self.context_window, self.learned_window) if size]
        return min(known) if known else None

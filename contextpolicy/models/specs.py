"""The language models that a policy can name."""

from typing import ClassVar

from django.db import models

from contextpolicy.engine.calibration import Factors
from contextpolicy.engine.costs import Prices
from contextpolicy.models.base import Stored


class Thinking(models.TextChoices):
    """The ways of asking a model to think before it replies; a number is tokens."""

    OWN = "", "As the model does by itself"
    ADAPTIVE = "adaptive", "As much as the model finds fit"
    LITTLE = "1024", "Up to 1,024 tokens"
    SOME = "4096", "Up to 4,096 tokens"
    MUCH = "16384", "Up to 16,384 tokens"


class ModelSpec(Stored):
    """One model at one provider: its limits, its price, and what experience taught about it.

    The provider is named by slug, because accounts live above this package.
    """

    slug = models.SlugField(max_length=120, unique=True)
    provider = models.SlugField(max_length=60)
    name = models.CharField(max_length=200, help_text="The name the provider's API expects.")
    label = models.CharField(max_length=200, blank=True, default="")
    context_window = models.PositiveIntegerField(
        null=True, blank=True, help_text="In tokens. Empty: unknown, the policy's budget rules."
    )
    max_output = models.PositiveIntegerField(null=True, blank=True)
    input_price = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text="Per million tokens."
    )
    output_price = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)
    cached_price = models.DecimalField(
        "Price of cached input",
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="Of input that the provider read from its cache. Empty: what such calls cost is "
        "not known.",
    )
    written_price = models.DecimalField(
        "Price of input written to the cache",
        max_digits=12,
        decimal_places=6,
        null=True,
        blank=True,
        help_text="Only where the provider tells what it wrote. Empty: what such calls cost is not "
        "known.",
    )
    currency = models.CharField(
        max_length=8, blank=True, default="", db_default="", help_text="Of these prices, as “USD”."
    )
    supports_tools = models.BooleanField(default=True)
    strict_roles = models.BooleanField(
        default=False,
        help_text="The server refuses messages whose roles do not alternate, beginning with the "
        "user's: neighbours of one role are sent as one message.",
    )
    cannot_stream = models.BooleanField(
        default=False,
        help_text="The server sends its reply in one piece: it is asked without streaming, and "
        "pages and programs are shown the reply when it is whole.",
    )
    embeds = models.BooleanField(
        "Makes embeddings",
        default=False,
        db_default=False,
        help_text="Programs may ask it for embeddings at /v1/embeddings, whether or not it is "
        "switched on for chats.",
    )
    thinking = models.CharField(
        max_length=10,
        choices=Thinking.choices,
        default=Thinking.OWN,
        blank=True,
        help_text="Only for models with Anthropic’s interface: how much it thinks before it "
        "replies. Thoughts count as part of the reply’s tokens.",
    )
    enabled = models.BooleanField(default=True)
    is_default = models.BooleanField(default=False)
    # Provider tokens ÷ our estimate, learned from usage; 1.0 until something was learned.
    calibration = models.FloatField(default=1.0, editable=False)
    # The same for prompts nearly all in one script, by its name in `engine.scripts`.
    calibration_by_script = models.JSONField(default=dict, editable=False)
    calibration_samples = models.PositiveIntegerField(default=0, editable=False)
    # A smaller window that an overflow error taught us.
    learned_window = models.PositiveIntegerField(null=True, blank=True, editable=False)

    class Meta:
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
        """The factors learned of the model's count."""
        return Factors(self.calibration, self.calibration_by_script)

    @property
    def prices(self) -> Prices:
        """The prices as the engine takes them."""
        return Prices(
            input=self.input_price,
            output=self.output_price,
            cached=self.cached_price,
            written=self.written_price,
            currency=self.currency,
        )

    @property
    def window(self) -> int | None:
        """The smallest limit known, in tokens; None when nothing is known."""
        known = [size for size in (self.context_window, self.learned_window) if size]
        return min(known) if known else None

"""Model server accounts."""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy

from chats.ground.sentences import localize_sentence
from contextpolicy.models.base import Stored


class ProviderAccount(Stored):
    """A model server: its base URL and its encrypted API key.

    The key is never shown again; pages show only `key_last_four`.
    """

    class Kind(models.TextChoices):
        OPENAI = "openai", gettext_lazy("OpenAI-compatible server")
        ANTHROPIC = "anthropic", gettext_lazy("Anthropic Messages API")
        DEMO = "demo", gettext_lazy("Demo model (no server, no key)")

    slug = models.SlugField(max_length=60, unique=True, verbose_name=gettext_lazy("slug"))
    name = models.CharField(max_length=200, verbose_name=gettext_lazy("name"))
    kind = models.CharField(
        max_length=20, choices=Kind.choices, default=Kind.OPENAI, verbose_name=gettext_lazy("kind")
    )
    base_url = models.CharField(
        max_length=500, blank=True, default="", verbose_name=gettext_lazy("base URL")
    )
    encrypted_key = models.TextField(blank=True, default="", editable=False)
    key_last_four = models.CharField(max_length=4, blank=True, default="", editable=False)
    enabled = models.BooleanField(default=True, verbose_name=gettext_lazy("enabled"))
    # Cache warm-ups run only where they are free (`follow_ups.can_warm_up_cache`).
    warm_up = models.BooleanField(
        gettext_lazy("Warm-ups"),
        default=True,
        help_text=(
            gettext_lazy(
                "Sends changed prompts to this server in the background, so that its cache is "
                "warm for the next message. This applies only to models without a price on a "
                "server with a private address."
            )
        ),
    )
    # Circuit breaker: no calls before this time, and the reason (for example a rejected API key).
    paused_until = models.DateTimeField(
        null=True, blank=True, editable=False, verbose_name=gettext_lazy("paused until")
    )
    paused_reason = models.CharField(
        max_length=200,
        blank=True,
        default="",
        editable=False,
        verbose_name=gettext_lazy("reason for the pause"),
    )

    class Meta:
        verbose_name = gettext_lazy("provider account")
        verbose_name_plural = gettext_lazy("provider accounts")
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def localized_pause(self) -> str:
        """The reason for the pause in the active language."""
        return localize_sentence(self.paused_reason, None)

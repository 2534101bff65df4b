"""The accounts of model servers."""

from typing import ClassVar

from django.db import models

from contextpolicy.models.base import Stored


class ProviderAccount(Stored):
    """One model server: an address and, encrypted, its key.

    The key's text is never shown again; `key_last_four` is all that a page may print.
    """

    class Kind(models.TextChoices):
        OPENAI = "openai", "OpenAI-compatible server"
        ANTHROPIC = "anthropic", "Anthropic’s interface (Messages)"
        DEMO = "demo", "Demo model (no server, no key)"

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=200)
    kind = models.CharField(max_length=20, choices=Kind.choices, default=Kind.OPENAI)
    base_url = models.CharField(max_length=500, blank=True, default="")
    encrypted_key = models.TextField(blank=True, default="", editable=False)
    key_last_four = models.CharField(max_length=4, blank=True, default="", editable=False)
    enabled = models.BooleanField(default=True)
    # Prompts are read ahead, but only where that costs nothing (`composition.may_warm_up`).
    warm_up = models.BooleanField(
        "Warm-ups",
        default=True,
        help_text="Where that costs nothing (no price, a private address), a prompt that has "
        "changed is sent in the background, so that nobody waits until the server has read it.",
    )
    # The breaker: no calls before this time, and why (F12: a refused key is not tried forever).
    paused_until = models.DateTimeField(null=True, blank=True, editable=False)
    paused_reason = models.CharField(max_length=200, blank=True, default="", editable=False)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

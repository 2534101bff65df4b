"""Named texts that administrators attach to policies."""

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored

LONGEST_SKILL = 10_000


class Skill(Stored):
    """Instructions for a task. Policies refer to them and include them in their system text."""

    slug = models.SlugField(max_length=60, unique=True, verbose_name=gettext_lazy("slug"))
    name = models.CharField(max_length=100, verbose_name=gettext_lazy("name"))
    text = models.TextField(
        help_text=f"At most {LONGEST_SKILL:,} characters. Do not include secrets.",
        verbose_name=gettext_lazy("text"),
    )
    enabled = models.BooleanField(
        default=True,
        help_text=gettext_lazy(
            "If off, no prompt includes this skill, even if a policy selects it."
        ),
        verbose_name=gettext_lazy("enabled"),
    )
    updated_at = models.DateTimeField(editable=False, verbose_name=gettext_lazy("updated"))

    class Meta:
        verbose_name = gettext_lazy("skill")
        verbose_name_plural = gettext_lazy("skills")
        ordering: ClassVar = ["slug"]

    def __str__(self) -> str:
        return self.name

"""Named texts that administrators attach to policies."""

from typing import ClassVar

from django.db import models

from contextpolicy.models.base import Stored

LONGEST_SKILL = 10_000


class Skill(Stored):
    """A text about how to do something. Policies name it; it stands in their system text."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=100)
    text = models.TextField(help_text=f"At most {LONGEST_SKILL:,} characters. Write no secrets.")
    enabled = models.BooleanField(default=True, help_text="Off: no prompt has it.")
    updated_at = models.DateTimeField(editable=False)

    class Meta:
        ordering: ClassVar = ["slug"]

    def __str__(self) -> str:
        return self.name

"""Named instructions for prompts, owned by the instance, a group or a team."""

from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy

from contextpolicy.models.base import Stored

LONGEST_SKILL = 10_000
LONGEST_NAME = 100
LONGEST_DESCRIPTION = 1_024
# Limits of the files of one skill.
MOST_SKILL_FILES = 20
LONGEST_SKILL_FILE = 100_000
LONGEST_SKILL_FILES = 500_000
LONGEST_FILE_NAME = 200


class Skill(Stored):
    """Instructions for a task.

    Without a group and a team it belongs to the instance, and policies refer to it. The team is a
    plain id, because this package does not depend on chats.
    """

    class Mode(models.TextChoices):
        ALWAYS = "always", gettext_lazy("Always: the text is in each prompt")
        ON_DEMAND = "on_demand", gettext_lazy("On demand: the model loads the text")

    slug = models.SlugField(max_length=60, unique=True, verbose_name=gettext_lazy("slug"))
    name = models.CharField(max_length=LONGEST_NAME, verbose_name=gettext_lazy("name"))
    description = models.CharField(
        max_length=LONGEST_DESCRIPTION,
        blank=True,
        default="",
        db_default="",
        verbose_name=gettext_lazy("description"),
    )
    text = models.TextField(
        help_text=f"At most {LONGEST_SKILL:,} characters. Do not include secrets.",
        verbose_name=gettext_lazy("text"),
    )
    # The database default serves rows and processes that are older than the column.
    mode = models.CharField(
        max_length=10,
        choices=Mode.choices,
        default=Mode.ON_DEMAND,
        db_default="always",
        verbose_name=gettext_lazy("mode"),
    )
    group = models.ForeignKey(
        Group,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="skills",
        verbose_name=gettext_lazy("group"),
    )
    team_id = models.UUIDField(
        null=True, blank=True, db_index=True, verbose_name=gettext_lazy("team")
    )
    enabled = models.BooleanField(
        default=True,
        help_text=gettext_lazy(
            "If off, no prompt includes this skill, even if a policy selects it."
        ),
        verbose_name=gettext_lazy("enabled"),
    )
    # Name, characters and SHA-256 of each file, in the order of names. Prompts need only these.
    # Null: a process that is older than the column created the row.
    files = models.JSONField(
        default=list,
        null=True,
        blank=True,
        editable=False,
        verbose_name=gettext_lazy("files"),
    )
    updated_at = models.DateTimeField(editable=False, verbose_name=gettext_lazy("updated"))

    class Meta:
        verbose_name = gettext_lazy("skill")
        verbose_name_plural = gettext_lazy("skills")
        ordering: ClassVar = ["slug"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(group=None) | Q(team_id=None), name="skill_has_one_place"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def file_list(self) -> list[dict[str, Any]]:
        """`name`, `characters` and `sha256` of each file, in the order of names."""
        return [
            {"name": name, "characters": characters, "sha256": sha256}
            for name, characters, sha256 in self.files or ()
        ]


class SkillFile(Stored):
    """A text file of a skill, which the model loads on demand.

    `name` is a path relative to the folder of the skill.
    """

    skill = models.ForeignKey(Skill, on_delete=models.CASCADE, related_name="stored_files")
    name = models.CharField(max_length=LONGEST_FILE_NAME)
    text = models.TextField(blank=True)
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering: ClassVar = ["name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["skill", "name"], name="skill_file_once"),
        ]

    def __str__(self) -> str:
        return self.name


class GroupOwner(Stored):
    """A user who edits the skills of a group. An Owner appoints them."""

    group = models.ForeignKey(Group, on_delete=models.CASCADE, related_name="owners")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="owned_groups"
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["group", "user"], name="group_owner_once"),
        ]

    def __str__(self) -> str:
        return f"owner {self.user_id} of group {self.group_id}"

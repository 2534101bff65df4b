"""Saves skills for administrators, and loads them for prompts. Each change is in the ledger."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction
from django.utils.translation import gettext

from contextpolicy import ledger
from contextpolicy.engine.text import names
from contextpolicy.models import Skill
from contextpolicy.models.skills import LONGEST_SKILL


class SkillTooLong(Exception):
    """The text of a skill exceeds the maximum length."""

    code = "too_long"

    def __init__(self, length: int) -> None:
        super().__init__(
            gettext(
                "A skill can have at most {longest:,} characters; this one has {n:,}. Shorten it "
                "or split it in two."
            ).format(longest=LONGEST_SKILL, n=length)
        )


class SkillNameTaken(Exception):
    """Another skill has the same name or slug, ignoring case."""

    code = "skill_name_taken"

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext("A skill “{name}” already exists (ignoring case). Choose another name.").format(
                name=name
            )
        )


def check_skill_free(field: str, value: str, *, but: Skill | None) -> None:
    """Raise SkillNameTaken if another skill has this `name` or `slug`, which `field` names.

    A skill keeps the one that it has: older versions allowed duplicates.
    """
    if but is not None and getattr(but, field) == value:
        return
    others = Skill.objects.exclude(pk__in=[but.pk] if but else [])
    for other in others.values_list(field, flat=True):
        if names.casefold_name(other) == names.casefold_name(value):
            raise SkillNameTaken(other)


def save_skill(*, skill: Skill, actor: str, now: datetime) -> None:
    """Save a new or changed skill and record it: lengths and names, never the text.

    Raises SkillTooLong and SkillNameTaken.
    """
    if len(skill.text) > LONGEST_SKILL:
        raise SkillTooLong(len(skill.text))
    with transaction.atomic():
        before = Skill.objects.select_for_update().filter(pk=skill.pk).first()
        for field in ("name", "slug"):
            check_skill_free(field, getattr(skill, field), but=before)
        skill.updated_at = now
        skill.save()
        data = {"skill": skill.slug, "characters": len(skill.text), "enabled": skill.enabled}
        if before is None:
            ledger.record_event("skill.created", actor=actor, now=now, data=data)
        else:
            fields = ("name", "text", "enabled")
            changed = [name for name in fields if getattr(before, name) != getattr(skill, name)]
            ledger.record_event(
                "skill.changed", actor=actor, now=now, data={**data, "fields": changed}
            )


def load_skill_texts(slugs: Sequence[str]) -> list[str]:
    """Return the texts of enabled skills, in the policy's order.

    Each text has its name above it. A missing or disabled skill is omitted.
    """
    if not slugs:
        return []
    found = {row.slug: row for row in Skill.objects.filter(slug__in=slugs, enabled=True)}
    return [f"Skill: {found[slug].name}\n{found[slug].text}" for slug in slugs if slug in found]

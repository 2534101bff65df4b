"""Skills: stored for administrators, and read for prompts. Each change is in the ledger."""

from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from contextpolicy import ledger
from contextpolicy.models import Skill
from contextpolicy.models.skills import LONGEST_SKILL


class SkillTooLong(Exception):
    """The text of a skill is longer than one may be."""

    code = "too_long"

    def __init__(self, length: int) -> None:
        super().__init__(
            f"A skill has at most {LONGEST_SKILL:,} characters; this one has {length:,}. Shorten "
            "it or make two of it."
        )


def save_skill(*, skill: Skill, actor: str, now: datetime) -> None:
    """Store a skill, new or changed, and record it: lengths and names, never the text.

    Raises SkillTooLong.
    """
    if len(skill.text) > LONGEST_SKILL:
        raise SkillTooLong(len(skill.text))
    with transaction.atomic():
        before = Skill.objects.select_for_update().filter(pk=skill.pk).first()
        skill.updated_at = now
        skill.save()
        data = {"skill": skill.slug, "characters": len(skill.text), "enabled": skill.enabled}
        if before is None:
            ledger.record("skill.created", actor=actor, now=now, data=data)
        else:
            names = ("name", "text", "enabled")
            changed = [name for name in names if getattr(before, name) != getattr(skill, name)]
            ledger.record("skill.changed", actor=actor, now=now, data={**data, "fields": changed})


def texts_of(slugs: Sequence[str]) -> list[str]:
    """Return the texts of skills that are switched on, in the order in which a policy names them.

    Each stands under its name. One that is gone or switched off is left out.
    """
    if not slugs:
        return []
    found = {row.slug: row for row in Skill.objects.filter(slug__in=slugs, enabled=True)}
    return [f"Skill: {found[slug].name}\n{found[slug].text}" for slug in slugs if slug in found]

"""Saves and deletes skills, and loads them for prompts. The ledger records each change.

The callers check permissions.
"""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.text import slugify
from django.utils.translation import gettext

from contextpolicy import ledger, skill_files, statements
from contextpolicy.engine.compose.system_text import SkillText
from contextpolicy.engine.text import names
from contextpolicy.models import Skill
from contextpolicy.models.skills import LONGEST_DESCRIPTION, LONGEST_SKILL

LONGEST_SLUG = 60
# The fields that a form of a skill contains.
EDITED = ("name", "description", "text", "mode", "enabled")
# The fields whose changes the ledger names.
RECORDED = ("name", "description", "text", "mode", "enabled", "group_id", "team_id", "files")
# The maximum number of skills of one group or team. Each costs a line of its prompts.
MOST_SKILLS = 50


class SkillChanged(Exception):
    """The skill has changed since the edited version was loaded. Nothing was saved."""

    code = "skill_changed_meanwhile"

    def __str__(self) -> str:
        return gettext(
            "This skill was changed while you were editing, so your changes are not saved yet. "
            "Compare them with the current version, then save again to replace it."
        )


class SkillTooLong(Exception):
    """The skill text has more than 10,000 characters."""

    code = "too_long"
    status = 422

    def __init__(self, length: int) -> None:
        super().__init__(
            gettext(
                "The skill has {n:,} characters. The limit is {longest:,}. Shorten the skill "
                "or split it in two."
            ).format(longest=LONGEST_SKILL, n=length)
        )


class SkillNameTaken(Exception):
    """The owner has another skill with this name, or another skill has this slug, ignoring case."""

    code = "skill_name_taken"
    status = 422

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext("A skill “{name}” already exists (ignoring case). Choose another name.").format(
                name=name
            )
        )


class SkillDescriptionInvalid(Exception):
    """A skill on demand has no description, or the description exceeds 1,024 characters."""

    code = "skill_description_invalid"
    status = 422

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "A skill on demand needs a description of 1 to {longest:,} characters. The "
                "model uses it to decide when to load the text."
            ).format(longest=LONGEST_DESCRIPTION)
        )


class TooManySkills(Exception):
    """The group or team has 50 skills, which is the limit."""

    code = "too_many_skills"
    status = 422

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "A group or team can have at most {limit} skills. Delete one that is not needed."
            ).format(limit=MOST_SKILLS)
        )


def check_skill_free(field: str, value: str, *, but: Skill | None, of: Skill | None = None) -> None:
    """Raise SkillNameTaken if another skill has this name or slug.

    `field`: `name` or `slug`. Slugs are unique. A name is unique within the owner of the skill
    `of`: the instance, a group or a team. A skill may keep its current name even if it is a
    duplicate, because older versions allowed duplicates.
    """
    if but is not None and getattr(but, field) == value:
        return
    others = Skill.objects.exclude(pk__in=[but.pk] if but else [])
    if field == "name":
        others = others.filter(
            group=of.group_id if of else None, team_id=of.team_id if of else None
        )
    for other in others.values_list(field, flat=True):
        if names.casefold_name(other) == names.casefold_name(value):
            raise SkillNameTaken(other)


def choose_skill_slug(name: str) -> str:
    """Return a free slug for a new skill of this name."""
    whole = slugify(name)[:LONGEST_SLUG].strip("-_") or "skill"
    # With room for a number.
    base = whole[: LONGEST_SLUG - 4].strip("-_")
    taken = {
        slug.casefold()
        for slug in Skill.objects.filter(slug__istartswith=base).values_list("slug", flat=True)
    }
    numbered = (f"{base}-{number}" for number in range(2, len(taken) + 3))
    return next(slug for slug in (whole, *numbered) if slug.casefold() not in taken)


def describe_place(skill: Skill) -> dict[str, Any]:
    """Return the group or team of a skill for the ledger. Empty for skills of the instance."""
    if skill.group_id is not None:
        return {"group": skill.group_id}
    return {"team": str(skill.team_id)} if skill.team_id is not None else {}


def compute_skill_digest(skill: Skill) -> str:
    """Return a digest of the fields that a form edits, to detect a change in between."""
    values = [getattr(skill, name) for name in EDITED]
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]


def save_skill(
    *,
    skill: Skill,
    actor: str,
    now: datetime,
    files: Mapping[str, str | None] | None = None,
    keeps_files: bool = True,
    based_on: str = "",
) -> None:
    """Save a new or changed skill. The ledger records lengths and names, never the text.

    `files`: new texts of files by name; None removes a file. Others stay, unless `keeps_files` is
    False. `based_on`: the digest of the edited version; empty: any version is replaced. Raises
    SkillTooLong, SkillDescriptionInvalid, SkillChanged, SkillNameTaken, TooManySkills, and one of
    `skill_files.REFUSALS`.
    """
    if len(skill.text) > LONGEST_SKILL:
        raise SkillTooLong(len(skill.text))
    skill.description = " ".join(skill.description.split())
    needs_line = skill.mode == Skill.Mode.ON_DEMAND and not skill.description
    if needs_line or len(skill.description) > LONGEST_DESCRIPTION:
        raise SkillDescriptionInvalid
    with transaction.atomic():
        before = Skill.objects.select_for_update().filter(pk=skill.pk).first()
        if before is not None and based_on not in ("", compute_skill_digest(before)):
            raise SkillChanged
        for field in ("name", "slug"):
            check_skill_free(field, getattr(skill, field), but=before, of=skill)
        place = describe_place(skill)
        is_new_there = before is None or describe_place(before) != place
        if place and is_new_there and count_place_skills(skill) >= MOST_SKILLS:
            raise TooManySkills
        changes = skill_files.plan_file_changes(before, files=files or {}, keeps_others=keeps_files)
        skill.files = skill_files.build_file_list(before, changes=changes)
        skill.updated_at = now
        skill.save()
        skill_files.store_file_changes(skill, changes=changes)
        data = {"skill": skill.slug, "characters": len(skill.text), "enabled": skill.enabled}
        data |= {"mode": skill.mode, **place, **skill_files.describe_file_changes(changes)}
        if before is None:
            ledger.record_event("skill.created", actor=actor, now=now, data=data)
        else:
            changed = [name for name in RECORDED if getattr(before, name) != getattr(skill, name)]
            ledger.record_event(
                "skill.changed", actor=actor, now=now, data={**data, "fields": changed}
            )


def count_place_skills(skill: Skill) -> int:
    return Skill.objects.filter(group=skill.group_id, team_id=skill.team_id).count()


@transaction.atomic
def delete_skill(*, skill: Skill, actor: str, now: datetime) -> None:
    """Delete a skill of a group or a team.

    The callers refuse to delete skills of the instance, because policies use them.
    """
    data = {"skill": skill.slug, **describe_place(skill)}
    skill.delete()
    ledger.record_event("skill.deleted", actor=actor, now=now, data=data)


def load_chat_skills(
    slugs: Sequence[str], *, owner: int, team: uuid.UUID | None
) -> list[SkillText]:
    """Return the enabled skills of a chat.

    These are the skills of its policy, its owner's groups, and its team. The policy's
    skills come first, in the policy's order. A missing or disabled skill is omitted. A
    policy cannot add skills of groups and teams.
    """
    rows = statements.OWN_SKILLS.rows(user=owner, team=team)
    own = sorted(rows, key=lambda row: row.slug)
    found: dict[str, Skill] = {}
    if slugs:
        chosen = Skill.objects.filter(slug__in=slugs, group=None, team_id=None, enabled=True)
        found = {row.slug: row for row in chosen}
    ordered = [*(found[slug] for slug in slugs if slug in found), *own]
    return [build_skill_text(row) for row in ordered]


def build_skill_text(row: Skill) -> SkillText:
    return SkillText(
        slug=row.slug,
        name=row.name,
        description=row.description,
        text=row.text,
        origin="team_skills" if row.team_id is not None else "skills",
        on_demand=row.mode == Skill.Mode.ON_DEMAND,
        files=tuple((file["name"], file["characters"]) for file in row.file_list),
    )

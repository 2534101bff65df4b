"""Exports the skills of policies with their texts and files, and creates them on import.

An import creates the instance's missing skills. It never changes an existing skill, because other
policies may use it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext

from contextpolicy import skill_files, skills
from contextpolicy.models import Skill
from contextpolicy.plugins import MalformedImport
from contextpolicy.wording import join_items

# Maximum bytes of the skills in an exported policy as JSON. An import reads a little more.
MOST_BYTES = 1_900_000
# How to get the skills that an exported policy does not contain. Exports are in English.
TOO_LARGE = (
    f"The skills in skills_left_out would make this file exceed {MOST_BYTES:,} bytes of skills. "
    "Export each one with “Export skill” in the administration, or with GET "
    "/api/v1/skills/SLUG/export. Import them before this policy, and set their modes."
)
NOT_READABLE = (
    "The skills in skills_left_out are not in this file, because the person who exported the "
    "policy may not read skills. An administrator of skills can export the policy again."
)
LONGEST_NAME = 100
# The keys of a skill, and the types of their values.
SKILL_KEYS: Mapping[str, type] = {
    "slug": str,
    "name": str,
    "description": str,
    "mode": str,
    "enabled": bool,
    "text": str,
    "files": dict,
}
REFUSED = (
    skills.SkillTooLong,
    skills.SkillNameTaken,
    skills.SkillDescriptionInvalid,
    skills.TooManySkills,
    *skill_files.REFUSALS,
)
_SLUG = re.compile(r"[-a-zA-Z0-9_]{1,60}")


class PolicySkillsRefused(Exception):
    """The policy has skills that do not exist on this instance, and you may not create skills."""

    code = "policy_skills_refused"
    status = 403

    def __init__(self, slugs: Sequence[str]) -> None:
        super().__init__(
            gettext(
                "The policy contains skills that do not exist on this server: {slugs}. You cannot "
                "create skills. Ask an administrator who can create skills."
            ).format(slugs=join_items(slugs))
        )


def export_policy_skills(slugs: Sequence[str], *, with_texts: bool) -> dict[str, Any]:
    """Return the skills of a policy for its export.

    The result has `skills`, `skills_left_out` with the slugs of omitted skills, and
    `skills_left_out_help` with the reason and how to get them. A skill that would make the export
    exceed `MOST_BYTES` is omitted. Without `with_texts`, all skills are omitted. Empty values are
    not included.
    """
    rows = Skill.objects.filter(slug__in=slugs, group=None, team_id=None)
    found = {row.slug: row for row in rows} if slugs else {}
    room = MOST_BYTES if with_texts else 0
    exported, left_out = [], []
    for slug in dict.fromkeys(slugs):
        if slug not in found:
            continue
        form = serialize_skill(found[slug])
        size = len(json.dumps(form))
        if size > room:
            left_out.append(slug)
        else:
            exported.append(form)
            room -= size
    how = TOO_LARGE if with_texts else NOT_READABLE
    parts = {
        "skills": exported,
        "skills_left_out": left_out,
        "skills_left_out_help": how if left_out else "",
    }
    return {key: rows for key, rows in parts.items() if rows}


def list_missing_skills(slugs: object) -> list[str]:
    """Return the `slugs` of left-out skills that have no instance-wide skill here."""
    named = [slug for slug in slugs if isinstance(slug, str)] if isinstance(slugs, list) else []
    here = Skill.objects.filter(slug__in=named, group=None, team_id=None)
    existing = set(here.values_list("slug", flat=True))
    return [slug for slug in dict.fromkeys(named) if slug not in existing]


def serialize_skill(skill: Skill) -> dict[str, Any]:
    """Return a skill of the instance with its texts, as an object with the keys `SKILL_KEYS`."""
    form = {key: getattr(skill, key) for key in SKILL_KEYS if key != "files"}
    files = {file.name: file.text for file in skill_files.list_skill_files(skill)}
    return {**form, "files": files}


def create_missing_skills(
    forms: Sequence[object], *, is_allowed: bool, actor: str, now: datetime
) -> None:
    """Create those skills of an imported policy that do not exist. Needs a transaction.

    `is_allowed`: the importer may create skills of the instance. Raises `MalformedImport` and
    `PolicySkillsRefused`.
    """
    parsed = [parse_skill_form(form) for form in forms]
    wanted = [form["slug"] for form in parsed]
    here = Skill.objects.filter(slug__in=wanted, group=None, team_id=None)
    existing = set(here.values_list("slug", flat=True))
    missing = [form for form in parsed if form["slug"] not in existing]
    if missing and not is_allowed:
        raise PolicySkillsRefused([form["slug"] for form in missing])
    for form in missing:
        skill = Skill(**{key: form[key] for key in SKILL_KEYS if key != "files"})
        try:
            skills.save_skill(skill=skill, actor=actor, now=now, files=form["files"])
        except REFUSED as error:
            raise MalformedImport(str(error), reason=error.code) from error


def parse_skill_form(form: object) -> Mapping[str, Any]:
    """Return the values of a skill in an imported policy. Raises `MalformedImport`."""
    if not isinstance(form, Mapping) or not has_skill_types(form):
        raise MalformedImport(
            gettext(
                "A skill of the policy is malformed. It needs {keys}. Export the policy again."
            ).format(keys=join_items(SKILL_KEYS)),
            reason="malformed_skill",
        )
    return form


def has_skill_types(form: Mapping[str, Any]) -> bool:
    """Return True if a skill has exactly the keys `SKILL_KEYS`, with valid types and values."""
    typed = all(isinstance(form.get(key), kind) for key, kind in SKILL_KEYS.items())
    return (
        typed
        and set(form) == set(SKILL_KEYS)
        and all(isinstance(text, str) for text in form["files"].values())
        and _SLUG.fullmatch(form["slug"]) is not None
        and form["name"] == " ".join(form["name"].split())
        and 1 <= len(form["name"]) <= LONGEST_NAME
        and form["mode"] in Skill.Mode.values
        and bool(form["text"].strip())
    )

"""Builds the system text of a call from ordered parts with their origins.

No part is ever a message in the history. Text derived from users is data and belongs in the
prompt's tail (`transcript.Background`), never here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextpolicy.engine.messages.skill_files import (
    format_file_list,
    format_moved_part,
    parse_part_key,
)
from contextpolicy.engine.messages.skills import (
    LIST_OPENING,
    format_skill_line,
    format_skill_text,
)
from contextpolicy.engine.policy.policy import PolicyValues

# Wire order; the names are those of the receipt.
ORDER = (
    "runtime",
    "profile",
    "policy",
    "agent",
    "team",
    "task",
    "chat",
    "skills",
    "team_skills",
    "budget",
)
# The origins of skills.
SKILL_ORIGINS = ("skills", "team_skills")


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill of a prompt. `origin` is `team_skills` if it belongs to a team, else `skills`.

    `on_demand`: the prompt contains the skill's line, and its text only after the model has
    loaded it. `files`: names and characters of the files that the model can load.
    """

    slug: str
    name: str
    description: str
    text: str
    origin: str = "skills"
    on_demand: bool = False
    files: tuple[tuple[str, int], ...] = ()


class UnknownOrigin(ValueError):
    """A part of the system text has an unknown origin."""

    code = "unknown_origin"


def order_system_parts(parts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Order (origin, text) parts for the wire and drop the empty ones.

    Several parts of one origin keep their order. Raises UnknownOrigin.
    """
    for origin, _ in parts:
        if origin not in ORDER:
            raise UnknownOrigin(f"Unknown origin {origin!r}. Use one of {', '.join(ORDER)}.")
    filled = [(origin, text) for origin, text in parts if text]
    return tuple(sorted(filled, key=lambda part: ORDER.index(part[0])))


def filter_system_parts(
    parts: Sequence[tuple[str, str]], *, values: PolicyValues
) -> tuple[tuple[str, str], ...]:
    """Return the parts that the policy's rule for a chat's own system text allows.

    `replace` drops the policy's text if the chat has one, `ignore` drops the chat's text. `layout`
    means `replace` in layout A and `append` in the others.
    """
    rule = values.chat_system
    if rule == "layout":
        rule = "replace" if values.layout == "A" else "append"
    has_own = any(origin == "chat" and text for origin, text in parts)
    gone = {"ignore": "chat", "replace": "policy" if has_own else ""}.get(rule, "")
    return tuple(part for part in parts if part[0] != gone)


def format_complete_skill(skill: SkillText) -> str:
    """Return the text of a skill, below its name and followed by its list of files."""
    listed = format_file_list(skill.slug, skill.files)
    return format_skill_text(skill.name, skill.text) + listed


def build_skill_parts(
    skills: Sequence[SkillText],
    *,
    moved: Sequence[str],
    lists: bool,
    files: Mapping[tuple[str, str], str],
) -> list[tuple[str, str]]:
    """Return the (origin, text) parts of skills: complete texts, the list, then moved texts.

    `moved`: the skills on demand (slugs) and the parts of their files (keys) that a compaction
    moved into the system text. `files`: the text of each file, by skill and name. If `lists` is
    False, the model cannot load texts, so the complete text of every skill is included.
    """
    listed = [skill for skill in skills if skill.on_demand and lists]
    parts = [
        (skill.origin, format_complete_skill(skill))
        for skill in skills
        if not (skill.on_demand and lists)
    ]
    opening = [LIST_OPENING]
    for origin in SKILL_ORIGINS:
        lines = [format_skill_line(s.slug, s.description) for s in listed if s.origin == origin]
        if lines:
            parts.append((origin, "\n".join((*opening, *lines))))
            opening = []
    for key in moved:
        parts += build_moved_part(key, skills=skills if lists else (), files=files)
    return parts


def build_moved_part(
    key: str, *, skills: Sequence[SkillText], files: Mapping[tuple[str, str], str]
) -> list[tuple[str, str]]:
    """Return a moved skill text or a part of a file as a list of one (origin, text) pair.

    The list is empty if the skill or the file no longer exists. It is also empty for the text of a
    skill that is no longer on demand, because the prompt contains it anyway.
    """
    part = parse_part_key(key)
    slug = part.slug if part else key
    skill = next((skill for skill in skills if skill.slug == slug), None)
    if skill is None:
        return []
    if part is not None:
        text = format_moved_part(part, files)
        return [(skill.origin, text)] if text else []
    return [(skill.origin, format_complete_skill(skill))] if skill.on_demand else []


def format_runtime_note(model: str) -> str:
    """Return a note that names the model of the chat.

    It contains no times or figures, so it changes only with the model.
    """
    return (
        f"This chat is served by Palimpsest with the model {model}. Older messages may be "
        "summarised or left out."
    )


def format_budget_note(values: PolicyValues) -> str:
    """Return a note with the policy's fixed limits.

    It contains no current token counts, so it is the same in every turn.
    """
    return (
        f"Replies end after {values.reserve_tokens:,} tokens. Tool results are shown up to "
        f"{values.tool_output_limit:,} characters."
    )

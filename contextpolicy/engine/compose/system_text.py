"""Builds the system text of a call from ordered parts with their origins.

None of the parts is ever a message in the history. Text derived from users is data and belongs in
the prompt's tail (`transcript.Background`), never here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class SkillText:
    """A skill of a prompt. `origin` is `team_skills` if it belongs to a team, else `skills`.

    `on_demand`: the prompt has its line, and its text only once it was loaded.
    """

    slug: str
    name: str
    description: str
    text: str
    origin: str = "skills"
    on_demand: bool = False


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
    """Keep the parts that a policy allows, by its rule for a chat's own system text.

    `replace` drops the policy's text if the chat has one, `ignore` drops the chat's text. `layout`
    means `replace` in layout A and `append` in the others.
    """
    rule = values.chat_system
    if rule == "layout":
        rule = "replace" if values.layout == "A" else "append"
    has_own = any(origin == "chat" and text for origin, text in parts)
    gone = {"ignore": "chat", "replace": "policy" if has_own else ""}.get(rule, "")
    return tuple(part for part in parts if part[0] != gone)


def build_skill_parts(
    skills: Sequence[SkillText], *, moved: Sequence[str], lists: bool
) -> list[tuple[str, str]]:
    """Return the (origin, text) parts of skills: complete texts, the list, then moved texts.

    `moved`: slugs of skills on demand whose texts a compaction moved here. Without `lists`, the
    model cannot load texts, so all are complete.
    """
    listed = [skill for skill in skills if skill.on_demand and lists]
    parts = [
        (skill.origin, format_skill_text(skill.name, skill.text))
        for skill in skills
        if not (skill.on_demand and lists)
    ]
    opening = [LIST_OPENING]
    for origin in ("skills", "team_skills"):
        lines = [format_skill_line(s.slug, s.description) for s in listed if s.origin == origin]
        if lines:
            parts.append((origin, "\n".join((*opening, *lines))))
            opening = []
    by_slug = {skill.slug: skill for skill in listed}
    texts = [by_slug[slug] for slug in moved if slug in by_slug]
    return parts + [(skill.origin, format_skill_text(skill.name, skill.text)) for skill in texts]


def format_runtime_note(model: str) -> str:
    """State which model serves the chat. Without times and figures, only the model changes it."""
    return (
        f"This chat is served by Palimpsest with the model {model}. Older messages may be "
        "summarised or left out."
    )


def format_budget_note(values: PolicyValues) -> str:
    """State the policy's fixed limits in a sentence. Without running figures, it never changes."""
    return (
        f"Replies end after {values.reserve_tokens:,} tokens. Tool results are shown up to "
        f"{values.tool_output_limit:,} characters."
    )

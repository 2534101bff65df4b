"""`skill_load`: the model loads the text of a skill on demand, whose line is in the system text.

Read-only. Only skills of the chat can be loaded: see `contextpolicy.skills.load_chat_skills`.
"""

from dataclasses import dataclass, replace
from typing import Any

from chats.models import Branch
from chats.prompt.tools.arguments import ArgumentsInvalid, parse_tool_arguments
from contextpolicy.engine.compose.system_text import SkillText
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.engine.messages.skills import (
    SKILL_LOAD,
    SKILL_LOAD_SPEC,
    format_skill_text,
    is_complete_text,
    parse_skill_slug,
)
from contextpolicy.skills import load_chat_skills

MALFORMED = "The arguments are not valid: {reason}. Send {{name: text}}."
UNKNOWN = "This chat has no skill of that name. Use a name of the list of skills."
LOADED = "The text of this skill is already in the prompt. Follow it."


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """The skills of a prompt: the slugs of its policy, and those whose texts it contains."""

    chosen: tuple[str, ...] = ()
    loaded: frozenset[str] = frozenset()

    def after(self, call: ToolCallPart, content: str) -> "SkillFacts":
        """Return the facts after a call of the same step, so that no text is loaded twice."""
        if call.name != SKILL_LOAD or not is_complete_text(content):
            return self
        return replace(self, loaded=self.loaded | {parse_skill_slug(call.arguments)})


def run_skill_load(
    arguments: str, *, branch: Branch, facts: SkillFacts
) -> tuple[str, dict[str, Any]]:
    """Load the text of a skill.

    Returns the text for the model, and names and numbers for the ledger.
    """
    try:
        given = parse_tool_arguments(arguments, spec=SKILL_LOAD_SPEC)
    except ArgumentsInvalid as error:
        return MALFORMED.format(reason=error), {}
    skill = find_chat_skill(given["name"], branch=branch, facts=facts)
    if skill is None:
        return UNKNOWN, {}
    if skill.slug in facts.loaded:
        return LOADED, {}
    content = format_skill_text(skill.name, skill.text)
    return content, {"tool": SKILL_LOAD, "skill": skill.slug, "characters": len(content)}


def find_chat_skill(slug: str, *, branch: Branch, facts: SkillFacts) -> SkillText | None:
    """Return the enabled skill on demand of a chat with this slug, or None."""
    chat = branch.chat
    found = load_chat_skills(facts.chosen, owner=chat.owner_id, team=chat.team_id)
    return next((skill for skill in found if skill.on_demand and skill.slug == slug), None)

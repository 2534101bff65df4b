"""`skill_load`: the model loads the text of a skill on demand, or a part of a skill's file.

Read-only. Only skills of the chat can be loaded: see `contextpolicy.skills.load_chat_skills`.
"""

from dataclasses import dataclass, replace
from typing import Any

from chats.models import Branch
from chats.prompt.tools.arguments import ArgumentsInvalid, parse_tool_arguments
from contextpolicy.engine.compose.system_text import SkillText, format_complete_skill
from contextpolicy.engine.messages.messages import ToolCallPart
from contextpolicy.engine.messages.skill_files import (
    MOST_PART_CHARACTERS,
    choose_file_part,
    format_file_part,
)
from contextpolicy.engine.messages.skills import (
    SKILL_LOAD,
    SKILL_LOAD_SPEC,
    find_result_key,
    parse_skill_slug,
)
from contextpolicy.skill_files import load_skill_file
from contextpolicy.skills import load_chat_skills

MALFORMED = "The arguments are not valid: {reason}. Send {{name: text}}, and file: text for a file."
UNKNOWN = "This chat has no skill of that name. Use a name of the list of skills."
LOADED = "The text of this skill is already in the prompt. Follow it."
NO_FILE = "This skill has no file of that name. Use a path of the list below its text."
FILE_LOADED = "This part of the file is already in the prompt."
PAST_END = "The file has only {characters:,} characters. Use a smaller start."


@dataclass(frozen=True, slots=True)
class SkillFacts:
    """The skills of a prompt: the slugs of its policy, and those whose texts it contains.

    `loaded` also has the keys of parts of files. `part_limit`: maximum characters of a
    part.
    """

    chosen: tuple[str, ...] = ()
    loaded: frozenset[str] = frozenset()
    part_limit: int = MOST_PART_CHARACTERS

    def after(self, call: ToolCallPart, content: str) -> "SkillFacts":
        """Return the facts after a call in the same step, so that no text is loaded twice."""
        if call.name != SKILL_LOAD:
            return self
        key = find_result_key(parse_skill_slug(call.arguments), content)
        return replace(self, loaded=self.loaded | {key}) if key else self


def run_skill_load(
    arguments: str, *, branch: Branch, facts: SkillFacts
) -> tuple[str, dict[str, Any]]:
    """Load the text of a skill, or a part of one of its files.

    Returns the text for the model, and names and numbers for the ledger.
    """
    try:
        given = parse_tool_arguments(arguments, spec=SKILL_LOAD_SPEC)
    except ArgumentsInvalid as error:
        return MALFORMED.format(reason=error), {}
    skill = find_chat_skill(given["name"], branch=branch, facts=facts)
    if skill is not None and "file" in given:
        return load_file_part(skill, name=given["file"], start=given.get("start", 0), facts=facts)
    if skill is None or not skill.on_demand:
        return UNKNOWN, {}
    if skill.slug in facts.loaded:
        return LOADED, {}
    content = format_complete_skill(skill)
    return content, {"tool": SKILL_LOAD, "skill": skill.slug, "characters": len(content)}


def load_file_part(
    skill: SkillText, *, name: str, start: int, facts: SkillFacts
) -> tuple[str, dict[str, Any]]:
    """Load a part of a file that belongs to one of the chat's skills.

    Files of always-loaded skills can be read too. Returns the text for the model, and names and
    numbers for the ledger.
    """
    text = load_skill_file(skill.slug, name) if name in dict(skill.files) else None
    if text is None:
        return NO_FILE, {}
    if 0 < len(text) <= start:
        return PAST_END.format(characters=len(text)), {}
    part = choose_file_part(skill.slug, name, text, start=start, limit=facts.part_limit)
    if part.key in facts.loaded:
        return FILE_LOADED, {}
    content = format_file_part(part, text)
    named = {"tool": SKILL_LOAD, "skill": skill.slug, "skill_file": name, "start": start}
    return content, {**named, "characters": len(content)}


def find_chat_skill(slug: str, *, branch: Branch, facts: SkillFacts) -> SkillText | None:
    """Return the enabled skill of a chat with this slug, or None."""
    chat = branch.chat
    found = load_chat_skills(facts.chosen, owner=chat.owner_id, team=chat.team_id)
    return next((skill for skill in found if skill.slug == slug), None)

"""The skills of a prompt: those of its chat, and the loaded texts, with notes for the receipt."""

from collections.abc import Mapping
from dataclasses import replace

from chats.models import Branch, Compaction
from chats.prompt.model_choice import ChosenModel
from chats.prompt.tools import registry as tools
from contextpolicy import skill_files, skills
from contextpolicy.engine.compose.assembly import AssembledContext, ComposeInput
from contextpolicy.engine.compose.system_text import SKILL_ORIGINS, SkillText
from contextpolicy.engine.messages.skill_files import parse_part_key, parse_skill_file_part
from contextpolicy.engine.messages.skills import find_loaded_skills
from contextpolicy.engine.messages.tokens import TokenCounter

# Receipt notes: skills on demand were sent in full because the model does not support tools, or
# left out because a client brings its own tools. In both cases the files of skills are left out.
SKILLS_COMPLETE, SKILLS_LEFT_OUT = "skills:complete", "skills:left_out"
SKILL_FILES_LEFT_OUT = "skill_files:left_out"
# Note in receipts, with the slug: the prompt has the text of this skill on demand.
SKILL = "skill"
# Note in receipts, with the key, the SHA-256 and the tokens: the prompt has this part of a file.
SKILL_FILE = "skill_file"


def load_prompt_skills(
    branch: Branch, *, choice: ChosenModel, is_client: bool
) -> tuple[list[SkillText], tuple[str, ...]]:
    """Return the skills of a prompt, and the notes about them for the receipt."""
    chat = branch.chat
    found = skills.load_chat_skills(choice.values.skills, owner=chat.owner_id, team=chat.team_id)
    if choice.model.supports_tools and not is_client:
        return found, ()
    has_on_demand = any(skill.on_demand for skill in found)
    if is_client:
        found = [skill for skill in found if not skill.on_demand]
    note = SKILLS_LEFT_OUT if is_client else SKILLS_COMPLETE
    notes = [note] if has_on_demand else []
    notes += [SKILL_FILES_LEFT_OUT] if any(skill.files for skill in found) else []
    return [replace(skill, files=()) for skill in found], tuple(notes)


def build_skill_notes(loaded: Mapping[str, str], *, counter: TokenCounter) -> list[str]:
    """Return the receipt notes for loaded texts and file parts.

    The hash and the token count of a part apply to its text in the prompt, including its position
    line.
    """
    return [
        f"{SKILL_FILE}:{key}:{skill_files.hash_file_text(content)}:{counter.count(content)}"
        if parse_part_key(key)
        else f"{SKILL}:{key}"
        for key, content in loaded.items()
    ]


def list_prompt_skills(
    assembled: AssembledContext, *, given: ComposeInput, active: Compaction | None
) -> dict[str, str]:
    """Return the loaded skill texts in a prompt, moved ones first.

    Keys are slugs of on-demand skills and keys of file parts. The text of a moved skill is empty
    here.
    """
    if not tools.has_skill_load(given.tools):
        return {}
    moved = (active.skills or ()) if active else ()
    texts = [text for origin, text in given.system if origin in SKILL_ORIGINS]
    parts = {part.key: text for text in texts if (part := parse_skill_file_part(text))}
    found = {key: "" for key in moved if parse_part_key(key) is None}
    return found | parts | find_loaded_skills(assembled.messages)

"""Skills on demand: the lines that list them, and the texts that the model has loaded.

Such a skill costs one line of the system text until the model loads its text with
`skill_load`. The text is then a tool result. A compaction that covers the result can
move the text to the system text. `skill_files` does the same for the files of skills.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from contextpolicy.engine.messages.messages import (
    Part,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    WireMessage,
)
from contextpolicy.engine.messages.skill_files import MOST_PART_CHARACTERS, parse_skill_file_part

SKILL_LOAD = "skill_load"
SKILL_LOAD_SPEC = ToolSpec(
    name=SKILL_LOAD,
    description=(
        "Load the text of a skill, that is, the instructions for a kind of task. Use it before you"
        " work on a task that a line of the list of skills describes. The name is the word before"
        " the colon of the line. With file, load a file of the skill instead: at most"
        f" {MOST_PART_CHARACTERS:,} characters from start, the position of the first character."
    ),
    parameters={
        "type": "object",
        "properties": {
            "name": {
                "type": "string",
                "minLength": 1,
                "maxLength": 60,
                "description": "The name of the skill in the list.",
            },
            "file": {"type": "string", "minLength": 1, "maxLength": 200},
            "start": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
)
LIST_OPENING = (
    "Skills are instructions for special tasks. If a task matches a line, load its text with"
    f" {SKILL_LOAD} before you begin."
)
TEXT_OPENING = "Skill: "
# Part of the marker of every cut (see `engine.history.truncation`).
CUT_MARKER = " characters cut …]"
# The maximum number of characters of a loaded text in prompts. Skills are shorter, so none is cut.
LONGEST_RESULT = 20_000
# The share of the prompt limit for texts that a compaction moves to the system text.
MOVED_SHARE = 0.1


def format_skill_line(slug: str, description: str) -> str:
    """Return the line of a skill in the list. Line breaks become spaces."""
    return f"- {slug}: {' '.join(description.split())}"


def format_skill_text(name: str, text: str) -> str:
    """Return the text of a skill with its name above it."""
    return f"{TEXT_OPENING}{name}\n{text}"


def find_loaded_skills(messages: Iterable[WireMessage]) -> dict[str, str]:
    """Return the complete texts and file parts that a prompt's tool results contain, oldest first.

    The keys are slugs of skills and keys of parts (`SkillFilePart.key`).
    """
    asked: dict[str, str] = {}
    found: dict[str, str] = {}
    for wire in messages:
        # Some servers use the same ids in each reply: the newest call counts.
        asked |= dict(iter_asked_skills(wire.tool_calls))
        if key := find_result_key(asked.get(wire.tool_call_id, ""), wire.content):
            found[key] = wire.content
    return found


def find_stored_skills(parts: Sequence[Part]) -> tuple[str, ...]:
    """Return the keys of the skill texts and file parts that a stored message loaded, in order."""
    asked = dict(iter_asked_skills(part for part in parts if isinstance(part, ToolCallPart)))
    results = (part for part in parts if isinstance(part, ToolResultPart))
    keys = (find_result_key(asked.get(part.call_id, ""), part.content) for part in results)
    return tuple(key for key in keys if key)


def find_result_key(slug: str, content: str) -> str:
    """Return the key of the skill text or file part in the result of a `skill_load` call.

    Empty if the result contains neither, or if it was cut.
    """
    if not slug or CUT_MARKER in content:
        return ""
    if content.startswith(TEXT_OPENING):
        return slug
    part = parse_skill_file_part(content)
    return part.key if part else ""


def iter_asked_skills(calls: Iterable[ToolCallPart]) -> Iterator[tuple[str, str]]:
    """Yield the call id and the slug of each call that loads a skill or one of its files."""
    for call in calls:
        if call.name == SKILL_LOAD and (slug := parse_skill_slug(call.arguments)):
            yield call.call_id, slug


def parse_skill_slug(arguments: str) -> str:
    """Return the slug in the arguments of a call. Empty if the arguments are malformed."""
    try:
        slug = json.loads(arguments)["name"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return slug if isinstance(slug, str) else ""


def choose_moved_skills(loaded: Sequence[tuple[str, int]], *, room: int) -> tuple[str, ...]:
    """Return the skills and file parts that move to the system text, oldest first.

    `loaded`: keys and token counts, in the order of loading. If a key is repeated, its last entry
    counts. Chooses from the newest, and stops at the first one that does not fit `room` tokens.
    """
    chosen: dict[str, None] = {}
    for slug, tokens in reversed(loaded):
        if slug in chosen:
            continue
        room -= tokens
        if room < 0:
            break
        chosen[slug] = None
    return tuple(reversed(chosen))

"""Skill files: their list below the skill's text, and the parts that the model has loaded.

A file costs one line of the text until the model loads a part of it with `skill_load`. The part is
then a tool result. A compaction that covers the result can move the part to the system text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextpolicy.engine.messages.tool_outputs import MOST_READ_CHARACTERS

FILES_OPENING = (
    'Files of this skill. If you need one, load it with skill_load, the name "{slug}" and its path'
    " as file:"
)
PART_OPENING = "Skill file: "
# The maximum number of characters of one part, including the two lines above the text.
MOST_PART_CHARACTERS = MOST_READ_CHARACTERS
_PART = re.compile(
    r"Skill file: (?P<path>[\w-]+/[\w./-]+)\n"
    r"\[Characters (?P<start>[\d,]+) to (?P<end>[\d,]+) of [\d,]+\]\n",
    re.ASCII,
)
_KEY = re.compile(
    r"(?P<slug>[\w-]+)/(?P<name>[\w./-]+)#(?P<start>\d{1,7})-(?P<end>\d{1,7})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class SkillFilePart:
    """A part of a skill's file: the characters from `start` to `end`, excluding `end`."""

    slug: str
    name: str
    start: int
    end: int

    @property
    def key(self) -> str:
        """The name of the part in compactions and receipts.

        The key contains a slash, which distinguishes it from the slug of a skill.
        """
        return f"{self.slug}/{self.name}#{self.start}-{self.end}"


def format_file_list(slug: str, files: Sequence[tuple[str, int]]) -> str:
    """Return the list of a skill's files with their lengths in characters.

    Returns an empty string if the skill has no files.
    """
    if not files:
        return ""
    lines = [f"- {name} ({characters:,} characters)" for name, characters in files]
    return "\n".join(("", "", FILES_OPENING.format(slug=slug), *lines))


def choose_file_part(slug: str, name: str, text: str, *, start: int, limit: int) -> SkillFilePart:
    """Return the part of a file that begins at `start` and fits `limit` characters.

    The limit applies to the whole tool result. The part has at least one character, unless the file
    ends at `start` or before.
    """
    longest = SkillFilePart(slug, name, len(text), len(text))
    room = max(limit - len(format_file_part(longest, text)), 1)
    return SkillFilePart(slug, name, start, max(min(start + room, len(text)), start))


def format_file_part(part: SkillFilePart, text: str) -> str:
    """Return a part of a file with its name and position above it. `text`: the whole file."""
    place = f"[Characters {part.start:,} to {part.end:,} of {len(text):,}]"
    return f"{PART_OPENING}{part.slug}/{part.name}\n{place}\n{text[part.start : part.end]}"


def parse_skill_file_part(content: str) -> SkillFilePart | None:
    """Parse the file part that a tool result or a system text contains; None if there is none."""
    match = _PART.match(content)
    if match is None:
        return None
    slug, _, name = match["path"].partition("/")
    return SkillFilePart(slug, name, *(int(match[at].replace(",", "")) for at in ("start", "end")))


def parse_part_key(key: str) -> SkillFilePart | None:
    """Parse the key of a file part; None for the slug of a skill."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    return SkillFilePart(match["slug"], match["name"], int(match["start"]), int(match["end"]))


def format_moved_part(part: SkillFilePart, texts: Mapping[tuple[str, str], str]) -> str:
    """Return a moved part with the current content of its file.

    Empty if the file is now too short to contain the start of the part. `texts`: the files by slug
    and name.
    """
    text = texts.get((part.slug, part.name), "")
    if part.start >= len(text):
        return ""
    end = min(part.end, len(text))
    return format_file_part(SkillFilePart(part.slug, part.name, part.start, end), text)

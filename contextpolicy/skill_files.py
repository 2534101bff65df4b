"""The text files of skills: checks their names and limits, stores and loads them.

`contextpolicy.skills.save_skill` changes the files of a skill together with its other values.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext

from contextpolicy.engine.compose.system_text import SkillText
from contextpolicy.engine.messages.skill_files import parse_part_key
from contextpolicy.models import Skill, SkillFile
from contextpolicy.models.skills import (
    LONGEST_FILE_NAME,
    LONGEST_SKILL_FILE,
    LONGEST_SKILL_FILES,
    MOST_SKILL_FILES,
)

# The file of a folder that has the text of the skill. No other file can have this name.
SKILL_FILE_NAME = "SKILL.md"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class SkillFileNameInvalid(Exception):
    """A file path is not relative, has forbidden characters, is too long or is SKILL.md."""

    code = "skill_file_name_invalid"
    status = 422

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext(
                "“{name}” cannot be the name of a skill file. Use a relative path of 1 to "
                "{limit} characters from A–Z, a–z, 0–9, “.”, “_”, “-” and “/”. No part may begin "
                "with a dot, and SKILL.md is reserved."
            ).format(limit=LONGEST_FILE_NAME, name=name[:100])
        )


class SkillFileNameTaken(Exception):
    """Two files of a skill have the same path (ignoring case), or one is a folder of the other."""

    code = "skill_file_name_taken"
    status = 422

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext(
                "The skill has two files with the path “{name}” (ignoring case). Choose another "
                "path."
            ).format(name=name)
        )


class SkillFileTooLong(Exception):
    """A file of the skill exceeds 100,000 characters, or all its files exceed 500,000."""

    code = "skill_file_too_long"
    status = 422

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "The skill’s files are too long. A file can have at most {file:,} characters, "
                "and all files of a skill together {all:,}. Shorten a file or remove one."
            ).format(file=LONGEST_SKILL_FILE, all=LONGEST_SKILL_FILES)
        )


class TooManySkillFiles(Exception):
    """The skill has more than 20 files."""

    code = "too_many_skill_files"
    status = 422

    def __init__(self) -> None:
        super().__init__(
            gettext(
                "A skill can have at most {limit} files. Remove one that is not needed."
            ).format(limit=MOST_SKILL_FILES)
        )


class SkillFileMissing(Exception):
    """A file that the change removes does not exist."""

    code = "skill_file_missing"
    status = 422

    def __init__(self, name: str) -> None:
        super().__init__(
            gettext("The skill has no file “{name}”. Load the skill again.").format(name=name[:100])
        )


REFUSALS = (
    SkillFileNameInvalid,
    SkillFileNameTaken,
    SkillFileTooLong,
    TooManySkillFiles,
    SkillFileMissing,
)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """Changes to the files of a skill: new texts by name, and the names of removed files."""

    written: Mapping[str, str]
    removed: Sequence[str]


def is_skill_file_name(name: str) -> bool:
    """Return True if the name is valid for a file of a skill."""
    is_plain = _NAME.fullmatch(name) is not None and len(name) <= LONGEST_FILE_NAME
    return is_plain and name.casefold() != SKILL_FILE_NAME.casefold()


def plan_file_changes(
    skill: Skill | None, *, files: Mapping[str, str | None], keeps_others: bool
) -> FileChanges:
    """Return the changes to the stored files of a skill (None: a new skill).

    `files`: new texts by name; None removes a file. Without `keeps_others`, all other files
    are removed. Files with an equal text are not changed. Raises SkillFileNameInvalid and
    SkillFileMissing.
    """
    stored = {file["name"]: file["sha256"] for file in skill.file_list} if skill else {}
    written = {}
    removed = [] if keeps_others else [name for name in stored if name not in files]
    for name, text in files.items():
        if text is None and name not in stored:
            raise SkillFileMissing(name)
        if text is None:
            removed.append(name)
        elif not is_skill_file_name(name):
            raise SkillFileNameInvalid(name)
        elif hash_file_text(text) != stored.get(name):
            written[name] = text
    return FileChanges(written, removed)


def build_file_list(skill: Skill | None, *, changes: FileChanges) -> list[list[Any]]:
    """Return name, characters and SHA-256 of the files of a skill after changes.

    Raises SkillFileTooLong, TooManySkillFiles and SkillFileNameTaken.
    """
    found = {row[0]: row for row in (skill.files or ())} if skill else {}
    found |= {
        name: [name, len(text), hash_file_text(text)] for name, text in changes.written.items()
    }
    for name in changes.removed:
        del found[name]
    if len(found) > MOST_SKILL_FILES:
        raise TooManySkillFiles
    lengths = [characters for _, characters, _ in found.values()]
    if max(lengths, default=0) > LONGEST_SKILL_FILE or sum(lengths) > LONGEST_SKILL_FILES:
        raise SkillFileTooLong
    check_file_paths(found)
    return [found[name] for name in sorted(found)]


def check_file_paths(paths: Iterable[str]) -> None:
    """Raise SkillFileNameTaken if two files cannot be stored in the same folder.

    Common file systems ignore case, and a path cannot be both a file and a folder.
    """
    seen: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        pieces = path.casefold().split("/")
        above = {"/".join(pieces[:end]) for end in range(1, len(pieces))}
        key = "/".join(pieces)
        if key in seen or key in folders or above & seen:
            raise SkillFileNameTaken(path)
        seen.add(key)
        folders |= above


def store_file_changes(skill: Skill, *, changes: FileChanges) -> None:
    """Write and delete the files of a saved skill. Needs a transaction."""
    gone = [*changes.removed, *changes.written]
    if gone:
        SkillFile.objects.filter(skill=skill, name__in=gone).delete()
    SkillFile.objects.bulk_create(
        SkillFile(skill=skill, name=name, text=text, sha256=hash_file_text(text))
        for name, text in changes.written.items()
    )


def describe_file_changes(changes: FileChanges) -> dict[str, Any]:
    """Return the names of changed files for the ledger; empty if there are no changes."""
    named = {"written": sorted(changes.written), "removed": sorted(changes.removed)}
    found = {how: names for how, names in named.items() if names}
    return {"files": found} if found else {}


def hash_file_text(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, as hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def load_moved_texts(
    keys: Iterable[str], *, known: Sequence[SkillText]
) -> dict[tuple[str, str], str]:
    """Return the texts of the files whose parts were moved, by slug and name.

    Only files of known skills are returned. Queries only if a key names a part of a file.
    """
    parts = [part for part in map(parse_part_key, keys) if part is not None]
    allowed = {(skill.slug, name) for skill in known for name, _ in skill.files}
    wanted = {(part.slug, part.name) for part in parts} & allowed
    if not wanted:
        return {}
    rows = SkillFile.objects.filter(
        skill__slug__in={slug for slug, _ in wanted}, name__in={name for _, name in wanted}
    ).values_list("skill__slug", "name", "text")
    return {(slug, name): text for slug, name, text in rows if (slug, name) in wanted}


def load_skill_file(slug: str, name: str) -> str | None:
    """Return the text of a skill's file, or None. The caller has checked permissions."""
    rows = SkillFile.objects.filter(skill__slug=slug, name=name)
    return rows.values_list("text", flat=True).first()


def list_skill_files(skill: Skill) -> list[SkillFile]:
    """Return the files of a skill with their texts, in the order of names."""
    return list(skill.stored_files.order_by("name"))

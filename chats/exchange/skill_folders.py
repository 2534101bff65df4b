"""Skills as folders with a `SKILL.md`: import and export of ZIP archives.

`SKILL.md` begins with a front matter of `name` and `description`; the rest is the text. Other files
of a folder are not imported. An archive is imported completely or not at all.
"""

import io
import json
import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.actions import skills
from chats.exchange import bounds
from chats.ground.refusals import Refusal
from contextpolicy.engine.text import names
from contextpolicy.models import Skill

FILE_NAME = "SKILL.md"
MOST_BYTES = 1_048_576
MOST_ENTRIES = 200
# Maximum size of a SKILL.md: 10,000 characters of up to four bytes, and the front matter.
MOST_FILE_BYTES = 65_536
FENCE = "---"
_KEY = re.compile(r"(name|description):(?:[ \t]+(.*))?")


class SkillArchiveTooLarge(Refusal):
    """The archive has more than 1 MiB or 200 entries, or a SKILL.md more than 64 KiB."""

    code = "skill_archive_too_large"
    status = 413
    sentence = gettext_noop(
        "An archive of skills can have at most 1 MiB and 200 entries, and each SKILL.md at most "
        "64 KiB. Split the archive."
    )
    param = "archive"


class SkillArchiveInvalid(Refusal):
    """The file is not a readable ZIP archive, is encrypted, or has no SKILL.md."""

    code = "skill_archive_invalid"
    status = 422
    sentence = gettext_noop(
        "The file is not a ZIP archive with a SKILL.md that can be read. Send a ZIP archive of "
        "folders, each with its SKILL.md."
    )
    param = "archive"


class SkillArchiveUnsafe(Refusal):
    """An entry of the archive leaves its folder or is a link."""

    code = "skill_archive_unsafe"
    status = 422
    sentence = gettext_noop(
        "The archive contains “{name}”, which leaves its folder or is a link. Nothing was "
        "imported. Create the archive again without such entries."
    )
    param = "archive"


class SkillFileInvalid(Refusal):
    """A SKILL.md is not UTF-8, or its front matter has no name."""

    code = "skill_file_invalid"
    status = 422
    sentence = gettext_noop(
        "“{name}” is not a valid SKILL.md: it must be UTF-8 and begin with a front matter that "
        "has a name and a description. Nothing was imported."
    )
    param = "archive"


@dataclass(frozen=True, slots=True)
class SkillFile:
    """The content of a SKILL.md."""

    name: str
    description: str
    text: str


@dataclass(frozen=True, slots=True)
class ImportedSkills:
    """The skills of an imported archive, and the files that were not imported."""

    created: Sequence[Skill]
    changed: Sequence[Skill]
    left_out: Sequence[str]


def build_skill_archive(rows: Sequence[Skill]) -> bytes:
    """Return a ZIP archive with a folder for each skill, named by its slug."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for row in rows:
            archive.writestr(f"{row.slug}/{FILE_NAME}", format_skill_file(row))
    return made.getvalue()


def format_skill_file(skill: Skill) -> str:
    """Return a skill as SKILL.md. Values of the front matter are quoted as in JSON."""
    named = json.dumps(skill.name, ensure_ascii=False)
    described = json.dumps(skill.description, ensure_ascii=False)
    return f"{FENCE}\nname: {named}\ndescription: {described}\n{FENCE}\n\n{skill.text}\n"


@transaction.atomic
def import_skill_archive(
    data: bytes, *, user: User, place: skills.SkillPlace, now: datetime
) -> ImportedSkills:
    """Import all skills of an archive to one place.

    A skill of the same name in that place gets the description and the text of the file. Raises the
    refusals of this module and of `skills.create_own_skill`.
    """
    skills.check_skill_place(user, place)
    found, left_out = read_skill_archive(data)
    created, changed = [], []
    for file in found:
        values = {"name": file.name, "description": file.description, "text": file.text}
        known = find_skill_by_name(file.name, place=place)
        if known is None:
            created.append(skills.create_own_skill(user=user, place=place, values=values, now=now))
        else:
            del values["name"]
            changed.append(skills.change_own_skill(user=user, skill=known, values=values, now=now))
    return ImportedSkills(created, changed, left_out)


def find_skill_by_name(name: str, *, place: skills.SkillPlace) -> Skill | None:
    """Return the skill of a place with this name, ignoring case; None without one."""
    rows = Skill.objects.filter(group=place.group_id, team_id=place.team_id)
    wanted = names.casefold_name(name)
    return next((row for row in rows if names.casefold_name(row.name) == wanted), None)


def read_skill_archive(data: bytes) -> tuple[list[SkillFile], list[str]]:
    """Return the skills of an archive, and the names of its other files.

    Never unpacks to disk, and reads each SKILL.md only up to its limit. Raises
    `SkillArchiveTooLarge`, `SkillArchiveInvalid`, `SkillArchiveUnsafe` and `SkillFileInvalid`.
    """
    if len(data) > MOST_BYTES:
        raise SkillArchiveTooLarge
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ENTRIES:
                raise SkillArchiveTooLarge
            for entry in entries:
                check_skill_entry(entry)
            files = [entry for entry in entries if not entry.is_dir()]
            wanted = [entry for entry in files if PurePosixPath(entry.filename).name == FILE_NAME]
            found = [
                parse_skill_file(read_skill_entry(archive, entry), name=entry.filename)
                for entry in wanted
            ]
    except (*bounds.UNREADABLE, RuntimeError):
        # RuntimeError: an entry with a password.
        raise SkillArchiveInvalid from None
    if not found:
        raise SkillArchiveInvalid
    return found, [entry.filename for entry in files if entry not in wanted]


def check_skill_entry(entry: zipfile.ZipInfo) -> None:
    """Raise `SkillArchiveUnsafe` if an entry has no plain path below its archive."""
    name = entry.orig_filename
    parts = name.replace("\\", "/").split("/")
    is_link = stat.S_ISLNK(entry.external_attr >> 16)
    if is_link or "\\" in name or "\x00" in name or ".." in parts or not parts[0] or ":" in name:
        raise SkillArchiveUnsafe(name=name.replace("\x00", "")[:100])


def read_skill_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of an entry. Raises `SkillArchiveTooLarge` by its real size."""
    with archive.open(entry) as file:
        data = file.read(MOST_FILE_BYTES + 1)
    if len(data) > MOST_FILE_BYTES:
        raise SkillArchiveTooLarge
    return data


def parse_skill_file(data: bytes, *, name: str) -> SkillFile:
    """Parse a SKILL.md. Raises `SkillFileInvalid`."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SkillFileInvalid(name=name[:100]) from None
    lines = text.replace("\r\n", "\n").split("\n")
    ends = [place for place, line in enumerate(lines) if line.rstrip() == FENCE]
    if len(ends) < 2 or ends[0] != 0:
        raise SkillFileInvalid(name=name[:100])
    fields = dict(parse_front_matter(lines[1 : ends[1]]))
    if not fields.get("name") or not fields.get("description"):
        raise SkillFileInvalid(name=name[:100])
    body = "\n".join(lines[ends[1] + 1 :]).strip("\n")
    return SkillFile(fields["name"], fields["description"], body)


def parse_front_matter(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield `name` and `description` of a front matter.

    Values are plain, quoted, or continued on indented lines; other keys are skipped.
    """
    for place, line in enumerate(lines):
        match = _KEY.fullmatch(line.rstrip())
        if match is None:
            continue
        pieces = [match[2] or ""]
        for further in lines[place + 1 :]:
            if further[:1] not in (" ", "\t"):
                break
            pieces.append(further)
        if pieces[0].strip() in {">", "|", ">-", "|-"}:
            del pieces[0]
        yield match[1], unquote_value(" ".join(" ".join(pieces).split()))


def unquote_value(value: str) -> str:
    """Return a value of a front matter without its quotes."""
    if value[:1] == value[-1:] == '"' and len(value) > 1:
        try:
            return str(json.loads(value))
        except ValueError:
            return value[1:-1]
    if value[:1] == value[-1:] == "'" and len(value) > 1:
        return value[1:-1].replace("''", "'")
    return value

"""Skills as folders with a `SKILL.md`: import and export of ZIP archives.

`SKILL.md` begins with a front matter of `name` and `description`; the rest is the text. In exports,
`name` is the name of the folder, as other readers of the format require; `metadata` has the
product's own fields `display-name` and `mode`. Other text files of a folder are files of the skill.
Files that cannot be imported are listed with a reason. If a limit is exceeded, nothing is imported.
"""

import io
import json
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import PurePosixPath

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from chats.actions import skills
from chats.exchange import bounds
from chats.ground.refusals import Refusal
from contextpolicy import skill_files
from contextpolicy.engine.text import names
from contextpolicy.models import Skill, SkillFile
from contextpolicy.models.skills import LONGEST_FILE_NAME, MOST_SKILL_FILES
from contextpolicy.skills import LONGEST_SLUG

FILE_NAME = skill_files.SKILL_FILE_NAME
MOST_BYTES = 1_048_576
MOST_ENTRIES = 200
# Maximum size of all entries that are read, unpacked.
MOST_UNPACKED_BYTES = 10_485_760
# Maximum size of a SKILL.md: 10,000 characters of up to four bytes, and the front matter.
MOST_FILE_BYTES = 65_536
FENCE = "---"
_KEY = re.compile(r"(name|description|mode|metadata):(?:[ \t]+(.*))?")
_METADATA_KEY = re.compile(r"[ \t]+(display-name|mode):[ \t]+(.*)")
# Names of folders that are the slug of a new skill.
_SLUG = re.compile(rf"(?=.{{1,{LONGEST_SLUG}}}$)[a-z0-9]+(?:[-_][a-z0-9]+)*")


class SkillArchiveTooLarge(Refusal):
    """The archive exceeds 1 MiB (10 MiB unpacked) or 200 entries, or a SKILL.md is too long."""

    code = "skill_archive_too_large"
    status = 413
    sentence = gettext_noop(
        "The archive exceeds a limit: 1 MiB (10 MiB unpacked), 200 entries, or 64 KiB for "
        "a SKILL.md. Split the archive, or shorten the SKILL.md."
    )
    param = "archive"


class SkillArchiveInvalid(Refusal):
    """The file is not a readable ZIP archive, is encrypted, or has no SKILL.md."""

    code = "skill_archive_invalid"
    status = 422
    sentence = gettext_noop(
        "The file is not a ZIP archive with a readable SKILL.md. Send a ZIP archive of folders "
        "that each contain a SKILL.md."
    )
    param = "archive"


class SkillArchiveUnsafe(Refusal):
    """An entry of the archive points outside its folder or is a link."""

    code = "skill_archive_unsafe"
    status = 422
    sentence = gettext_noop(
        "The archive contains “{name}”, which points outside its folder or is a link. Nothing "
        "was imported. Create the archive again without this entry."
    )
    param = "archive"


class SkillFileInvalid(Refusal):
    """A SKILL.md is not UTF-8, or its front matter lacks a name or a required description."""

    code = "skill_file_invalid"
    status = 422
    sentence = gettext_noop(
        "“{name}” is not a valid SKILL.md: it must be UTF-8 and begin with a front matter that "
        "has a name and a description. Nothing was imported."
    )
    param = "archive"


@dataclass(frozen=True, slots=True)
class SkillFolder:
    """The content of a SKILL.md, and the other text files in its folder by name.

    `slug` is the name of the folder, if it is a valid slug.
    """

    name: str
    description: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)
    slug: str = ""
    is_always: bool = False


@dataclass(frozen=True, slots=True)
class LeftOutFile:
    """A file in an archive that was not imported. `code` is a key of `LEFT_OUT`."""

    name: str
    code: str

    @property
    def reason(self) -> str:
        """The reason why the file was not imported, in the reader's language."""
        return str(LEFT_OUT[self.code])


LEFT_OUT: Mapping[str, str | Promise] = {
    "no_skill": gettext_lazy("The file is not in a folder with a SKILL.md."),
    "name": gettext_lazy(
        "The file name is hidden, reserved (SKILL.md), too long, or contains characters other "
        "than A–Z, a–z, 0–9, “.”, “_” and “-”."
    ),
    "not_text": gettext_lazy("The file is not UTF-8 text."),
}


@dataclass(frozen=True, slots=True)
class ImportedSkills:
    """The skills of an imported archive, and the files that were not imported."""

    created: Sequence[Skill]
    changed: Sequence[Skill]
    left_out: Sequence[LeftOutFile]


def build_skill_archive(rows: Sequence[Skill]) -> bytes:
    """Return a ZIP archive with a folder for each skill, named by its slug."""
    with zipfile.ZipFile(made := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        write_skill_folders(rows, archive=archive)
    return made.getvalue()


def write_skill_folders(
    rows: Iterable[Skill], *, archive: zipfile.ZipFile, under: str = ""
) -> None:
    """Write a folder for each skill, named by its slug, below the path `under`."""
    for row in rows:
        archive.writestr(f"{under}{row.slug}/{FILE_NAME}", format_skill_file(row))
        for file in SkillFile.objects.filter(skill=row):
            archive.writestr(f"{under}{row.slug}/{file.name}", file.text)


def format_skill_file(skill: Skill) -> str:
    """Return a skill as SKILL.md. Values in the front matter are quoted as in JSON."""
    metadata = {"display-name": skill.name if skill.name != skill.slug else ""}
    metadata["mode"] = "always" if skill.mode == Skill.Mode.ALWAYS else ""
    more = [f"  {key}: {quote_value(value)}" for key, value in metadata.items() if value]
    front = [f"name: {skill.slug}", f"description: {quote_value(skill.description)}"]
    front += ["metadata:", *more] if more else []
    return "\n".join([FENCE, *front, FENCE, "", skill.text, ""])


def quote_value(value: str) -> str:
    """Return a front matter value in quotes."""
    return json.dumps(value, ensure_ascii=False)


@transaction.atomic
def import_skill_archive(
    data: bytes, *, user: User, place: skills.SkillPlace, now: datetime
) -> ImportedSkills:
    """Import all skills of an archive to one owner.

    A new skill gets the slug of its folder if that is free, and the mode *always* only if the
    user may choose it. An existing skill with the same name gets the folder's description, text
    and files; its other files are removed. Raises the refusals of this module and of
    `skills.create_own_skill`.
    """
    skills.check_skill_place(user, place)
    found, left_out = read_skill_archive(data)
    created, changed = [], []
    for folder in found:
        values = {"description": folder.description, "text": folder.text}
        known = find_skill_by_name(folder.name, place=place)
        if known is None:
            values["name"] = folder.name
            if folder.is_always and skills.is_skill_admin(user):
                values["mode"] = Skill.Mode.ALWAYS
            made = skills.create_own_skill(
                user=user,
                place=place,
                values=values,
                now=now,
                files=folder.files,
                slug=folder.slug,
            )
            created.append(made)
        else:
            made = skills.change_own_skill(
                user=user,
                skill=known,
                values=values,
                now=now,
                files=folder.files,
                keeps_files=False,
            )
            changed.append(made)
    return ImportedSkills(created, changed, left_out)


def find_skill_by_name(name: str, *, place: skills.SkillPlace) -> Skill | None:
    """Return the owner's skill with this name, ignoring case, or None."""
    rows = Skill.objects.filter(group=place.group_id, team_id=place.team_id)
    wanted = names.casefold_name(name)
    return next((row for row in rows if names.casefold_name(row.name) == wanted), None)


def read_skill_archive(data: bytes) -> tuple[list[SkillFolder], list[LeftOutFile]]:
    """Return the skills of an archive, and the files that belong to none or are not text.

    Never unpacks to disk, and reads each entry only up to its limit. Raises `SkillArchiveTooLarge`,
    `SkillArchiveInvalid`, `SkillArchiveUnsafe`, `SkillFileInvalid` and `skills.SkillRefused`.
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
            reader = SkillArchiveReader(archive)
            found = [
                reader.read_folder(entry)
                for entry in entries
                if PurePosixPath(entry.filename).name == FILE_NAME and not entry.is_dir()
            ]
    except (*bounds.UNREADABLE, RuntimeError):
        # RuntimeError: an entry with a password.
        raise SkillArchiveInvalid from None
    if not found:
        raise SkillArchiveInvalid
    return found, reader.list_left_out()


def check_skill_entry(entry: zipfile.ZipInfo) -> None:
    """Raise `SkillArchiveUnsafe` unless an entry has a plain path within its archive."""
    name = entry.orig_filename
    parts = name.replace("\\", "/").split("/")
    is_link = stat.S_ISLNK(entry.external_attr >> 16)
    if is_link or "\\" in name or "\x00" in name or ".." in parts or not parts[0] or ":" in name:
        raise SkillArchiveUnsafe(name=name.replace("\x00", "")[:100])


class SkillArchiveReader:
    """Reads the folders of an archive whose entries were already checked."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        # By the folder of a SKILL.md, with its slash: paths below it, and their entries.
        self.by_folder: dict[str, list[tuple[str, zipfile.ZipInfo]]] = {
            entry.filename.removesuffix(FILE_NAME): []
            for entry in self.entries
            if PurePosixPath(entry.filename).name == FILE_NAME
        }
        self.unpacked = 0
        self.left_out: list[LeftOutFile] = []
        for entry in self.entries:
            self.assign_entry(entry)

    def assign_entry(self, entry: zipfile.ZipInfo) -> None:
        """Assign an entry to the innermost enclosing folder with a SKILL.md."""
        above = [folder for folder in self.by_folder if entry.filename.startswith(folder)]
        if not above:
            self.leave_out(entry, "no_skill")
            return
        folder = max(above, key=len)
        path = entry.filename.removeprefix(folder)
        if path != FILE_NAME:
            self.by_folder[folder].append((path, entry))

    def read_folder(self, entry: zipfile.ZipInfo) -> SkillFolder:
        """Return the skill of a SKILL.md with its files.

        Raises `SkillArchiveTooLarge`, `SkillFileInvalid` and `skills.SkillRefused`.
        """
        data = self.read_bytes(entry, limit=MOST_FILE_BYTES)
        if len(data) > MOST_FILE_BYTES:
            raise SkillArchiveTooLarge
        folder = entry.filename.removesuffix(FILE_NAME)
        texts: dict[str, str] = {}
        for path, other in self.by_folder.pop(folder, ()):
            text = self.read_text(path, other)
            if text is None:
                continue
            if path in texts:
                raise skills.SkillRefused(skill_files.SkillFileNameTaken(path))
            if len(texts) == MOST_SKILL_FILES:
                raise skills.SkillRefused(skill_files.TooManySkillFiles())
            texts[path] = text
        above = PurePosixPath(folder).name
        slug = above if _SLUG.fullmatch(above) else ""
        return replace(parse_skill_file(data, name=entry.filename), files=texts, slug=slug)

    def read_text(self, path: str, entry: zipfile.ZipInfo) -> str | None:
        """Return the text of a file. None, after recording the reason, if it cannot be imported."""
        if not skill_files.is_skill_file_name(path):
            self.leave_out(entry, "name")
            return None
        data = self.read_bytes(entry, limit=skills.MOST_TEXT_BYTES)
        try:
            return skills.decode_file_text(data, name=path)
        except skills.SkillFileNotText:
            self.leave_out(entry, "not_text")
            return None

    def read_bytes(self, entry: zipfile.ZipInfo, *, limit: int) -> bytes:
        """Return at most `limit` + 1 bytes of an entry, whatever size it claims to have.

        Raises `SkillArchiveTooLarge`.
        """
        with self.archive.open(entry) as file:
            data = file.read(limit + 1)
        self.unpacked += len(data)
        if self.unpacked > MOST_UNPACKED_BYTES:
            raise SkillArchiveTooLarge
        return data

    def leave_out(self, entry: zipfile.ZipInfo, code: str) -> None:
        """Record that an entry is not imported. `code` is a key of `LEFT_OUT`."""
        self.left_out.append(LeftOutFile(entry.filename[:LONGEST_FILE_NAME], code))

    def list_left_out(self) -> list[LeftOutFile]:
        """Return the files that were not imported, ordered by name."""
        return sorted(self.left_out, key=lambda file: file.name)


def parse_skill_file(data: bytes, *, name: str) -> SkillFolder:
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
    shown = fields.get("display-name") or fields.get("name", "")
    is_always = fields.get("mode") == Skill.Mode.ALWAYS
    # Only the line of a skill on demand needs a description.
    if not fields.get("name") or not (fields.get("description") or is_always):
        raise SkillFileInvalid(name=name[:100])
    body = "\n".join(lines[ends[1] + 1 :]).strip("\n")
    description = fields.get("description", "")
    return SkillFolder(shown, description, body, is_always=is_always)


def parse_front_matter(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield `name` and `description`, and `display-name` and `mode` of the metadata.

    Values are plain, quoted, or continued on indented lines; other keys are skipped. Older exports
    have no `metadata`, and `mode` at the top.
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
        if match[1] == "metadata":
            nested = (_METADATA_KEY.fullmatch(piece.rstrip()) for piece in pieces)
            yield from ((found[1], unquote_value(found[2].strip())) for found in nested if found)
            continue
        if pieces[0].strip() in {">", "|", ">-", "|-"}:
            del pieces[0]
        yield match[1], unquote_value(" ".join(" ".join(pieces).split()))


def unquote_value(value: str) -> str:
    """Return a front matter value without its quotes."""
    if value[:1] == value[-1:] == '"' and len(value) > 1:
        try:
            return str(json.loads(value))
        except ValueError:
            return value[1:-1]
    if value[:1] == value[-1:] == "'" and len(value) > 1:
        return value[1:-1].replace("''", "'")
    return value

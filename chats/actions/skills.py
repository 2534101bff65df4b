"""User actions on skills: list, create, change and delete.

Administrators edit all skills except those of personal teams. The owners of a group or a team edit
its skills. The members of a group read its skills.
"""

import codecs
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Q, QuerySet
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Team
from chats.record.access import get_or_not_found
from chats.record.message_text import check_characters
from contextpolicy import skill_files, skills
from contextpolicy.models import Skill, SkillFile
from contextpolicy.models.skills import LONGEST_SKILL_FILE

EDITS_SKILLS, READS_SKILLS = "contextpolicy.change_skill", "contextpolicy.view_skill"
LONGEST_NAME = 100
# A character of a file has at most four bytes.
MOST_TEXT_BYTES = 4 * LONGEST_SKILL_FILE
# The fields of a skill that a user sets, by their names in requests.
FIELDS = ("name", "description", "text", "mode", "enabled")
REFUSED = (
    skills.SkillChanged,
    skills.SkillTooLong,
    skills.SkillNameTaken,
    skills.SkillDescriptionInvalid,
    skills.TooManySkills,
    *skill_files.REFUSALS,
)
PARAMS = {
    "too_long": "text",
    "skill_name_taken": "name",
    "skill_description_invalid": "description",
    **{error.code: "files" for error in skill_files.REFUSALS},
}


class SkillRefused(Refusal):
    """A field of the skill is invalid: `param` names it, and `code` gives the reason."""

    status = 422
    sentence = "{reason}"

    def __init__(self, error: Exception) -> None:
        super().__init__(reason=str(error))
        self.code = str(getattr(error, "code", self.code))
        self.param = PARAMS.get(self.code)
        if isinstance(error, skills.SkillChanged):
            self.status = 409


class SkillNameInvalid(Refusal):
    """The skill name is empty or has more than 100 characters."""

    code = "skill_name_invalid"
    status = 422
    sentence = gettext_noop(
        "The skill name is not valid. Enter 1 to {limit} characters on one line."
    )
    param = "name"


class SkillTextMissing(Refusal):
    """The skill has no text."""

    code = "skill_text_missing"
    status = 422
    sentence = gettext_noop("The skill has no text. Enter the instructions for the model.")
    param = "text"


class SkillPlaceRefused(Refusal):
    """You may not add skills to this group, team or instance, or you set both group and team."""

    code = "skill_place_refused"
    status = 403
    sentence = gettext_noop(
        "You can add skills only to groups and teams that you own. Choose one of them."
    )


class SkillModeRefused(Refusal):
    """Only administrators may choose the mode `always`."""

    code = "skill_mode_refused"
    status = 403
    sentence = gettext_noop(
        "Only administrators can add a skill’s text to every prompt. Choose “on demand”."
    )
    param = "mode"


class SkillOfInstallation(Refusal):
    """The skill belongs to the instance, so policies may refer to it. Disable it instead."""

    code = "skill_of_installation"
    status = 409
    sentence = gettext_noop(
        "A skill of the instance cannot be deleted, because policies can refer to it. Disable it "
        "instead."
    )


class SkillFileNotText(Refusal):
    """The chosen file is not UTF-8 text. Choose another file."""

    code = "skill_file_not_text"
    status = 422
    sentence = gettext_noop("“{name}” is not UTF-8 text. Save it as UTF-8, then choose it again.")
    param = "files"


@dataclass(frozen=True, slots=True)
class SkillPlace:
    """The owner of a skill: a group, a team, or (both None) the instance."""

    group_id: int | None = None
    team_id: uuid.UUID | None = None


def is_skill_admin(user: User) -> bool:
    return user.has_perm(EDITS_SKILLS)


def list_owned_groups(user: User) -> QuerySet[Group]:
    """Return the groups whose skills a user may edit: those they own and are a member of."""
    return Group.objects.filter(owners__user=user.pk, user=user.pk).order_by("name")


def list_owned_teams(user: User) -> QuerySet[Team]:
    """Return the teams whose skills a user may edit: their own; for admins also shared teams."""
    mine = Q(owner=user.pk)
    if is_skill_admin(user):
        mine |= Q(owner=None)
    return Team.objects.filter(mine, deleted_at=None, current__isnull=False)


def match_editable_skills(user: User) -> Q:
    """Return the condition for the skills that a user may edit."""
    own = Q(team_id__in=list_owned_teams(user).values("pk"))
    if is_skill_admin(user):
        return own | Q(team_id=None)
    return own | Q(group__in=list_owned_groups(user).values("pk"))


def list_editable_skills(user: User) -> QuerySet[Skill]:
    return Skill.objects.filter(match_editable_skills(user)).select_related("group")


def list_visible_skills(user: User) -> QuerySet[Skill]:
    """Return the skills that a user may read: those they may edit, and those of their groups."""
    readable = match_editable_skills(user) | Q(group__in=user.groups.values("pk"))
    if user.has_perm(READS_SKILLS):
        readable |= Q(team_id=None)
    return Skill.objects.filter(readable).select_related("group")


def get_visible_skill(*, user: User, slug: str) -> Skill:
    """Return a skill that the user may read. Raises `NotFound`."""
    return get_or_not_found(list_visible_skills(user).filter(slug=slug))


def get_editable_skill(*, user: User, slug: str) -> Skill:
    """Return a skill that the user may edit. Raises `NotFound`."""
    return get_or_not_found(list_editable_skills(user).filter(slug=slug))


def select_visible_files(*, user: User, slug: str) -> QuerySet[SkillFile]:
    """Return the files of a skill that the user may read. Raises `NotFound`."""
    return SkillFile.objects.filter(skill=get_visible_skill(user=user, slug=slug))


def check_skill_place(user: User, place: SkillPlace) -> None:
    """Raise `SkillPlaceRefused` unless the user may add skills to this place."""
    if place.group_id is not None and place.team_id is not None:
        raise SkillPlaceRefused
    if place.team_id is not None:
        allowed = list_owned_teams(user).filter(pk=place.team_id).exists()
    elif place.group_id is None:
        allowed = is_skill_admin(user)
    else:
        groups = Group.objects.all() if is_skill_admin(user) else list_owned_groups(user)
        allowed = groups.filter(pk=place.group_id).exists()
    if not allowed:
        raise SkillPlaceRefused


def create_own_skill(
    *,
    user: User,
    place: SkillPlace,
    values: Mapping[str, Any],
    now: datetime,
    files: Mapping[str, str | None] | None = None,
    slug: str = "",
) -> Skill:
    """Create a skill for a group, a team or the instance.

    `values`: some of `FIELDS`. `files`: text by name. `slug`: the preferred slug; by default it is
    derived from the name. A number is added to a slug that is taken. Raises `SkillPlaceRefused`,
    `SkillModeRefused`, `SkillNameInvalid`, `SkillTextMissing`, `SkillRefused` and
    `InvalidCharacter`.
    """
    check_skill_place(user, place)
    skill = Skill(
        slug=skills.choose_skill_slug(slug or str(values.get("name", ""))),
        group_id=place.group_id,
        team_id=place.team_id,
    )
    return store_own_skill(skill, user=user, values=values, now=now, files=files)


def change_own_skill(
    *,
    user: User,
    skill: Skill,
    values: Mapping[str, Any],
    now: datetime,
    files: Mapping[str, str | None] | None = None,
    keeps_files: bool = True,
    based_on: str = "",
) -> Skill:
    """Change a skill that the user may edit. Omitted fields keep their values.

    `files`: new text by file name; None removes a file. Other files stay, unless `keeps_files` is
    False. `based_on`: the digest of the edited version; empty: any version is replaced. Raises
    `SkillModeRefused`, `SkillNameInvalid`, `SkillTextMissing`,
    `SkillRefused` and `InvalidCharacter`.
    """
    return store_own_skill(
        skill,
        user=user,
        values=values,
        now=now,
        files=files,
        keeps_files=keeps_files,
        based_on=based_on,
    )


def store_own_skill(
    skill: Skill,
    *,
    user: User,
    values: Mapping[str, Any],
    now: datetime,
    files: Mapping[str, str | None] | None = None,
    keeps_files: bool = True,
    based_on: str = "",
) -> Skill:
    """Check and save the values of a skill.

    Raises `SkillModeRefused`, `SkillNameInvalid`, `SkillTextMissing`, `SkillRefused` and
    `InvalidCharacter`.
    """
    always = Skill.Mode.ALWAYS
    if values.get("mode") == always != skill.mode and not is_skill_admin(user):
        raise SkillModeRefused
    for field in FIELDS:
        if field in values:
            setattr(skill, field, values[field])
    skill.name = " ".join(skill.name.split())
    for text in (skill.name, skill.description, skill.text):
        check_characters(text)
    if not 1 <= len(skill.name) <= LONGEST_NAME:
        raise SkillNameInvalid(limit=LONGEST_NAME)
    skill.text = skill.text.replace("\r\n", "\n")
    if not skill.text.strip():
        raise SkillTextMissing
    cleaned = {name: text and clean_file_text(text) for name, text in (files or {}).items()}
    try:
        skills.save_skill(
            skill=skill,
            actor=f"user:{user.pk}",
            now=now,
            files=cleaned,
            keeps_files=keeps_files,
            based_on=based_on,
        )
    except REFUSED as error:
        raise SkillRefused(error) from error
    return skill


def decode_file_text(data: bytes, *, name: str) -> str:
    """Return the text of a file. `data`: its first `MOST_TEXT_BYTES` + 1 bytes.

    Raises `SkillFileNotText`, and `SkillRefused` if it is too long.
    """
    is_whole = len(data) <= MOST_TEXT_BYTES
    try:
        # If only the beginning of the file was read, its last character can be incomplete.
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)
    except UnicodeDecodeError:
        raise SkillFileNotText(name=name[:100]) from None
    if "\x00" in text:
        raise SkillFileNotText(name=name[:100])
    if not is_whole:
        raise SkillRefused(skill_files.SkillFileTooLong())
    return text


def clean_file_text(text: str) -> str:
    """Return the text of a file with line feeds as line ends. Raises `InvalidCharacter`."""
    check_characters(text)
    return text.replace("\r\n", "\n")


def delete_own_skill(*, user: User, skill: Skill, now: datetime) -> None:
    """Delete a skill of a group or a team permanently. Raises `SkillOfInstallation`."""
    if skill.group_id is None and skill.team_id is None:
        raise SkillOfInstallation
    skills.delete_skill(skill=skill, actor=f"user:{user.pk}", now=now)

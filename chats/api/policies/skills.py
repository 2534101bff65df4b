"""Skills: list, create, change, delete, import and export."""

import base64
import binascii
import uuid
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import skills
from chats.api.core.base import Endpoint
from chats.api.core.inputs import (
    EmptyBody,
    Flag,
    Identifier,
    PageQuery,
    PlainText,
    Strict,
    WholeNumber,
)
from chats.api.core.outputs import build_page_serializer, serialize_rows
from chats.exchange import skill_folders
from contextpolicy import skill_files
from contextpolicy.models import Skill, SkillFile

ZIP = "application/zip"
# The maximum number of files of one request, which can replace all files of a skill with others.
MOST_FILE_CHANGES = 40


class SkillFileOut(serializers.Serializer[Any]):
    """A text file of a skill, without its text."""

    name = serializers.CharField(help_text="File path, relative to the skill's folder.")
    characters = serializers.IntegerField(help_text="Length of the text in characters.")
    sha256 = serializers.CharField(help_text="SHA-256 of the text in UTF-8, in hex.")


class SkillFileText(serializers.Serializer[SkillFile]):
    """A text file of a skill, with its text."""

    name = serializers.CharField(help_text="File path, relative to the skill's folder.")
    text = serializers.CharField(help_text="Text of the file.")
    sha256 = serializers.CharField(help_text="SHA-256 of the text in UTF-8, in hex.")


class SkillOut(serializers.Serializer[Skill]):
    """A skill with its text and the list of its files."""

    slug = serializers.CharField(
        help_text="Id of the skill, which the model uses to load the skill."
    )
    name = serializers.CharField(help_text="Name of the skill.")
    description = serializers.CharField(
        help_text="One line that describes when the model should load the text. Empty: none."
    )
    text = serializers.CharField(help_text="Instructions for the model.")
    mode = serializers.ChoiceField(
        choices=Skill.Mode.choices,
        help_text="`always`: the text is in each prompt. `on_demand`: the model loads the text "
        "when it needs it.",
    )
    group = serializers.IntegerField(
        source="group_id",
        allow_null=True,
        help_text="Id of the group that the skill belongs to. Null: none.",
    )
    team = serializers.UUIDField(
        source="team_id",
        allow_null=True,
        help_text="Id of the team that the skill belongs to. Null: none.",
    )
    enabled = serializers.BooleanField(help_text="False: no prompt includes the skill.")
    files = SkillFileOut(
        many=True,
        source="file_list",
        help_text="Files that the model can load while it follows the skill's text.",
    )
    updated_at = serializers.DateTimeField()


class SkillFileChange(Strict):
    """A file to write or to remove."""

    name = PlainText(
        help_text=(
            "File path, relative to the skill's folder, such as `forms/refund.csv`: 1 to 200 "
            "characters from A–Z, a–z, 0–9, `.`, `_`, `-` and `/`. No part of the path begins "
            "with `.`. `SKILL.md` is reserved."
        )
    )
    text = PlainText(
        allow_null=True,
        help_text="New text of the file, at most 100,000 characters. Null: the file is removed.",
    )


class SkillChange(Strict):
    """The fields of a skill to change. Omitted fields keep their values."""

    name = PlainText(
        required=False,
        help_text=(
            "Name of the skill, 1 to 100 characters, unique in its group, in its team or in the "
            "instance, ignoring case."
        ),
    )
    description = PlainText(
        required=False,
        help_text=(
            "One line, at most 1,024 characters, that describes when the model should load the "
            "text. Required for the mode `on_demand`."
        ),
    )
    text = PlainText(required=False, help_text="Text of the skill, 1 to 10,000 characters.")
    mode = serializers.ChoiceField(
        choices=Skill.Mode.choices,
        required=False,
        help_text="`always`: the text is in each prompt; only administrators can choose it. "
        "`on_demand` (the default of a new skill): the model loads the text.",
    )
    enabled = Flag(
        required=False,
        help_text="False: no prompt includes the skill. Default of a new skill: true.",
    )
    files = serializers.ListField(
        child=SkillFileChange(),
        required=False,
        max_length=MOST_FILE_CHANGES,
        help_text=(
            "Files to write or to remove. Other files do not change. A skill can have at most 20 "
            "files with 500,000 characters in total."
        ),
    )


class OfPlace(Strict):
    """The owner of new skills: a group, a team, or the instance."""

    group = WholeNumber(
        default=None,
        allow_null=True,
        help_text=(
            "Id of a group that you own and belong to; for administrators, of any group. Null: no "
            "group. Set `group` or `team`, not both."
        ),
    )
    team = Identifier(
        default=None,
        allow_null=True,
        help_text=(
            "Id of a team that you own; for administrators, also of a shared team. Null: no team. "
            "Without a group and a team, the skills belong to the instance."
        ),
    )


class NewSkill(OfPlace, SkillChange):
    """A new skill. Without a group or a team, it is available on the whole instance.

    Only administrators can create such skills.
    """

    name = PlainText(
        help_text=(
            "Name of the skill, 1 to 100 characters, unique in its group, in its team or in the "
            "instance, ignoring case."
        )
    )
    text = PlainText(help_text="Text of the skill, 1 to 10,000 characters.")


class SkillArchive(OfPlace):
    """An archive of folders with `SKILL.md`, and the owner of its skills."""

    archive = PlainText(
        help_text=(
            "A ZIP archive of at most 1 MiB, encoded as base64. Unpacked: at most 10 MiB and 200 "
            "entries."
        )
    )


class LeftOutFileOut(serializers.Serializer[skill_folders.LeftOutFile]):
    """A file in the archive that was not imported, with the reason."""

    name = serializers.CharField(
        help_text="Path of the file in the archive, at most its first 200 characters."
    )
    code = serializers.ChoiceField(
        choices=sorted(skill_folders.LEFT_OUT),
        help_text=(
            "`no_skill`: not in a folder with a `SKILL.md`. `name`: the path is not allowed for a "
            "skill file. `not_text`: not UTF-8 text, or it contains NUL."
        ),
    )
    reason = serializers.CharField(help_text="Human-readable explanation of `code`.")


class ImportedSkillsOut(serializers.Serializer[Any]):
    """The result of a skill import."""

    created = SkillOut(many=True, help_text="Skills that the import created.")
    changed = SkillOut(many=True, help_text="Existing skills that the import updated.")
    left_out = serializers.ListField(
        child=serializers.CharField(),
        help_text="Paths of the files that were not imported, as in `left_out_files`.",
    )
    left_out_files = LeftOutFileOut(
        many=True, help_text="Files that were not imported, each with the reason."
    )


def pop_place(values: dict[str, Any]) -> skills.SkillPlace:
    """Remove the owner (group or team) from the values of a request and return it."""
    group: int | None = values.pop("group")
    team: uuid.UUID | None = values.pop("team")
    return skills.SkillPlace(group_id=group, team_id=team)


def pop_files(values: dict[str, Any]) -> dict[str, str | None]:
    """Remove the files from the values of a request and return their texts by name.

    Raises `SkillRefused` if a name occurs twice.
    """
    given = values.pop("files", ())
    found = {file["name"]: file["text"] for file in given}
    if len(found) < len(given):
        names = [file["name"] for file in given]
        twice = next(name for name in names if names.count(name) > 1)
        raise skills.SkillRefused(skill_files.SkillFileNameTaken(twice[:100]))
    return found


class SkillViewSet(Endpoint):
    """The skills that the user may read or edit."""

    serializer_class = SkillOut
    read_scope, write_scope = "policy:read", "policy:write"
    lookup_url_kwarg, lookup_value_converter = "slug", "slug"
    scopes: ClassVar = {}

    @extend_schema(
        summary="List skills", parameters=[PageQuery], responses=build_page_serializer(SkillOut)
    )
    def list(self, request: Request) -> Response:
        """List the skills of your groups and of your own teams, ordered by slug.

        Administrators and auditors also receive the skills of the instance and of all groups.
        Administrators also receive the skills of shared teams.
        """
        rows = skills.list_visible_skills(self.user)
        return self.respond_page(rows, order=("slug",), name="skills")

    @extend_schema(summary="Create a skill", request=NewSkill, responses={201: SkillOut})
    def create(self, request: Request) -> Response:
        """Create a skill in a group or team that you own.

        Administrators can also create skills of the instance, of any group and of shared teams.
        """
        values = NewSkill.read(request.data)
        place = pop_place(values)
        files = pop_files(values)
        made = skills.create_own_skill(
            user=self.user, place=place, values=values, now=timezone.now(), files=files
        )
        return self.respond(made, status=201)

    @extend_schema(summary="Get a skill")
    def retrieve(self, request: Request, slug: str) -> Response:
        """Retrieve a skill with its text and the list of its files."""
        return self.respond(skills.get_visible_skill(user=self.user, slug=slug))

    @extend_schema(operation_id="skills_change", summary="Update a skill", request=SkillChange)
    def partial_update(self, request: Request, slug: str) -> Response:
        """Change a skill that you may edit. Omitted fields keep their values."""
        skill = skills.get_editable_skill(user=self.user, slug=slug)
        values = SkillChange.read(request.data)
        files = pop_files(values)
        changed = skills.change_own_skill(
            user=self.user, skill=skill, values=values, now=timezone.now(), files=files
        )
        return self.respond(changed)

    @extend_schema(summary="Delete a skill")
    def destroy(self, request: Request, slug: str) -> Response:
        """Delete a skill of a group or team permanently. Chats keep text that they have loaded.

        Returns 409 `skill_of_installation` for a skill of the instance, which can only be disabled.
        """
        skill = skills.get_editable_skill(user=self.user, slug=slug)
        EmptyBody.read(request.data)
        skills.delete_own_skill(user=self.user, skill=skill, now=timezone.now())
        return Response(status=204)

    @extend_schema(
        operation_id="skills_files",
        summary="List the files of a skill",
        parameters=[PageQuery],
        responses=build_page_serializer(SkillFileText),
    )
    @action(detail=True)
    def files(self, request: Request, slug: str) -> Response:
        """List the files of a skill with their text, ordered by name."""
        rows = skills.select_visible_files(user=self.user, slug=slug)
        return self.respond_page(
            rows, order=("name",), name=f"skill-files:{slug}", kind=SkillFileText
        )

    @extend_schema(
        operation_id="skills_export",
        summary="Export a skill",
        responses={(200, ZIP): OpenApiTypes.BINARY},
    )
    @action(detail=True)
    def export(self, request: Request, slug: str) -> HttpResponse:
        """Download a skill as a ZIP archive: one folder with `SKILL.md` and the skill's files."""
        skill = skills.get_visible_skill(user=self.user, slug=slug)
        return build_archive_response([skill], name=skill.slug)

    @extend_schema(
        operation_id="skills_import",
        summary="Import skills",
        request=SkillArchive,
        responses={200: ImportedSkillsOut},
    )
    @action(detail=False, methods=["post"], url_path="import")
    def import_archive(self, request: Request) -> Response:
        """Import folders with `SKILL.md` to a group or team that you own.

        Administrators can also import them to the instance, any group and shared teams. If a skill
        with the same name (ignoring case) exists there, the description, the text and the files of
        the folder replace those of the skill. Files that are not text, or whose path is not
        allowed, are skipped. If one folder is invalid, nothing is imported.
        """
        values = SkillArchive.read(request.data)
        place = pop_place(values)
        done = skill_folders.import_skill_archive(
            decode_archive(values["archive"]), user=self.user, place=place, now=timezone.now()
        )
        return Response(
            {
                "created": serialize_rows(SkillOut, done.created),
                "changed": serialize_rows(SkillOut, done.changed),
                "left_out": [file.name for file in done.left_out],
                "left_out_files": serialize_rows(LeftOutFileOut, done.left_out),
            }
        )


def decode_archive(text: str) -> bytes:
    """Return the bytes of a base64 string. Raises `SkillArchiveInvalid` if it is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise skill_folders.SkillArchiveInvalid from None


def build_archive_response(rows: list[Skill], *, name: str) -> HttpResponse:
    """Return skills as a ZIP download."""
    response = HttpResponse(skill_folders.build_skill_archive(rows), content_type=ZIP)
    response["Content-Disposition"] = f'attachment; filename="{name}.zip"'
    return response

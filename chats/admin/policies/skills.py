"""The admin page of skills."""

import uuid
from collections.abc import Iterable
from typing import Any, ClassVar, cast

from django import forms
from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import Group
from django.db.models import Q, QuerySet
from django.http import HttpRequest, QueryDict
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_lazy, ngettext

from chats.actions.skills import MOST_TEXT_BYTES, clean_file_text, decode_file_text
from chats.admin.bases import DomainAdmin
from chats.admin.site import get_request_actor
from chats.ground.refusals import Refusal
from chats.models import Team
from chats.prompt.tokenizer import get_page_counter
from contextpolicy import skill_files
from contextpolicy.engine.compose.system_text import format_complete_skill
from contextpolicy.engine.messages.skills import format_skill_line
from contextpolicy.models import Skill
from contextpolicy.models.skills import (
    LONGEST_DESCRIPTION,
    LONGEST_FILE_NAME,
    LONGEST_SKILL,
    LONGEST_SKILL_FILE,
)
from contextpolicy.roles import ROLES
from contextpolicy.skills import (
    SkillChanged,
    SkillDescriptionInvalid,
    SkillNameTaken,
    SkillTooLong,
    TooManySkills,
    build_skill_text,
    check_skill_free,
    compute_skill_digest,
    save_skill,
)

# Fields for files, which only the form has.
FILE_FIELDS = ("file_name", "file_upload", "file_text", "removed_files")


class SkillForm(forms.ModelForm[Skill]):
    """The form of a skill. If the name is refused, the text stays in the form."""

    team = forms.ModelChoiceField(
        label=gettext_lazy("Team"),
        queryset=Team.objects.none(),
        required=False,
        help_text=gettext_lazy(
            "All chats of this shared team can use this skill. Choose a group or a team, or "
            "leave both empty."
        ),
    )

    file_name = forms.CharField(
        label=gettext_lazy("File path"),
        required=False,
        max_length=LONGEST_FILE_NAME,
        help_text=gettext_lazy(
            "Enter a path for the file, such as forms/refund.csv. An existing file with "
            "the same path is replaced. Empty: the chosen file’s name is used."
        ),
    )
    file_upload = forms.FileField(
        label=gettext_lazy("Text file"), required=False, allow_empty_file=True
    )
    file_text = forms.CharField(
        label=gettext_lazy("File text"),
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 6, "class": "vLargeTextField"}),
        help_text=format_lazy(
            gettext_lazy(
                "Enter the file’s text if you do not choose a file. At most {n:,} characters."
            ),
            n=LONGEST_SKILL_FILE,
        ),
    )
    # The digest of the edited version.
    based_on = forms.CharField(label="", required=False, widget=forms.HiddenInput)
    removed_files = forms.MultipleChoiceField(
        label=gettext_lazy("Files to remove"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
    )

    class Meta:
        model = Skill
        fields = ("name", "slug", "description", "mode", "text", "group", "enabled")
        labels: ClassVar = {
            "name": gettext_lazy("Name"),
            "slug": gettext_lazy("Slug"),
            "description": gettext_lazy("Description"),
            "mode": gettext_lazy("Mode"),
            "text": gettext_lazy("Text"),
            "group": gettext_lazy("Group"),
            "enabled": gettext_lazy("Enabled"),
        }
        help_texts: ClassVar = {
            "description": format_lazy(
                gettext_lazy(
                    "Describe in one line when the model needs the text. At most {n:,} "
                    "characters. Skills on demand require a description."
                ),
                n=LONGEST_DESCRIPTION,
            ),
            "text": format_lazy(
                gettext_lazy(
                    "This text is added to prompts. At most {n:,} characters. Do not include "
                    "secrets, because models can repeat them."
                ),
                n=LONGEST_SKILL,
            ),
            "group": gettext_lazy(
                "All chats of this group’s members can use this skill. Without a group or team, "
                "policies select the skill."
            ),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for name, rows in (
            ("group", Group.objects.exclude(name__in=ROLES).order_by("name")),
            ("team", Team.objects.filter(owner=None, deleted_at=None).select_related("current")),
        ):
            field = self.fields.get(name)
            if isinstance(field, forms.ModelChoiceField):
                field.queryset = rows
        self.initial.setdefault("team", self.instance.team_id)
        if self.instance.pk:
            self.initial.setdefault("based_on", compute_skill_digest(self.instance))
        removed = self.fields.get("removed_files")
        if isinstance(removed, forms.MultipleChoiceField):
            removed.choices = [(file["name"], file["name"]) for file in self.instance.file_list]

    def clean_slug(self) -> str:
        """Reject a slug that another skill has; raises ValidationError."""
        return self.free("slug")

    def clean(self) -> dict[str, Any]:
        """Check the owner, the name, the description and the files."""
        super().clean()
        given = self.cleaned_data
        self.check_version()
        team = given.get("team")
        if team is not None and given.get("group") is not None:
            words = gettext("Choose a group or a team, not both.")
            self.add_error("team", forms.ValidationError(words, code="two_places"))
        if "team" in self.fields:
            self.instance.team_id = team.pk if team else None
        self.instance.group = given.get("group")
        if "name" in given:
            try:
                self.free("name")
            except forms.ValidationError as error:
                self.add_error("name", error)
        if given.get("mode") == Skill.Mode.ON_DEMAND and not given.get("description", "").strip():
            refusal = SkillDescriptionInvalid()
            self.add_error("description", forms.ValidationError(str(refusal), code=refusal.code))
        try:
            self.check_files()
        except forms.ValidationError as error:
            self.add_error("file_name", error)
        return given

    def check_version(self) -> None:
        """Refuse a change of a version that is not current, and show the current text.

        Saving again replaces the current version.
        """
        before = Skill.objects.filter(pk=self.instance.pk).first()
        digest = compute_skill_digest(before) if before else ""
        if self.cleaned_data.get("based_on") in (None, "", digest):
            return
        data = cast(QueryDict, self.data).copy()
        data["based_on"] = digest
        self.data = data
        self.add_error(None, forms.ValidationError(str(SkillChanged()), code=SkillChanged.code))
        words = gettext("Current text: {text}").format(text=before.text if before else "")
        self.add_error("text", forms.ValidationError(words, code=SkillChanged.code))

    def check_files(self) -> None:
        """Check the files after the change; raises ValidationError."""
        before = Skill.objects.filter(pk=self.instance.pk).first()
        try:
            changes = skill_files.plan_file_changes(
                before, files=self.read_file_changes(), keeps_others=True
            )
            skill_files.build_file_list(before, changes=changes)
        except skill_files.REFUSALS as error:
            raise forms.ValidationError(str(error), code=error.code) from error
        except Refusal as error:
            raise forms.ValidationError(error.localized, code=error.code) from error

    def read_file_changes(self) -> dict[str, str | None]:
        """Return new text by file name; None removes a file. Raises `Refusal` for invalid text."""
        given = self.cleaned_data
        found: dict[str, str | None] = dict.fromkeys(given.get("removed_files", ()))
        name, text = given.get("file_name", ""), given.get("file_text", "")
        if chosen := given.get("file_upload"):
            name = name or chosen.name
            chosen.seek(0)
            text = decode_file_text(chosen.read(MOST_TEXT_BYTES + 1), name=name)
        if name or text:
            found[name] = clean_file_text(text)
        return found

    def free(self, field: str) -> str:
        """Return the value of a field. Raises ValidationError if another skill has it."""
        value: str = self.cleaned_data[field]
        before = Skill.objects.filter(pk=self.instance.pk).first()
        try:
            check_skill_free(field, value, but=before, of=self.instance)
        except SkillNameTaken as error:
            raise forms.ValidationError(str(error), code=error.code) from error
        return value


class SkillAdmin(DomainAdmin):
    """Named instruction texts for prompts. Prompts never contain a disabled skill.

    Skills of personal teams are content of their owners: no page here shows them.
    """

    form = SkillForm
    refusals = (
        SkillChanged,
        SkillTooLong,
        SkillNameTaken,
        SkillDescriptionInvalid,
        TooManySkills,
        *skill_files.REFUSALS,
    )
    list_display = ("name", "slug", "place", "mode", "enabled", "updated_at")
    list_filter = ("mode", "enabled")
    search_fields = ("name", "slug", "description")
    fields = (
        *("name", "slug", "description", "mode", "text", "group", "team", "enabled", "cost"),
        *("files_shown", *FILE_FIELDS, "based_on"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Skill]:
        shared = Team.objects.filter(owner=None).values("pk")
        rows: QuerySet[Skill] = super().get_queryset(request)
        return rows.filter(Q(team_id=None) | Q(team_id__in=shared)).select_related("group")

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Load the names of the teams once for all rows of the page."""
        page = super().get_changelist_instance(request)
        names = load_team_names(page.result_list)
        for skill in page.result_list:
            skill.team_names = names
        return page

    def get_readonly_fields(
        self, request: HttpRequest, obj: Skill | None = None
    ) -> tuple[str, ...]:
        """Make the slug of a saved skill read-only, because policies refer to it."""
        shown = ("cost", "files_shown")
        return shown if obj is None else ("slug", *shown)

    def get_fields(self, request: HttpRequest, obj: Skill | None = None) -> tuple[str, ...]:
        """Leave out the team and the file fields for users with read access only.

        These fields exist only on the form, so they cannot be read-only.
        """
        reads = obj is not None and not self.has_change_permission(request, obj)
        hidden = {"team", "based_on", *FILE_FIELDS} if reads else set()
        return tuple(name for name in self.fields if name not in hidden)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because policies may refer to the skill. It can be disabled instead."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        save_skill(
            skill=obj,
            actor=get_request_actor(request),
            now=timezone.now(),
            files=form.read_file_changes(),
            based_on=form.cleaned_data.get("based_on", ""),
        )

    @admin.display(description=gettext_lazy("Belongs to"))
    def place(self, skill: Skill) -> str:
        """Return the name of the owning group or team, or that the instance owns the skill."""
        if skill.group is not None:
            return gettext("Group {name}").format(name=skill.group.name)
        if skill.team_id is not None:
            known = getattr(skill, "team_names", None)
            names = load_team_names([skill]) if known is None else known
            return gettext("Team {name}").format(name=names.get(skill.team_id, "?"))
        return gettext("Instance")

    @admin.display(description=gettext_lazy("Cost"))
    def cost(self, skill: Skill) -> str:
        """Return the token counts of the skill's description line and of its text in prompts."""
        if not skill.pk:
            return gettext("The cost is shown after you save the skill.")
        return describe_skill_cost(skill)

    @admin.display(description=gettext_lazy("Files"))
    def files_shown(self, skill: Skill) -> str:
        """Return the files of a skill with their text and token counts."""
        files = skill_files.list_skill_files(skill) if skill.pk else []
        if not files:
            return gettext("None")
        count = get_page_counter().count
        rows = [
            {"name": file.name, "cost": describe_file_cost(count(file.text)), "text": file.text}
            for file in files
        ]
        return render_to_string("admin/contextpolicy/skill/_files.html", {"files": rows})


def load_team_names(skills: Iterable[Skill]) -> dict[uuid.UUID, str]:
    """Return the names of the teams that own skills, by team ID."""
    ids = {skill.team_id for skill in skills if skill.team_id is not None}
    rows = Team.objects.select_related("current").filter(pk__in=ids) if ids else ()
    return {team.pk: team.name for team in rows}


def describe_file_cost(tokens: int) -> str:
    words = ngettext("{n:,} token when loaded", "{n:,} tokens when loaded", tokens)
    return words.format(n=tokens)


def describe_skill_cost(skill: Skill) -> str:
    """Return a sentence with the tokens that a skill costs in prompts."""
    count = get_page_counter().count
    text = count(format_complete_skill(build_skill_text(skill)))
    if skill.mode == Skill.Mode.ALWAYS:
        words = ngettext("{text:,} token in each prompt.", "{text:,} tokens in each prompt.", text)
        return words.format(text=text)
    line = count(format_skill_line(skill.slug, skill.description))
    words = ngettext(
        "{line:,} token in each prompt, and {text:,} more once it is loaded.",
        "{line:,} tokens in each prompt, and {text:,} more once it is loaded.",
        line,
    )
    return words.format(line=line, text=text)

"""Forms of the skill pages: a skill, its files, and an archive of skills."""

from collections.abc import Sequence
from typing import Any, cast

from django import forms
from django.utils.translation import gettext, gettext_lazy

from chats.web.forms import OptionField, PageForm, TextField, UploadField, build_text_input
from contextpolicy.models import Skill
from contextpolicy.models.skills import (
    LONGEST_DESCRIPTION,
    LONGEST_FILE_NAME,
    LONGEST_NAME,
    LONGEST_SKILL,
    LONGEST_SKILL_FILE,
    LONGEST_SKILL_FILES,
    MOST_SKILL_FILES,
)

MODES = Skill.Mode


class SkillTextForm(PageForm):
    """The text fields of a skill."""

    name = TextField(
        label=gettext_lazy("Name"),
        max_length=LONGEST_NAME,
        widget=build_text_input(),
    )
    description = TextField(
        label=gettext_lazy("Description"),
        required=False,
        max_length=LONGEST_DESCRIPTION,
        widget=build_text_input(),
    )
    text = TextField(
        label=gettext_lazy("Text"), widget=forms.Textarea(attrs={"dir": "auto", "rows": 12})
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, auto_id="skill-%s", **options)
        self.describe(
            "description",
            gettext(
                "Describe in one line when the model needs the text, in at most %(n)s characters."
            ),
            n=LONGEST_DESCRIPTION,
        )
        self.describe(
            "text",
            gettext(
                "Write instructions for the model, at most %(n)s characters. Do not include "
                "secrets, because models can repeat them."
            ),
            n=LONGEST_SKILL,
        )


class NewSkillForm(SkillTextForm):
    """A new skill of the instance, a group or a team."""

    place = OptionField(label=gettext_lazy("Belongs to"))
    field_order = ("place",)

    def __init__(self, *args: Any, places: Sequence[tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        cast(OptionField, self.fields["place"]).choices = places


class ChangedSkillForm(SkillTextForm):
    """The text fields, mode and state of an existing skill."""

    mode = OptionField(
        label=gettext_lazy("Mode"),
        choices=[(mode.value, mode.label) for mode in (MODES.ON_DEMAND, MODES.ALWAYS)],
    )
    enabled = forms.BooleanField(label=gettext_lazy("Enabled"), required=False)
    # The digest of the edited version.
    based_on = TextField(required=False, widget=forms.HiddenInput)

    def read_values(self) -> dict[str, Any]:
        """Return the typed values, without a mode if none was sent: not everyone may choose it.

        An unknown mode counts as on demand.
        """
        values = super().read_values()
        mode = MODES.ALWAYS if values.pop("mode") == MODES.ALWAYS else MODES.ON_DEMAND
        return {**values, "mode": mode} if "mode" in self.data else values


class SkillArchiveForm(PageForm):
    """An archive of skills, and the owner of the new ones."""

    place = OptionField(label=gettext_lazy("Belongs to"))
    archive = UploadField(
        label=gettext_lazy("Archive"),
        help_text=gettext_lazy(
            "Choose a ZIP archive of folders with SKILL.md and text files, at most 1 MiB. "
            "An existing skill with the same name is updated, and its files are replaced "
            "by the files in the folder."
        ),
        widget=forms.FileInput(attrs={"accept": ".zip"}),
    )

    def __init__(self, *args: Any, places: Sequence[tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, auto_id="import-%s", **options)
        cast(OptionField, self.fields["place"]).choices = places


class SkillFileForm(PageForm):
    """A file of a skill, typed or uploaded."""

    name = TextField(
        label=gettext_lazy("Path"),
        required=False,
        max_length=LONGEST_FILE_NAME,
        help_text=gettext_lazy(
            "Enter a path, such as reference.md or forms/refund.csv. A file with the same path "
            "is replaced. Empty: the chosen file’s name is used."
        ),
        widget=build_text_input(),
    )
    file = UploadField(label=gettext_lazy("Text file"), required=False, widget=forms.FileInput)
    text = TextField(
        label=gettext_lazy("Text"),
        required=False,
        widget=forms.Textarea(attrs={"dir": "auto", "rows": 6}),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"auto_id": "file-%s", **options})
        self.describe(
            "text",
            gettext(
                "Choose a file or write its text, at most %(n)s characters. A skill can have up "
                "to %(most_files)s files with %(all)s characters in total."
            ),
            n=LONGEST_SKILL_FILE,
            most_files=MOST_SKILL_FILES,
            all=LONGEST_SKILL_FILES,
        )


class StoredFileForm(PageForm):
    """The text of a file that the skill already contains."""

    name = TextField(widget=forms.HiddenInput)
    text = TextField(
        label=gettext_lazy("Text"),
        required=False,
        widget=forms.Textarea(attrs={"dir": "auto", "rows": 12}),
    )

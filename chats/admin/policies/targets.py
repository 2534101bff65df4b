"""The form part that selects a target: everyone, a group, a user or a chat."""

from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.utils.translation import gettext, gettext_lazy

from contextpolicy.models import PolicyAssignment
from contextpolicy.roles import find_person_by_name

TARGETS = {
    PolicyAssignment.Level.GROUP.value: "members_of",
    PolicyAssignment.Level.USER.value: "person",
    PolicyAssignment.Level.CHAT.value: "chat",
}


class TargetInputs(forms.Form):
    """Form fields for a level and the target that it requires: a group, a user or a chat."""

    place = forms.ChoiceField(
        label=gettext_lazy("Applies to"),
        choices=[("", gettext_lazy("choose")), *PolicyAssignment.Level.choices],
    )
    members_of = forms.ModelChoiceField(
        label=gettext_lazy("Group"), queryset=Group.objects.order_by("name"), required=False
    )
    person = forms.CharField(
        label=gettext_lazy("User"),
        required=False,
        help_text=gettext_lazy("Enter a user name."),
    )
    chat = forms.UUIDField(
        label=gettext_lazy("Chat"),
        required=False,
        help_text=gettext_lazy("Enter the chat ID."),
    )

    def clean_person(self) -> User | None:
        """Find the user with that name; raises ValidationError if there is none."""
        name = self.cleaned_data["person"]
        person = find_person_by_name(name)
        if name and person is None:
            raise forms.ValidationError(gettext("No user has this name. Check the spelling."))
        return person

    def clean(self) -> dict[str, Any]:
        """Check that exactly one target is given, and that it fits the level."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        wanted = TARGETS.get(cleaned.get("place", ""))
        for field in TARGETS.values():
            if field in self.errors:
                continue
            if field == wanted and not cleaned.get(field):
                self.add_error(field, gettext("This target requires this field. Fill it in."))
            elif field != wanted and cleaned.get(field):
                self.add_error(
                    field, gettext("This target does not use this field. Leave it empty.")
                )
        return cleaned

"""The part of a form that asks where something holds: everybody, a group, a person or a chat."""

from typing import Any

from django import forms
from django.contrib.auth.models import Group, User

from contextpolicy.models import PolicyAssignment

TARGETS = {
    PolicyAssignment.Level.GROUP.value: "members_of",
    PolicyAssignment.Level.USER.value: "person",
    PolicyAssignment.Level.CHAT.value: "chat",
}


class TargetInputs(forms.Form):
    """A place and exactly the target it needs."""

    place = forms.ChoiceField(
        label="Applies to", choices=[("", "choose"), *PolicyAssignment.Level.choices]
    )
    members_of = forms.ModelChoiceField(
        label="Group", queryset=Group.objects.order_by("name"), required=False
    )
    person = forms.CharField(label="Person", required=False, help_text="Their user name.")
    chat = forms.UUIDField(label="Chat", required=False, help_text="Its id.")

    def clean_person(self) -> User | None:
        """Find the person of that name; raises ValidationError if there is none."""
        name = self.cleaned_data["person"]
        person = User.objects.filter(username=name).first() if name else None
        if name and person is None:
            raise forms.ValidationError("There is nobody with this user name.")
        return person

    def clean(self) -> dict[str, Any]:
        """Check that there is exactly one target, the one of the place."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        wanted = TARGETS.get(cleaned.get("place", ""))
        for field in TARGETS.values():
            if field in self.errors:
                continue
            if field == wanted and not cleaned.get(field):
                self.add_error(field, "This place needs it.")
            elif field != wanted and cleaned.get(field):
                self.add_error(field, "This place has no use for it. Leave it empty.")
        return cleaned

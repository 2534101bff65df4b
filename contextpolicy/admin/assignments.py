"""The administration's pages of assignments: where policies apply."""

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.utils import timezone

from contextpolicy import publish
from contextpolicy.admin.bases import DomainAdmin
from contextpolicy.admin.site import actor_of
from contextpolicy.models import ContextPolicy, PolicyAssignment
from contextpolicy.two_persons import SecondPersonNeeded

TARGETS = {
    PolicyAssignment.Level.GROUP.value: "members_of",
    PolicyAssignment.Level.USER.value: "person",
    PolicyAssignment.Level.CHAT.value: "chat",
}


class AssignmentForm(forms.ModelForm[PolicyAssignment]):
    """The form of an assignment: a place and exactly the target it needs.

    The places are fields of the form, not of the model, whose constraints would refuse a place that
    has a policy already; here a policy replaces the one before.
    """

    place = forms.ChoiceField(
        label="Applies to", choices=[("", "choose"), *PolicyAssignment.Level.choices]
    )
    members_of = forms.ModelChoiceField(
        label="Group", queryset=Group.objects.order_by("name"), required=False
    )
    person = forms.CharField(label="Person", required=False, help_text="Their user name.")
    chat = forms.UUIDField(label="Chat", required=False, help_text="Its id.")

    class Meta:
        model = PolicyAssignment
        fields = ("policy",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        policy = self.fields.get("policy")
        if isinstance(policy, forms.ModelChoiceField):
            policy.queryset = ContextPolicy.objects.filter(retired=False, current__isnull=False)

    def clean_person(self) -> User | None:
        """Find the person of that name; raises ValidationError if there is none."""
        name = self.cleaned_data["person"]
        if not name:
            return None
        person = User.objects.filter(username=name).first()
        if person is None:
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


class PolicyAssignmentAdmin(DomainAdmin):
    """The page of assignments. A new assignment replaces the one before."""

    form = AssignmentForm
    refusals = (publish.PolicyNotInUse, SecondPersonNeeded)
    list_display = ("policy", "level", "target")
    list_filter = ("level",)
    list_select_related = ("policy", "group", "user")
    search_fields = ("policy__name", "group__name", "user__username", "=chat_id")
    fields = ("policy", "place", "members_of", "person", "chat")

    def get_fields(self, request: HttpRequest, obj: PolicyAssignment | None = None) -> Any:
        """Return the form's fields, or what is shown of an assignment that exists."""
        return ("policy", "level", "target") if obj is not None else self.fields

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: assign another policy to the same place instead."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Assign the policy."""
        said = form.cleaned_data
        row = publish.assign(
            policy=said["policy"],
            level=said["place"],
            group=said["members_of"],
            user=said["person"],
            chat_id=said["chat"],
            actor=actor_of(request),
            now=timezone.now(),
        )
        obj.pk = row.pk
        obj.refresh_from_db()

    def delete_model(self, request: HttpRequest, obj: PolicyAssignment) -> None:
        """Take the assignment back."""
        publish.unassign(assignment=obj, actor=actor_of(request), now=timezone.now())

    @admin.display(description="Applies to")
    def target(self, assignment: PolicyAssignment) -> str:
        """Name the group, person or chat."""
        return str(assignment.group or assignment.user or assignment.chat_id or "everyone")

"""The admin pages of assignments: where policies apply."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from chats.admin.bases import DomainAdmin
from chats.admin.policies.targets import TargetInputs
from chats.admin.site import get_request_actor
from contextpolicy import policy_assignments, policy_refusals
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import ContextPolicy, PolicyAssignment
from contextpolicy.two_persons import SecondPersonNeeded


class AssignmentForm(TargetInputs, forms.ModelForm[PolicyAssignment]):
    """The form of an assignment: a level and exactly the target that it requires.

    The level and target are fields of the form, not of the model. The model's constraints would
    reject a target that already has a policy; this form replaces that policy.
    """

    class Meta:
        model = PolicyAssignment
        fields = ("policy",)
        labels: ClassVar = {"policy": gettext_lazy("Policy")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        policy = self.fields.get("policy")
        if isinstance(policy, forms.ModelChoiceField):
            policy.queryset = ContextPolicy.objects.filter(retired=False, current__isnull=False)


class PolicyAssignmentAdmin(DomainAdmin):
    """Lists and adds assignments.

    A new assignment replaces the previous assignment of its target.
    """

    form = AssignmentForm
    refusals = (policy_refusals.PolicyNotInUse, SecondPersonNeeded, BlastRadiusNeeded)
    list_display = ("policy", "level", "target")
    list_filter = ("level",)
    list_select_related = ("policy", "group", "user")
    search_fields = ("policy__name", "group__name", "user__username", "=chat_id")
    fields = chosen_again = ("policy", "place", "members_of", "person", "chat")

    def get_fields(self, request: HttpRequest, obj: PolicyAssignment | None = None) -> Any:
        """Return the form's fields, or the read-only fields of an existing assignment."""
        return ("policy", "level", "target") if obj is not None else self.fields

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False. To change an assignment, assign another policy to its target."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        data = form.cleaned_data
        row = policy_assignments.assign_policy(
            policy=data["policy"],
            level=data["place"],
            group=data["members_of"],
            user=data["person"],
            chat_id=data["chat"],
            actor=get_request_actor(request),
            now=timezone.now(),
        )
        obj.pk = row.pk
        obj.refresh_from_db()

    def delete_model(self, request: HttpRequest, obj: PolicyAssignment) -> None:
        """Remove the assignment. Raises `SecondPersonNeeded` and `BlastRadiusNeeded`."""
        policy_assignments.unassign_policy(
            assignment=obj, actor=get_request_actor(request), now=timezone.now()
        )

    @admin.display(description=gettext_lazy("Applies to"))
    def target(self, assignment: PolicyAssignment) -> str:
        """Return the name of the group, user or chat."""
        return str(assignment.group or assignment.user or assignment.chat_id or gettext("everyone"))

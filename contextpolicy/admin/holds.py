"""The administration's pages of legal holds: placed here, released here, never deleted."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone

from contextpolicy import holds
from contextpolicy.admin.bases import DomainAdmin
from contextpolicy.admin.site import actor_of
from contextpolicy.admin.targets import TargetInputs
from contextpolicy.models import LegalHold, PolicyAssignment
from contextpolicy.models.holds import LONGEST_CASE, LONGEST_REASON
from contextpolicy.two_persons import SecondPersonNeeded

TEXT = forms.Textarea(attrs={"rows": 3})


class HoldForm(TargetInputs, forms.ModelForm[LegalHold]):
    """The form of a new hold: what is held, exactly the target that it needs, case and reason."""

    place = forms.ChoiceField(
        label="Holds", choices=[("", "choose"), *PolicyAssignment.Level.choices]
    )
    case = forms.CharField(
        label="Case", max_length=LONGEST_CASE, help_text="The name or number by which it is known."
    )
    reason = forms.CharField(
        label="Reason",
        max_length=LONGEST_REASON,
        widget=TEXT,
        help_text="Stands in the audit ledger for ever. The people who are held do not see it.",
    )
    review_on = forms.DateField(
        label="Review on",
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text="When somebody looks whether it is still needed. Nothing ends by itself.",
    )

    class Meta:
        model = LegalHold
        fields = ("case", "reason", "review_on")


class ReleaseForm(forms.ModelForm[LegalHold]):
    """The form that releases a hold."""

    release_reason = forms.CharField(
        label="Reason of the release",
        max_length=LONGEST_REASON,
        widget=TEXT,
        help_text="Saving releases the hold. For seven days more nothing is erased; then what "
        "people asked for, and what is too old, is erased unless another hold covers it.",
    )

    class Meta:
        model = LegalHold
        fields = ("release_reason",)


class LegalHoldAdmin(DomainAdmin):
    """Holds: while one lasts, nothing that it covers is erased, whoever asks."""

    form = HoldForm
    refusals = (holds.HoldIncomplete, holds.HoldReleased, SecondPersonNeeded)
    list_display = ("case", "target", "placed_at", "review_on", "state")
    list_filter = ("level",)
    list_select_related = ("group", "user")
    search_fields = ("case", "group__name", "user__username", "=chat_id")
    fields = ("place", "members_of", "person", "chat", "case", "reason", "review_on")
    shown = (
        "state",
        "target",
        "case",
        "reason",
        "review_on",
        "placed_by",
        "placed_at",
        "released_by",
        "released_at",
        "release_reason",
        "ends_at",
    )

    def get_form(
        self,
        request: HttpRequest,
        obj: Any = None,
        change: bool = False,  # noqa: FBT001, FBT002 - Django's signature
        **kwargs: Any,
    ) -> Any:
        """Return the form of a new hold, or the one that releases a hold."""
        if obj is not None:
            kwargs["form"] = ReleaseForm
        return super().get_form(request, obj, change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: LegalHold | None = None) -> Any:
        """Return the form's fields, or what is shown of a hold that exists."""
        return self.fields if obj is None else self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: LegalHold | None = None) -> Any:
        """Let nothing of a hold be changed but its end."""
        return () if obj is None else tuple(n for n in self.shown if n != "release_reason")

    def has_change_permission(self, request: HttpRequest, obj: LegalHold | None = None) -> bool:
        """Refuse for a hold that was released."""
        is_over = obj is not None and obj.released_at is not None
        return not is_over and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Refuse: a hold is released, and stays on record."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        """Place the hold, or release it."""
        said, actor, now = form.cleaned_data, actor_of(request), timezone.now()
        if change:
            hold = LegalHold.objects.get(pk=obj.pk)
            holds.release(hold=hold, reason=said["release_reason"], actor=actor, now=now)
            return
        row = holds.place(
            level=said["place"],
            group=said["members_of"],
            user=said["person"],
            chat_id=said["chat"],
            case=said["case"],
            reason=said["reason"],
            review_on=said["review_on"],
            actor=actor,
            now=now,
        )
        obj.pk = row.pk
        obj.refresh_from_db()

    @admin.display(description="Holds")
    def target(self, hold: LegalHold) -> str:
        """Name the group, person or chat."""
        return hold.target

    @admin.display(description="State")
    def state(self, hold: LegalHold) -> str:
        """Say whether it holds."""
        if hold.ends_at is None:
            return "in force"
        if hold.ends_at > timezone.now():
            return f"released, in force until {hold.ends_at:%d %b %Y %H:%M} UTC"
        return "ended"

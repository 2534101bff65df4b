"""The admin pages of legal holds, which are placed and released here, but never deleted."""

from datetime import UTC
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, pgettext

from chats.admin.bases import DomainAdmin
from chats.admin.policies.targets import TargetInputs
from chats.admin.site import get_request_actor
from contextpolicy import holds
from contextpolicy.models import LegalHold, PolicyAssignment
from contextpolicy.models.holds import LONGEST_CASE, LONGEST_REASON
from contextpolicy.two_persons import SecondPersonNeeded

TEXT = forms.Textarea(attrs={"rows": 3})


class HoldForm(TargetInputs, forms.ModelForm[LegalHold]):
    """The form of a new hold: scope, the target that it requires, case and reason."""

    place = forms.ChoiceField(
        label=gettext_lazy("Target"),
        choices=[("", gettext_lazy("choose")), *PolicyAssignment.Level.choices],
    )
    case = forms.CharField(
        label=gettext_lazy("Case"),
        max_length=LONGEST_CASE,
        help_text=gettext_lazy(
            "Enter the name or number of the legal case. Policy administrators and auditors see it."
        ),
    )
    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        max_length=LONGEST_REASON,
        widget=TEXT,
        help_text=gettext_lazy(
            "The audit log records this text permanently. The users under the hold do not see it."
        ),
    )
    review_on = forms.DateField(
        label=gettext_lazy("Review date"),
        required=False,
        widget=forms.DateInput(attrs={"type": "date"}),
        help_text=gettext_lazy(
            "Check on this date whether the hold is still needed. The hold does not end "
            "automatically."
        ),
    )

    class Meta:
        model = LegalHold
        fields = ("case", "reason", "review_on")


class ReleaseForm(forms.ModelForm[LegalHold]):
    """A form with the reason for releasing a hold."""

    release_reason = forms.CharField(
        label=gettext_lazy("Reason for the release"),
        max_length=LONGEST_REASON,
        widget=TEXT,
        help_text=gettext_lazy(
            "Saving releases the hold. Nothing is erased for seven more days. After that, pending "
            "erasures run and expired messages are erased, unless another hold covers them."
        ),
    )

    class Meta:
        model = LegalHold
        fields = ("release_reason",)


class LegalHoldAdmin(DomainAdmin):
    """Legal holds. While a hold is active, the data that it covers cannot be erased."""

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
        """Return the form of a new hold, or the form that releases a hold."""
        if obj is not None:
            kwargs["form"] = ReleaseForm
        return super().get_form(request, obj, change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: LegalHold | None = None) -> Any:
        """Return the form's fields, or the read-only fields of an existing hold."""
        return self.fields if obj is None else self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: LegalHold | None = None) -> Any:
        return () if obj is None else tuple(n for n in self.shown if n != "release_reason")

    def has_change_permission(self, request: HttpRequest, obj: LegalHold | None = None) -> bool:
        is_over = obj is not None and obj.released_at is not None
        return not is_over and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because a released hold stays on record."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:  # noqa: FBT001 - Django's signature
        said, actor, now = form.cleaned_data, get_request_actor(request), timezone.now()
        if change:
            hold = LegalHold.objects.get(pk=obj.pk)
            holds.release_hold(hold=hold, reason=said["release_reason"], actor=actor, now=now)
            return
        row = holds.place_hold(
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

    @admin.display(description=gettext_lazy("Target"))
    def target(self, hold: LegalHold) -> str:
        """Return the name of the group, user or chat."""
        return hold.target

    @admin.display(description=gettext_lazy("State"))
    def state(self, hold: LegalHold) -> SafeString:
        code, said = "in_force", gettext("active")
        if hold.ends_at is not None and hold.ends_at > timezone.now():
            time = date_format(hold.ends_at.astimezone(UTC), gettext("d M Y H:i"))
            said = gettext("Released; still active until {time} UTC").format(time=time)
            code = "released"
        elif hold.ends_at is not None:
            code, said = "ended", pgettext("legal hold", "ended")
        return format_html('<span data-state="{}">{}</span>', code, said)

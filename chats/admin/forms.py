"""Forms of the administration, with the markup of its pages."""

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.forms.renderers import TemplatesSetting
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from chats.compaction.people import approve
from chats.ground.refusals import Refusal
from chats.record import audit_access


class AdminRenderer(TemplatesSetting):
    """Renders `{{ form.field.as_field_group }}` with the markup of the administration."""

    field_template_name = "admin/forms/field.html"


class AdminForm(forms.Form):
    """A form of the administration."""

    default_renderer = AdminRenderer


class ReadingReasonForm(AdminForm):
    """The reason for reading a user's text. `audit_access` validates it."""

    reason = forms.CharField(
        label=gettext_lazy("Reason"),
        min_length=audit_access.SHORTEST,
        max_length=audit_access.LONGEST,
        widget=AdminTextInputWidget,
        help_text=gettext_lazy(
            "Enter a reason for reading, such as a legal case, a complaint or a court order, in "
            "10 to 300 characters. The audit log records it permanently."
        ),
    )


class RejectionForm(AdminForm):
    """The optional reason for rejecting summaries."""

    reason = forms.CharField(
        label=gettext_lazy("Reason for a rejection"),
        required=False,
        widget=AdminTextInputWidget(attrs={"maxlength": approve.REASON_LENGTH}),
    )

    def clean_reason(self) -> str:
        try:
            return approve.check_rejection_reason(self.cleaned_data["reason"])
        except Refusal as refusal:
            raise ValidationError(refusal.localized, code=refusal.code) from None


def build_reason_field(request: HttpRequest) -> forms.BoundField:
    """Return the field for the reason. After a refusal, it contains the submitted reason."""
    return ReadingReasonForm(initial={"reason": request.POST.get("reason", "")})["reason"]

"""The page that imports a strategy as a policy, or as a version of a policy."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy

from chats.actions.skills import is_skill_admin
from chats.admin.bases import ModelAdmin
from chats.admin.forms import AdminForm
from chats.admin.policies.form_fields import build_textarea
from chats.admin.site import get_request_actor
from contextpolicy import policy_refusals
from contextpolicy.import_json import LONGEST_IMPORT
from contextpolicy.imports import PolicyExists, ReservedName, import_strategy
from contextpolicy.models import ContextPolicy
from contextpolicy.plugins import MalformedImport
from contextpolicy.policy_skills import PolicySkillsRefused

EXAMPLE = """{
  "id": "my-agent",
  "contextStrategy": {
    "type": "plugin",
    "pluginId": "std-summarization-strategy",
    "config": {"threshold": 10}
  }
}"""
REFUSALS = (
    MalformedImport,
    PolicySkillsRefused,
    PolicyExists,
    ReservedName,
    policy_refusals.PolicyProblems,
    policy_refusals.PolicyChangedMeanwhile,
    policy_refusals.PolicyNameTaken,
)


class ImportForm(AdminForm):
    """A strategy as text or file, and the target policy."""

    into = forms.ModelChoiceField(
        ContextPolicy.objects.filter(retired=False),
        label=gettext_lazy("Policy"),
        required=False,
        empty_label=gettext_lazy("A new policy"),
        help_text=gettext_lazy(
            "The strategy and its config become the next version of this policy. Empty: a new "
            "policy without assignments is created."
        ),
    )
    name = forms.CharField(
        label=gettext_lazy("Name"),
        required=False,
        max_length=200,
        help_text=gettext_lazy(
            "A new policy gets this name. Empty: the name or the ID in the JSON is used."
        ),
    )
    pasted = forms.CharField(
        label=gettext_lazy("JSON"),
        required=False,
        strip=False,
        widget=build_textarea(14),
        help_text=gettext_lazy(
            "Paste the JSON of the strategy. If you also choose a file, the file is used instead."
        ),
    )
    file = forms.FileField(label=gettext_lazy("File"), required=False)

    def clean(self) -> dict[str, Any]:
        """Check that the file or the text is not empty."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        file = cleaned.get("file")
        # One byte more than the longest allowed text can have, so that a longer one is detected.
        given = file.read(4 * LONGEST_IMPORT + 1) if file else cleaned.get("pasted", "")
        try:
            cleaned["text"] = given.decode("utf-8-sig") if isinstance(given, bytes) else given
        except UnicodeDecodeError:
            self.add_error(
                "file",
                forms.ValidationError(
                    gettext("The file is not UTF-8 text. Save it as UTF-8, then choose it again."),
                    code="not_text",
                ),
            )
        else:
            if not cleaned["text"].strip():
                message = gettext("Paste the JSON of a strategy, or choose a file.")
                self.add_error("pasted", forms.ValidationError(message, code="empty"))
        return cleaned


def import_strategy_view(
    page: ModelAdmin, request: HttpRequest, *, tell: Callable[[HttpRequest, ContextPolicy], None]
) -> HttpResponse:
    """Show the import form, or import the strategy and redirect to the policy's page.

    A refused import shows the form with the reasons. `tell` shows the linter's warnings.
    Raises PermissionDenied without the permission to edit policies.
    """
    if not page.has_add_permission(request) or not page.has_change_permission(request):
        raise PermissionDenied
    form = ImportForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        policy = import_submitted_strategy(request, form)
        if policy is not None:
            tell(request, policy)
            address = reverse("admin:contextpolicy_contextpolicy_change", args=[policy.pk])
            return HttpResponseRedirect(address)
    context = {
        **page.admin_site.each_context(request),
        "title": gettext("Import a strategy"),
        "opts": page.opts,
        "form": form,
        "example": EXAMPLE,
    }
    return TemplateResponse(request, "admin/contextpolicy/contextpolicy/import.html", context)


def import_submitted_strategy(request: HttpRequest, form: ImportForm) -> ContextPolicy | None:
    """Import the form's strategy. If it is refused, add the reasons to the form; return None."""
    given = form.cleaned_data
    try:
        policy = import_strategy(
            text=given["text"],
            actor=get_request_actor(request),
            now=timezone.now(),
            into=given["into"],
            name=given["name"],
            writes_skills=isinstance(request.user, User) and is_skill_admin(request.user),
        )
    except REFUSALS as refusal:
        found = getattr(refusal, "problems", None)
        code = getattr(refusal, "reason", refusal.code)
        problems = (
            [(each.sentence, each.code) for each in found] if found else [(str(refusal), code)]
        )
        for sentence, each_code in problems:
            form.add_error(None, forms.ValidationError(sentence, code=each_code))
        return None
    newest = policy.newest
    version = newest.number if newest else 0
    if newest is None or newest.activated_at:
        sentence = gettext("Imported as version {version} of {policy}.")
    else:
        sentence = gettext(
            "Imported as version {version} of {policy}. It is a draft until it is published."
        )
    messages.success(request, sentence.format(version=version, policy=policy))
    return policy

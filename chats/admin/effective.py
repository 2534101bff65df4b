"""The page that says which policy governs somebody, field by field, and what lost to it."""

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from chats.ground.refusals import Refusal
from chats.prompt.explained import Explanation, explain_for, viewpoint_of
from contextpolicy.admin.ledger import EffectivePolicyAdmin
from contextpolicy.admin.told_values import told_value
from contextpolicy.explanation import LOST, WON, ExplainedField
from contextpolicy.models import ModelSpec

LEVELS = {
    "instance": "everybody",
    "group": "a group",
    "user": "the person",
    "agent": "the agent",
    "chat": "the chat",
    "setting": "the server",
    "default": "the strategy",
}


class EffectivePolicyForm(forms.Form):
    """Asks for the policy of a person, perhaps in a chat, as an agent, with a model."""

    person = forms.CharField(
        label="Person", max_length=150, help_text="The name with which they sign in."
    )
    chat = forms.UUIDField(
        label="Chat", required=False, help_text="Its id. Empty: a chat without a policy of its own."
    )
    agent = forms.CharField(
        label="Agent",
        required=False,
        max_length=80,
        help_text="The id of a role in the team of that chat.",
    )
    model = forms.ModelChoiceField(
        ModelSpec.objects.all(),
        label="Model",
        required=False,
        to_field_name="slug",
        empty_label="The one that would reply",
    )

    def explained(self) -> Explanation:
        """Explain what is asked for. Raises `NotThere` and `PolicyRefused`."""
        given = self.cleaned_data
        return explain_for(
            viewpoint_of(
                username=given["person"],
                chat_id=given["chat"],
                role_id=given["agent"],
                model=given["model"].slug if given["model"] else "",
            )
        )


class ExplainedPolicyAdmin(EffectivePolicyAdmin):
    """The stored effective policies, and a page that explains that of a viewpoint."""

    change_list_template = "admin/contextpolicy/effectivepolicy/change_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Add the page."""
        page = self.admin_site.admin_view(self.explain)
        return [path("explain/", page, name="contextpolicy_effective_explain"), *super().get_urls()]

    def explain(self, request: HttpRequest) -> HttpResponse:
        """Show the form and, once it names somebody, every field of their policy.

        Everything stands in the address, so that it can be sent to somebody. Raises
        PermissionDenied for who may not see policies.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        asked = "person" in request.GET
        form = EffectivePolicyForm(request.GET if asked else None)
        found = None
        if asked and form.is_valid():
            try:
                found = form.explained()
            except Refusal as refusal:
                form.add_error(None, refusal.sentence)
        context = {
            **self.admin_site.each_context(request),
            "title": "Who is governed by what",
            "opts": self.opts,
            "form": form,
            "found": found,
            "rows": [row_of(field) for field in found.fields] if found else [],
        }
        template = "admin/contextpolicy/effectivepolicy/explain.html"
        return TemplateResponse(request, template, context)


def row_of(field: ExplainedField) -> dict[str, Any]:
    """Return one field as the page shows it."""
    level, slug, version, locked = field.source
    return {
        "name": field.name,
        "value": told_value(field.name, field.value),
        "wanted": told_value(field.name, field.wanted) if field.was_adjusted else "",
        "policy": field.policy or slug,
        "version": version,
        "level": LEVELS.get(level, level),
        "locked": locked,
        "reason": WON[field.reason],
        "is_set": level not in ("default", "setting"),
        "is_used": field.is_used,
        "losing": [
            {
                "value": told_value(field.name, lost.value),
                "policy": lost.name,
                "version": lost.version,
                "level": LEVELS.get(lost.level, lost.level),
                "reason": LOST[lost.reason],
            }
            for lost in field.losing
        ],
    }

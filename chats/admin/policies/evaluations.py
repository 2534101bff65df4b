"""Admin pages of shadow evaluations: results for a draft, and its publication."""

import uuid
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.site import get_request_actor
from chats.admin.words import ENDED, NOT_EVALUATED
from chats.ground.refusals import Refusal
from chats.simulation import evaluating
from chats.simulation.evaluated import load_evaluation_results
from contextpolicy import policy_refusals
from contextpolicy.blast import BlastRadiusNeeded
from contextpolicy.models import Evaluation
from contextpolicy.two_persons import SecondPersonNeeded

CHANGE = "contextpolicy.change_contextpolicy"
TEMPLATE = "admin/contextpolicy/evaluation/compare.html"
LONGEST_REASON = 500
REFUSALS = (
    policy_refusals.PolicyProblems,
    policy_refusals.PolicyChangedMeanwhile,
    SecondPersonNeeded,
    BlastRadiusNeeded,
)


class EvaluationAdmin(ReadOnlyAdmin):
    """Shadow evaluations of drafts, compared with the published version."""

    list_display = (
        "policy",
        "comparison",
        "state",
        "turns",
        "changed",
        "would_refuse",
        "started_at",
        "ends_at",
    )
    list_display_links = None
    list_filter = ("state",)
    list_select_related = ("policy", "version")
    fields: ClassVar[tuple[str, ...]] = (
        "policy",
        "version",
        "place",
        "share",
        "state",
        "started_at",
        "ends_at",
        "ended_at",
        "turns",
        "unknown",
        "changed",
        "would_refuse",
        "compactions_now",
        "compactions_then",
        "tokens_now",
        "tokens_then",
        "comparison",
    )

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.compare)
        name = "contextpolicy_evaluation_compare"
        return [path("<uuid:evaluation_id>/compare/", page, name=name), *super().get_urls()]

    def compare(self, request: HttpRequest, evaluation_id: uuid.UUID) -> HttpResponse:
        """Show an evaluation. A POST ends it or publishes its version.

        Raises PermissionDenied without the permission to view or end evaluations, and Http404.
        """
        may_act = request.user.has_perm(CHANGE)
        if not self.has_view_permission(request) or (request.method == "POST" and not may_act):
            raise PermissionDenied
        if request.method == "POST":
            return self.acted(request, evaluation_id)
        rows = Evaluation.objects.select_related("policy", "version")
        row = rows.filter(pk=evaluation_id).first()
        if row is None:
            raise Http404
        found = load_evaluation_results(row)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Evaluation of {version}").format(version=row.version),
            "opts": self.opts,
            "row": row,
            "found": found,
            "unknown": [(NOT_EVALUATED.get(code, code), count) for code, count in found.unknown],
            "ended": ENDED.get(row.reason, row.reason),
            "may_act": may_act and row.state == Evaluation.State.OPEN,
        }
        return TemplateResponse(request, TEMPLATE, context)

    def acted(self, request: HttpRequest, evaluation_id: uuid.UUID) -> HttpResponse:
        """End an evaluation or publish its version, then redirect to its page."""
        act, common = request.POST.get("act", ""), {"actor": get_request_actor(request)}
        options: dict[str, Any] = {"evaluation_id": evaluation_id, "now": timezone.now(), **common}
        try:
            if act == "end":
                evaluating.end_evaluation_early(**options)
            if act == "promote":
                emergency = request.POST.get("emergency", "")[:LONGEST_REASON]
                row = evaluating.promote_evaluation(**options, emergency=emergency)
                message = gettext("{version} is published.").format(version=row.version)
                self.message_user(request, message, messages.SUCCESS, "version_published")
        except Refusal as refusal:
            self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
        except REFUSALS as refusal:
            self.message_user(request, str(refusal), messages.ERROR, refusal.code)
        return HttpResponseRedirect(request.path)

    @admin.display(description=gettext_lazy("Version"))
    def comparison(self, row: Evaluation) -> SafeString:
        address = reverse("admin:contextpolicy_evaluation_compare", args=[row.pk])
        return format_html('<a href="{}">{}</a>', address, row.version)

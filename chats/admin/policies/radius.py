"""Admin pages of affected-chat counts: progress, results and the largest changes."""

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
from django.utils.translation import gettext, gettext_lazy, pgettext

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.policies.charts import build_token_chart
from chats.admin.policies.previews import build_side_context
from chats.admin.site import get_request_actor
from chats.ground.refusals import Refusal
from chats.simulation import radius
from contextpolicy import blast
from contextpolicy.models import BlastRadius

CHANGE = "contextpolicy.change_contextpolicy"
# Seconds between reloads of the page while a count is running.
REFRESH = 5
TEMPLATES = "admin/contextpolicy/blastradius"
ACTS = {"stop": radius.stop_radius_count, "resume": radius.resume_radius_count}


class BlastRadiusAdmin(ReadOnlyAdmin):
    """Counts of chats that an edited policy would change."""

    list_display = ("policy", "count", "state", "judged", "changed", "would_refuse", "started_at")
    list_display_links = None
    list_filter = ("state",)
    list_select_related = ("policy",)
    fields: ClassVar[tuple[str, ...]] = (
        "policy",
        "base",
        "place",
        "group",
        "state",
        "started_at",
        "finished_at",
        "in_use",
        "judged",
        "changed",
        "would_refuse",
        "failed",
        "digest",
        "count",
    )

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.progress)
        name = "contextpolicy_blastradius_count"
        return [path("<uuid:radius_id>/count/", page, name=name), *super().get_urls()]

    def progress(self, request: HttpRequest, radius_id: uuid.UUID) -> HttpResponse:
        """Show the progress and results of a count. A POST stops or resumes it.

        Raises PermissionDenied without the permission to view or start counts, and Http404.
        """
        may_act = request.user.has_perm(CHANGE)
        if not self.has_view_permission(request) or (request.method == "POST" and not may_act):
            raise PermissionDenied
        if request.method == "POST":
            return self.acted(request, radius_id)
        row = (
            BlastRadius.objects.select_related("policy__current", "group")
            .filter(pk=radius_id)
            .first()
        )
        if row is None:
            raise Http404
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Blast radius of {policy}").format(policy=row.policy),
            "opts": self.opts,
            "row": row,
            "told": build_radius_context(row),
            "may_act": may_act,
            **build_chat_context(request, row),
        }
        response = TemplateResponse(request, f"{TEMPLATES}/count.html", context)
        if row.state == BlastRadius.State.COUNTING and "preview" not in context:
            response["Refresh"] = str(REFRESH)
        return response

    def acted(self, request: HttpRequest, radius_id: uuid.UUID) -> HttpResponse:
        """Stop or resume a count, then redirect to its page."""
        act = ACTS.get(request.POST.get("act", ""))
        try:
            if act is not None:
                act(radius_id=radius_id, actor=get_request_actor(request), now=timezone.now())
        except Refusal as refusal:
            self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
        return HttpResponseRedirect(request.path)

    @admin.display(description=gettext_lazy("Count"))
    def count(self, row: BlastRadius) -> SafeString:
        return link_to(row, pgettext("button", "Open"))


def link_to(row: BlastRadius, words: str) -> SafeString:
    """Return a link with this text to the page of a count."""
    address = reverse("admin:contextpolicy_blastradius_count", args=[row.pk])
    return format_html('<a href="{}">{}</a>', address, words)


def build_radius_context(row: BlastRadius) -> dict[str, Any]:
    done = row.judged + row.failed
    is_open = row.state == BlastRadius.State.COUNTING
    return {
        "done": done,
        # Chats that are erased during the count are not compared.
        "most": max(row.in_use, done),
        "gone": max(row.in_use - done, 0) if row.state == BlastRadius.State.FINISHED else 0,
        "share": f"{row.changed / row.judged:.1%}" if row.judged else "",
        # A sample of all chats is exact and needs no interval.
        "sample": gettext("{low} to {high}").format(
            low=f"{row.low or 0:.0%}", high=f"{row.high or 0:.0%}"
        )
        if row.low != row.high
        else "",
        "is_open": is_open,
        "is_stopped": row.state == BlastRadius.State.STOPPED,
        "is_past": blast.get_active_number(row.policy) != row.base,
        "worst": row.worst,
    }


def build_chat_context(request: HttpRequest, row: BlastRadius) -> dict[str, Any]:
    """Return the preview of the chat given in the URL, in numbers only."""
    wanted = request.GET.get("chat", "")
    if not wanted:
        return {}
    try:
        chat_id = uuid.UUID(wanted)
    except ValueError:
        return {"no_chat": True}
    found = radius.preview_radius_chat(row, chat_id=chat_id, now=timezone.now())
    if found is None:
        return {"no_chat": True}
    return {
        "preview": found,
        "sides": [build_side_context(found.now), build_side_context(found.proposed)],
        "chart": build_token_chart(found.course_now, found.course_proposed),
    }

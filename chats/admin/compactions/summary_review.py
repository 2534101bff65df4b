"""The page on which an administrator compares a summary with its sources before approving it."""

import uuid
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.actions import summary_review
from chats.admin.compactions.actions import CompactionDeeds, get_request_user
from chats.admin.forms import RejectionForm, build_reason_field
from chats.admin.site import get_request_actor
from chats.compaction.people import approve
from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.ground.refusals import Refusal
from chats.models import Compaction
from chats.record import audit_access

TEMPLATE = "admin/chats/review.html"


class SummaryReviewAdmin(CompactionDeeds):
    """Adds the review page to the admin pages of compactions."""

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.review_page)
        return [path("review/", page, name="chats_compaction_review"), *super().get_urls()]

    @admin.display(description=gettext_lazy("Review"))
    def review(self, row: Compaction) -> str | SafeString:
        """Link to the page if the summary is pending approval."""
        if not row.needs_approval:
            return gettext("This summary is not pending approval.")
        said, address = (
            gettext("Read summary and sources"),
            reverse("admin:chats_compaction_review"),
        )
        return format_html('<a href="{}?compaction={}">{}</a>', address, row.pk, said)

    def review_page(self, request: HttpRequest) -> HttpResponse:
        """Request a reason, show the summary with its sources, or record the decision.

        Raises PermissionDenied without the permission to approve summaries.
        """
        user = get_request_user(request)
        if not self.has_view_permission(request) or not user.has_perm(EDITS_POLICIES):
            raise PermissionDenied
        try:
            named = uuid.UUID(request.GET.get("compaction", ""))
            row = summary_review.find_reviewable_summary(user=user, compaction_id=named)
            if request.method == "POST":
                return self.decided(request, row)
            return self.shown(request, row)
        except ValueError:
            message = gettext("Choose a summary from the list.")
            self.message_user(request, message, messages.ERROR)
        except Refusal as refusal:
            self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
        return HttpResponseRedirect(reverse("admin:chats_compaction_changelist"))

    def decided(self, request: HttpRequest, row: Compaction) -> HttpResponse:
        """Record a reason for reading, an approval or a rejection. Raises `Refusal`."""
        user, now, chat_id = get_request_user(request), timezone.now(), row.branch.chat_id
        if "approve" in request.POST:
            approve.approve_summary(user=user, compaction=row, now=now)
            said, code = gettext("The summary was approved."), "summary_approved"
        elif "reject" in request.POST:
            rejection = RejectionForm(request.POST)
            if not rejection.is_valid():
                return self.shown(request, row, rejection=rejection)
            remark = rejection.cleaned_data["reason"]
            approve.reject_summary(user=user, compaction=row, reason=remark, now=now)
            said, code = gettext("The summary was rejected."), "summary_rejected"
        else:
            try:
                reason = request.POST.get("reason", "")
                audit_access.open_reading(
                    chat_id=chat_id, actor=get_request_actor(request), reason=reason, now=now
                )
            except Refusal as refusal:
                self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
                return self.shown(request, row)
            return HttpResponseRedirect(request.get_full_path())
        self.message_user(request, said, messages.SUCCESS, code)
        return HttpResponseRedirect(reverse("admin:chats_compaction_changelist"))

    def shown(
        self, request: HttpRequest, row: Compaction, *, rejection: RejectionForm | None = None
    ) -> HttpResponse:
        """Show the summary with its sources, or the form for the reason.

        `rejection`: the form of a refused rejection.
        """
        user, now = get_request_user(request), timezone.now()
        until = summary_review.find_review_expiry(row, user=user, now=now)
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Review summary"),
            "opts": self.opts,
            "row": row,
            "until": until,
            "rejection": rejection or RejectionForm(),
        }
        if until is not None:
            context["review"] = summary_review.read_summary(row, user=user, now=now)
        else:
            context["reason"] = build_reason_field(request)
            chat_id, actor = row.branch.chat_id, get_request_actor(request)
            context["own"] = audit_access.find_waiting_request(
                chat_id=chat_id, actor=actor, now=now
            )
        return TemplateResponse(request, TEMPLATE, context)

"""The pages of retention: what a run would erase, the runs, and their certificates."""

import uuid
from typing import ClassVar

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chats.actions import ages, certificates, retention
from chats.ground.refusals import NotFound
from chats.models import RetentionRun
from contextpolicy.admin.bases import ReadOnlyAdmin
from contextpolicy.admin.site import actor_of

BEGIN = "chats.add_retentionrun"


class RetentionRunAdmin(ReadOnlyAdmin):
    """The runs that erased what was older than policies let it be."""

    change_list_template = "admin/chats/retentionrun/change_list.html"
    list_display = ("started_at", "state", "messages_erased", "chats_erased", "chats_held")
    fields: ClassVar[tuple[str, ...]] = (
        "started_at",
        "finished_at",
        "chats",
        "messages_erased",
        "chats_erased",
        "chats_held",
        "chats_busy",
        "chats_failed",
        "digest",
        "ledger",
        "file",
    )

    def get_urls(self) -> list[URLPattern]:
        """Add the preview and the certificates."""
        preview = self.admin_site.admin_view(self.preview)
        certificate = self.admin_site.admin_view(self.certificate)
        return [
            path("preview/", preview, name="chats_retention_preview"),
            path("<uuid:run_id>/certificate/", certificate, name="chats_retention_certificate"),
            *super().get_urls(),
        ]

    def preview(self, request: HttpRequest) -> HttpResponse:
        """Show what a run would erase now; a POST begins one.

        Raises PermissionDenied for who may not see or begin runs.
        """
        may_begin = request.user.has_perm(BEGIN)
        if not self.has_view_permission(request) or (request.method == "POST" and not may_begin):
            raise PermissionDenied
        now = timezone.now()
        if request.method == "POST":
            run = retention.begin(actor=actor_of(request), now=now)
            return HttpResponseRedirect(reverse("admin:chats_retentionrun_change", args=[run.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": "What retention would erase",
            "opts": self.opts,
            "preview": ages.preview(now=now),
            "may_begin": may_begin,
        }
        return TemplateResponse(request, "admin/chats/retentionrun/preview.html", context)

    def certificate(self, request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
        """Send the certificate of a run as a file.

        Raises PermissionDenied for who may not see runs, and Http404 before the run's end.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            run = certificates.run_of(run_id)
        except NotFound:
            raise Http404 from None
        response = JsonResponse(certificates.certificate(run), json_dumps_params={"indent": 2})
        response["Content-Disposition"] = f'attachment; filename="retention-{run.pk}.json"'
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description="State")
    def state(self, run: RetentionRun) -> str:
        """Say whether the run has ended."""
        return "under way" if run.is_open else "ended"

    @admin.display(description="Against the ledger")
    def ledger(self, run: RetentionRun) -> str:
        """Say whether the ledger certifies what the run wrote down."""
        if run.is_open:
            return "The certificate is written when the run ends."
        return " ".join(certificates.faults(run)) or "The ledger certifies every entry."

    @admin.display(description="Certificate")
    def file(self, run: RetentionRun) -> str | SafeString:
        """Lead to the certificate."""
        if run.is_open:
            return "not yet"
        address = reverse("admin:chats_retention_certificate", args=[run.pk])
        return format_html('<a href="{}">Download (JSON)</a>', address)

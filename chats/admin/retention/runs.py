"""Admin pages of retention: preview, runs and certificates."""

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
from django.utils.translation import gettext, gettext_lazy

from chats.actions import certificates, retention, retention_rules
from chats.admin.bases import ReadOnlyAdmin
from chats.admin.site import get_request_actor
from chats.ground.refusals import NotFound
from chats.models import RetentionRun
from contextpolicy.wording import join_sentences

BEGIN = "chats.add_retentionrun"
CERTIFIED = gettext_lazy("All entries match the events of the audit log.")


class RetentionRunAdmin(ReadOnlyAdmin):
    """Runs that erased messages older than their retention period."""

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
        preview = self.admin_site.admin_view(self.preview)
        certificate = self.admin_site.admin_view(self.certificate)
        return [
            path("preview/", preview, name="chats_retention_preview"),
            path("<uuid:run_id>/certificate/", certificate, name="chats_retention_certificate"),
            *super().get_urls(),
        ]

    def preview(self, request: HttpRequest) -> HttpResponse:
        """Show what a run would erase now. A POST starts a run.

        Raises PermissionDenied without the permission to view or start runs.
        """
        may_begin = request.user.has_perm(BEGIN)
        if not self.has_view_permission(request) or (request.method == "POST" and not may_begin):
            raise PermissionDenied
        now = timezone.now()
        if request.method == "POST":
            run = retention.start_retention_run(actor=get_request_actor(request), now=now)
            return HttpResponseRedirect(reverse("admin:chats_retentionrun_change", args=[run.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Retention preview"),
            "opts": self.opts,
            "preview": retention_rules.preview_retention(now=now),
            "may_begin": may_begin,
        }
        return TemplateResponse(request, "admin/chats/retentionrun/preview.html", context)

    def certificate(self, request: HttpRequest, run_id: uuid.UUID) -> HttpResponse:
        """Send the certificate of a run as a file.

        Raises PermissionDenied without the view permission, and Http404 for an unfinished run.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            run = certificates.find_finished_run(run_id)
        except NotFound:
            raise Http404 from None
        response = JsonResponse(
            certificates.build_retention_certificate(run), json_dumps_params={"indent": 2}
        )
        response["Content-Disposition"] = f'attachment; filename="retention-{run.pk}.json"'
        response["Cache-Control"] = "no-store"
        return response

    @admin.display(description=gettext_lazy("State"))
    def state(self, run: RetentionRun) -> str:
        return gettext("running") if run.is_open else gettext("finished")

    @admin.display(description=gettext_lazy("Audit log check"))
    def ledger(self, run: RetentionRun) -> str:
        """Return a sentence with the result of comparing the run's entries with the audit log."""
        if run.is_open:
            return gettext("The certificate is written when the run ends.")
        return join_sentences(*certificates.list_certificate_faults(run)) or str(CERTIFIED)

    @admin.display(description=gettext_lazy("Certificate"))
    def file(self, run: RetentionRun) -> str | SafeString:
        if run.is_open:
            return gettext("not finished")
        address = reverse("admin:chats_retention_certificate", args=[run.pk])
        return format_html('<a href="{}">{}</a>', address, gettext("Download (JSON)"))

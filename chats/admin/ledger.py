"""The page that verifies the ledger: a small one at once, a large one in the background."""

from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone

from chats.ground import queue
from contextpolicy import verification
from contextpolicy.admin.ledger import AuditEventAdmin
from contextpolicy.admin.site import actor_of
from contextpolicy.models import LedgerVerification

TEMPLATE = "admin/contextpolicy/auditevent/verify.html"


class VerifiedLedgerAdmin(AuditEventAdmin):
    """The ledger, whose verification never takes time from the replies of its web process."""

    def verification(self, request: HttpRequest) -> HttpResponse:
        """Verify a ledger of some thousand rows; ask for the verification of a larger one.

        Raises PermissionDenied for who may not read the ledger.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        scope = request.GET.get("scope") or ""
        if verification.rows_of(scope) <= verification.SMALL:
            return super().verification(request)
        if request.method == "POST":
            with transaction.atomic():
                asked = verification.ask(scope=scope, actor=actor_of(request), now=timezone.now())
                queue.enqueue(queue.VERIFY_LEDGER, verification_id=asked.pk)
            return HttpResponseRedirect(request.get_full_path())
        return self.kept(request, scope=scope)

    def kept(self, request: HttpRequest, *, scope: str) -> HttpResponse:
        """Show what the newest verification found, and whether one is under way."""
        asked = LedgerVerification.objects.filter(scope=scope).order_by("-pk")
        newest = asked.first()
        found = asked.filter(finished_at__isnull=False, error="").first()
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": "Verify the ledger",
            "opts": self.opts,
            "scope": scope,
            "is_large": True,
            "size": verification.rows_of(scope),
            "under_way": newest if newest and newest.finished_at is None else None,
            "was_lost": bool(newest and newest.error),
            "found": found,
            "breaks": [
                {"scope": place, "seq": seq, "reason": reason}
                for place, seq, reason in (found.breaks if found else [])
            ],
            "broken": found.broken if found else 0,
            "told": sorted(found.told.items()) if found else [],
            "chains": found.chains if found else 0,
            "rows": found.rows if found else 0,
        }
        return TemplateResponse(request, TEMPLATE, context)

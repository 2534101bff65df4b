"""Admin pages of the audit log: verification, checkpoints, export."""

import base64
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext, gettext_noop

from chats.admin.audit.break_reasons import localize_break_reason
from chats.admin.audit.ledger import AuditEventAdmin
from chats.admin.site import get_request_actor
from chats.checkpoints import files, signing, timestamps, upkeep, verify_ledger
from chats.ground import queue
from chats.ground.refusals import Refusal
from chats.streams.ledger import build_export_response
from contextpolicy import verification
from contextpolicy.audit.export import FORMS, start_ledger_export
from contextpolicy.audit.reading import record_file_download
from contextpolicy.audit.search import parse_search_line
from contextpolicy.audit.search_values import SearchNotUnderstood
from contextpolicy.models import LedgerCheckpoint, LedgerOrigin, LedgerTimestamp, LedgerVerification

CHECKPOINTS = "admin/contextpolicy/auditevent/checkpoints.html"
SHOWN = 100
STAMP = "stamped.tsr"
TEMPLATE = "admin/contextpolicy/auditevent/verify.html"


class NoTimestamp(Refusal):
    """No time-stamping authority has confirmed a checkpoint yet."""

    code = "no_timestamp"
    status = 404
    sentence = gettext_noop(
        "No checkpoint has a timestamp from an external authority yet. Set LEDGER_TSA_URL, or "
        "check that its server answers. The next checkpoint is then stamped within minutes."
    )


class VerifiedLedgerAdmin(AuditEventAdmin):
    """The audit log. Large verifications run in the background, so they do not delay replies."""

    def get_urls(self) -> list[URLPattern]:
        pages = {
            "export": self.export,
            "checkpoints": self.checkpoints,
            "offline": self.offline,
        }
        return [
            *(
                path(
                    f"{name}/",
                    self.admin_site.admin_view(page),
                    name=f"contextpolicy_ledger_{name}",
                )
                for name, page in pages.items()
            ),
            *super().get_urls(),
        ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the events, with warnings about late or failed verifications."""
        more = {"warnings": upkeep.list_check_warnings(now=timezone.now()), **(extra_context or {})}
        return super().changelist_view(request, more)

    def checkpoints(self, request: HttpRequest) -> HttpResponse:
        """Show the checkpoints, their keys and the downloads for verification.

        Raises PermissionDenied without the permission to read the ledger.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        rows = LedgerCheckpoint.objects.select_related("origin").order_by("-origin", "-size")
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Checkpoints"),
            "opts": self.opts,
            "rows": rows[:SHOWN],
            "newest": rows.first(),
            "stamp": timestamps.find_last_timestamp(),
            "keys": files.list_public_keys(),
            "warnings": upkeep.list_check_warnings(now=timezone.now()),
            "origins": LedgerOrigin.objects.exclude(before="").order_by("-pk"),
        }
        return TemplateResponse(request, CHECKPOINTS, context)

    def offline(self, request: HttpRequest) -> HttpResponseBase:
        """Send a verification file: checkpoint, log, key, script, or the proof of a chain.

        For an unknown or refused file, shows the page with the checkpoints. Raises PermissionDenied
        without the permission to read the ledger.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        name = request.POST.get("file", "")
        if request.method != "POST" or name not in OFFLINE:
            return self.checkpoints(request)
        try:
            text = OFFLINE[name](request.POST.get("scope", "").strip())
        except Refusal as refusal:
            self.message_user(request, refusal.localized, messages.ERROR, refusal.code)
            return self.checkpoints(request)
        record_file_download(name, actor=get_request_actor(request), now=timezone.now())
        kind = "application/timestamp-reply" if name == STAMP else "text/plain; charset=utf-8"
        response = StreamingHttpResponse(text, content_type=kind)
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        response["Cache-Control"] = "no-store"
        return response

    def export(self, request: HttpRequest) -> HttpResponseBase:
        """Stream the rows that match the search as a file.

        Redirects to the list for an unknown format or an invalid search. Raises PermissionDenied
        without the permission to read the ledger.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method != "POST":
            return self.changelist_view(request)
        form, text = request.POST.get("form", ""), request.POST.get("q", "")
        # The list shows why a search is not understood, and records the access.
        listed = HttpResponseRedirect(f"../?{urlencode({'q': text})}")
        if form not in FORMS:
            return listed
        try:
            search = parse_search_line(text)
        except SearchNotUnderstood:
            return listed
        made = start_ledger_export(
            search=search, form=form, actor=get_request_actor(request), now=timezone.now()
        )
        return build_export_response(made)

    def verification(self, request: HttpRequest) -> HttpResponse:
        """Verify a small ledger immediately, or request the verification of a large ledger.

        Raises PermissionDenied without the permission to read the ledger.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        scope = request.GET.get("scope") or ""
        if verification.count_chain_rows(scope) <= verification.SMALL:
            return super().verification(request)
        if request.method == "POST":
            with transaction.atomic():
                asked = verification.request_verification(
                    scope=scope, actor=get_request_actor(request), now=timezone.now()
                )
                queue.enqueue(queue.VERIFY_LEDGER, verification_id=asked.pk)
            return HttpResponseRedirect(request.get_full_path())
        return self.kept(request, scope=scope)

    def kept(self, request: HttpRequest, *, scope: str) -> HttpResponse:
        """Show the result of the newest verification, and whether a verification is running."""
        asked = LedgerVerification.objects.filter(scope=scope).order_by("-pk")
        newest = asked.first()
        found = asked.filter(finished_at__isnull=False, error="").first()
        context: dict[str, Any] = {
            **self.admin_site.each_context(request),
            "title": gettext("Verify the audit log"),
            "opts": self.opts,
            "scope": scope,
            "is_large": True,
            "size": verification.count_chain_rows(scope),
            "under_way": newest if newest and newest.finished_at is None else None,
            "was_lost": bool(newest and newest.error),
            "found": found,
            "breaks": [
                {"scope": place, "seq": seq, "reason": localize_break_reason(reason)}
                for place, seq, reason in (found.breaks if found else [])
            ],
            "broken": found.broken if found else 0,
            "told": [(gettext(what), n) for what, n in sorted(found.told.items())] if found else [],
            "chains": found.chains if found else 0,
            "rows": found.rows if found else 0,
        }
        return TemplateResponse(request, TEMPLATE, context)


def export_verifier_script(_scope: str) -> Iterable[str]:
    """Yield the script that verifies an export without the product."""
    return [Path(verify_ledger.__file__).read_text(encoding="utf-8")]


def export_log_lines(_scope: str) -> Iterable[str]:
    head = signing.find_newest_checkpoint()
    return files.list_log_lines(head.origin) if head else []


def require_last_timestamp() -> LedgerTimestamp:
    """Return the last timestamp from the authority. Raises `NoTimestamp`."""
    found = timestamps.find_last_timestamp()
    if found is None:
        raise NoTimestamp
    return found


def export_public_key(_scope: str) -> Iterable[str]:
    """Yield the newest public key in PEM format, for OpenSSL."""
    return [pem for _, _, pem in files.list_public_keys()[:1]]


OFFLINE: Mapping[str, Callable[[str], Iterable[str | bytes]]] = {
    "checkpoint.txt": lambda _scope: [upkeep.load_last_note()],
    "log.txt": export_log_lines,
    "ledger-key.pem": export_public_key,
    "stamped.txt": lambda _scope: [require_last_timestamp().checkpoint.note],
    STAMP: lambda _scope: [base64.b64decode(require_last_timestamp().response)],
    "verify_ledger.py": export_verifier_script,
    "chain.tlog-proof": lambda scope: [files.build_chain_proof(scope)[0]],
}

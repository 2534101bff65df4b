"""Read-only pages of the audit log: find events, view one, verify the chains."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC
from typing import Any
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy

from chats.admin.audit.break_reasons import localize_break_reason
from chats.admin.bases import ReadOnlyAdmin
from chats.admin.site import get_request_actor
from contextpolicy import verification
from contextpolicy.audit.reading import record_event_read, record_ledger_read
from contextpolicy.audit.search import HELP, LedgerSearch, parse_search_line
from contextpolicy.audit.search_values import SearchNotUnderstood
from contextpolicy.audit.sentences import describe_event, load_event_names
from contextpolicy.ledger import compute_event_hash, find_ledger_breaks
from contextpolicy.models import AuditEvent, EffectivePolicy, LedgerHead
from contextpolicy.wording import join_items

PAGE = 50
# Methods that show the list. Each use is recorded.
READS = ("GET", "HEAD")
# The search keys that have a separate field on the page.
FIELDS = ("person", "object")


class AuditEventAdmin(ReadOnlyAdmin):
    """Audit events. They contain ids, numbers and reasons, never text that users wrote."""

    change_list_template = "admin/contextpolicy/auditevent/change_list.html"
    fields = (
        "what",
        "when",
        "type",
        "actor_name",
        "chat_id",
        "turn_id",
        "details",
        "log_name",
        "seq",
        "previous_hash",
        "hash",
        "recomputed",
    )

    def get_urls(self) -> list[URLPattern]:
        page = self.admin_site.admin_view(self.verification)
        return [path("verify/", page, name="contextpolicy_ledger_verify"), *super().get_urls()]

    def verification(self, request: HttpRequest) -> HttpResponse:
        """Recompute all chains, or only the chain in `?scope=`, and show where each one breaks.

        Also compares stored content with the recorded hashes, within a time limit. Raises
        PermissionDenied without the permission to read the audit log.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        scope = request.GET.get("scope") or None
        heads, rows = LedgerHead.objects.all(), AuditEvent.objects.all()
        if scope:
            heads, rows = heads.filter(pk=scope), rows.filter(scope=scope)
        tally = Counter[str]()
        breaks = list(find_ledger_breaks(scope=scope, tally=tally))
        breaks += verification.verify_contents(
            [scope], tally=tally, seconds=verification.PAGE_SECONDS
        )
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Verify the audit log"),
            "opts": self.opts,
            "scope": scope or "",
            "breaks": [
                replace(found, reason=localize_break_reason(found.reason)) for found in breaks
            ],
            "broken": len({found.scope for found in breaks}),
            "told": [(gettext(name), count) for name, count in sorted(tally.items())],
            "chains": heads.count(),
            "rows": rows.count(),
        }
        return TemplateResponse(request, "admin/contextpolicy/auditevent/verify.html", context)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show a page of results for the search `?q=`, newest first, and record the access.

        Refuses methods other than GET and HEAD. Raises PermissionDenied without the permission to
        read the audit log.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method not in READS:
            return HttpResponseNotAllowed(READS)
        text = merge_search_fields(request.GET)
        problem, reason, search = "", "", parse_search_line("")
        try:
            search = parse_search_line(text)
        except SearchNotUnderstood as refusal:
            problem, reason = str(refusal), refusal.reason
        if not problem:
            record_ledger_read(
                actor=get_request_actor(request), search=search.text, now=timezone.now()
            )
        older = request.GET.get("older", "")
        rows = [] if problem else load_event_page(search, older=older)
        more = rows[PAGE - 1].pk if len(rows) > PAGE else None
        names = load_event_names(rows)
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("Audit log"),
            "opts": self.opts,
            "q": text,
            "problem": problem,
            "problem_reason": reason,
            "help": HELP,
            "range": search.range_words,
            "is_beyond": bool(older),
            "rows": [
                (row, names.actor(row.actor), describe_event(row, names=names))
                for row in rows[:PAGE]
            ],
            "older": urlencode({"q": text, "older": more}) if more else "",
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.change_list_template, context)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Show one event, and record the access."""
        self.record_opened_event(request, object_id)
        return super().change_view(request, object_id, form_url, extra_context)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show an event's history page, which only identifies the event, and record the access."""
        self.record_opened_event(request, object_id)
        return super().history_view(request, object_id, extra_context)

    def record_opened_event(self, request: HttpRequest, object_id: str) -> None:
        """Record that the user opens an event. Does nothing if the page will refuse to show it."""
        # Django refuses a POST without the permission to change rows, which no role includes.
        if request.method == "POST" or not self.has_view_permission(request):
            return
        event = self.get_object(request, unquote(object_id))
        if event is not None:
            record_event_read(event, actor=get_request_actor(request), now=timezone.now())

    @admin.display(description=gettext_lazy("Actor"), ordering="actor")
    def actor_name(self, event: AuditEvent) -> str:
        """Return the user's name followed by the stored id."""
        return load_event_names([event]).actor(event.actor)

    @admin.display(description=gettext_lazy("Description"))
    def what(self, event: AuditEvent) -> str:
        return describe_event(event, names=load_event_names([event]))

    @admin.display(description=gettext_lazy("Time (UTC)"), ordering="at")
    def when(self, event: AuditEvent) -> str:
        """Format the time of an event to the second."""
        return date_format(event.at.astimezone(UTC), gettext("d M Y H:i:s"))

    @admin.display(description=gettext_lazy("Audit log"), ordering="scope")
    def log_name(self, event: AuditEvent) -> str:
        """Return the scope of an event: `instance`, or `chat:` followed by the chat's id."""
        return event.scope

    @admin.display(description=gettext_lazy("Details"))
    def details(self, event: AuditEvent) -> SafeString:
        text = json.dumps(event.data, indent=2, sort_keys=True, ensure_ascii=False)
        return render_to_string("admin/contextpolicy/_json.html", {"text": text})

    @admin.display(description=gettext_lazy("Recomputed"), boolean=True)
    def recomputed(self, event: AuditEvent) -> bool:
        """Return True if the hash of the row's content equals the stored hash."""
        return compute_event_hash(event) == event.hash


class EffectivePolicyAdmin(ReadOnlyAdmin):
    """The pages of effective policies: each value and its source."""

    list_display = ("label", "digest")
    search_fields = ("label", "=digest")
    ordering = ("label", "digest")
    fields = ("label", "digest", "where_from", "changed_to_fit")

    @admin.display(description=gettext_lazy("Values"))
    def where_from(self, row: EffectivePolicy) -> SafeString:
        """List each field with its value and source."""
        rows = [
            {"field": name, "value": value, "source": row.sources[name]}
            for name, value in sorted(row.values.items())
        ]
        template = "admin/contextpolicy/effectivepolicy/_values.html"
        return render_to_string(template, {"values": rows})

    @admin.display(description=gettext_lazy("Adjusted values"))
    def changed_to_fit(self, row: EffectivePolicy) -> str:
        """List the values that were adjusted to the model."""
        lowered = [f"{name}: {said} → {used}" for name, said, used in row.adjusted]
        return join_items(lowered) or gettext("nothing")


def merge_search_fields(given: Mapping[str, str]) -> str:
    """Return the search query of a URL, with the values of its separate fields added."""
    fields = [f"{key}:{given[key].strip()}" for key in FIELDS if given.get(key, "").strip()]
    return " ".join([given.get("q", "").strip(), *fields]).strip()


def load_event_page(search: LedgerSearch, *, older: str) -> list[AuditEvent]:
    """Return one page of the events that are older than the event `older`.

    Returns one event more than fits on the page if another page follows.
    """
    rows = AuditEvent.objects.filter(search.condition)
    if older.isascii() and older.isdigit() and len(older) < 19:
        rows = rows.filter(pk__lt=int(older))
    return list(rows.order_by("-pk")[: PAGE + 1])

"""The audit ledger for people: find events, read one, verify the chains. Nothing can be changed."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.safestring import SafeString

from contextpolicy.admin.bases import ReadOnlyAdmin
from contextpolicy.ledger import EVENT_TYPES, INSTANCE, event_hash, verify
from contextpolicy.models import AuditEvent, EffectivePolicy, LedgerHead

SHORT = 140


class FamilyFilter(admin.SimpleListFilter):
    """A filter by family of events; it reads the closed vocabulary, not the table."""

    title = "event"
    parameter_name = "family"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the first words of the types."""
        families = {event.partition(".")[0] for event in EVENT_TYPES}
        return [(family, family.replace("_", " ")) for family in sorted(families)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the events of the family."""
        family = self.value()
        if not family:
            return queryset
        members = [event for event in EVENT_TYPES if event.startswith(f"{family}.")]
        return queryset.filter(type__in=members)


class ScopeFilter(admin.SimpleListFilter):
    """A filter by chain: the instance's or those of chats."""

    title = "scope"
    parameter_name = "scope"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the two choices."""
        return [(INSTANCE, "Instance"), ("chats", "Chats")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the events of the chosen chains."""
        if self.value() == INSTANCE:
            return queryset.filter(scope=INSTANCE)
        return queryset.exclude(scope=INSTANCE) if self.value() == "chats" else queryset


class ActorFilter(admin.SimpleListFilter):
    """A filter by kind of actor."""

    title = "actor"
    parameter_name = "actor"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return people and the product's own parts."""
        return [("user:", "People"), ("worker", "Worker"), ("system", "System")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Keep the events of these actors."""
        value = self.value()
        return queryset.filter(actor__startswith=value) if value else queryset


class AuditEventAdmin(ReadOnlyAdmin):
    """The ledger's rows. They hold ids, numbers and reasons, never what people wrote."""

    list_display = ("when", "type", "actor_name", "what", "place")
    list_display_links = ("when", "type")
    list_filter = (FamilyFilter, "at", ScopeFilter, ActorFilter)
    search_fields = ("chat_id",)
    search_help_text = "A type such as policy.assigned, a chat or turn id, a user name, user:<id>."
    change_list_template = "admin/contextpolicy/auditevent/change_list.html"
    fields = (
        "when",
        "type",
        "actor_name",
        "chat_id",
        "turn_id",
        "details",
        "scope",
        "seq",
        "previous_hash",
        "hash",
        "recomputed",
    )

    def get_urls(self) -> list[URLPattern]:
        """Add the page of the verification."""
        page = self.admin_site.admin_view(self.verification)
        return [path("verify/", page, name="contextpolicy_ledger_verify"), *super().get_urls()]

    def verification(self, request: HttpRequest) -> HttpResponse:
        """Recompute the chains, or the one of `?scope=`, and show where each breaks.

        Raises PermissionDenied for who may not read the ledger.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        scope = request.GET.get("scope") or None
        heads, rows = LedgerHead.objects.all(), AuditEvent.objects.all()
        if scope:
            heads, rows = heads.filter(pk=scope), rows.filter(scope=scope)
        told = Counter[str]()
        breaks = list(verify(scope=scope, told=told))
        context = {
            **self.admin_site.each_context(request),
            "title": "Verify the ledger",
            "opts": self.opts,
            "scope": scope or "",
            "breaks": breaks,
            "broken": len({found.scope for found in breaks}),
            "told": sorted(told.items()),
            "chains": heads.count(),
            "rows": rows.count(),
        }
        return TemplateResponse(request, "admin/contextpolicy/auditevent/verify.html", context)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search by exact type, chat or turn id, or by the person who acted."""
        term = search_term.strip()
        if not term:
            return queryset, False
        found = _as_uuid(term)
        if found is not None:
            return queryset.filter(Q(chat_id=found) | Q(turn_id=found)), False
        if term in EVENT_TYPES:
            return queryset.filter(type=term), False
        people = User.objects.filter(username=term).values_list("pk", flat=True)
        return queryset.filter(actor__in=[term, *(f"user:{pk}" for pk in people)]), False

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list, with the names of the page's people fetched at once."""
        changes = super().get_changelist_instance(request)
        rows = list(changes.result_list)
        _name_actors(rows)
        changes.result_list = rows
        return changes

    @admin.display(description="Actor", ordering="actor")
    def actor_name(self, event: AuditEvent) -> str:
        """Name the person, beside the id that the ledger holds."""
        if not hasattr(event, "named_actor"):
            _name_actors([event])
        return str(getattr(event, "named_actor", event.actor))

    @admin.display(description="Time (UTC)", ordering="at")
    def when(self, event: AuditEvent) -> str:
        """Write the time to the second."""
        return f"{event.at.astimezone(UTC):%d %b %Y %H:%M:%S}"

    @admin.display(description="What happened")
    def what(self, event: AuditEvent) -> str:
        """Write the data in short."""
        told = ", ".join(_told(event.data))
        return told if len(told) <= SHORT else f"{told[: SHORT - 1]}…"

    @admin.display(description="Row")
    def place(self, event: AuditEvent) -> str:
        """Name the chain and the place in it."""
        chain = "instance" if event.scope == INSTANCE else f"chat {str(event.chat_id)[:8]}…"
        return f"{chain} #{event.seq}"

    @admin.display(description="Details")
    def details(self, event: AuditEvent) -> SafeString:
        """Show the data as it is."""
        text = json.dumps(event.data, indent=2, sort_keys=True, ensure_ascii=False)
        return render_to_string("admin/contextpolicy/_json.html", {"text": text})

    @admin.display(description="Recomputed", boolean=True)
    def recomputed(self, event: AuditEvent) -> bool:
        """Tell whether the content still gives the stored hash."""
        return event_hash(event) == event.hash


class EffectivePolicyAdmin(ReadOnlyAdmin):
    """The pages of effective policies: each value and where it came from."""

    list_display = ("label", "digest")
    search_fields = ("label", "=digest")
    ordering = ("label", "digest")
    fields = ("label", "digest", "where_from", "changed_to_fit")

    @admin.display(description="Values")
    def where_from(self, row: EffectivePolicy) -> SafeString:
        """Show each field with its value and source."""
        told = [
            {"field": name, "value": value, "source": row.sources[name]}
            for name, value in sorted(row.values.items())
        ]
        template = "admin/contextpolicy/effectivepolicy/_values.html"
        return render_to_string(template, {"values": told})

    @admin.display(description="Lowered to fit")
    def changed_to_fit(self, row: EffectivePolicy) -> str:
        """List what was lowered because the values could not work together."""
        lowered = [f"{name}: {said} → {used}" for name, said, used in row.adjusted]
        return ", ".join(lowered) or "nothing"


def _name_actors(events: Sequence[AuditEvent]) -> None:
    """Set `named_actor` on each event, in one query for all."""
    ids = {int(found[1]) for event in events for found in _user_ids(event.actor)}
    names = {person.pk: person.get_username() for person in User.objects.filter(pk__in=ids)}
    for event in events:
        name = next((names.get(int(found[1])) for found in _user_ids(event.actor)), None)
        event.named_actor = f"{name} ({event.actor})" if name else event.actor  # type: ignore[attr-defined]  # a note for the page, not a column


def _user_ids(actor: str) -> Iterable[re.Match[str]]:
    return re.finditer(r"^user:([0-9]{1,18})$", actor)


def _told(data: Mapping[str, Any]) -> Iterator[str]:
    """Write each entry in words: a change as old → new.

    Empty entries are left out.
    """
    for name, value in data.items():
        if name == "changes" and isinstance(value, dict):
            yield from _told(value)
        elif isinstance(value, dict) and value.keys() <= {"from", "to"}:
            old, new = (_short(value.get(side)) for side in ("from", "to"))
            if old != new:
                yield f"{name} {old} → {new}"
        elif value not in (None, "", [], {}):
            yield f"{name} {_short(value)}"


def _short(value: object) -> str:
    if value in (None, "", [], {}):
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

"""Audit log endpoints. Auditors can read all events, other users those of their chats."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.audit.audit_inputs import EventsQuery
from chats.api.audit.audit_outputs import EventOut
from chats.api.core.base import Endpoint
from chats.api.core.inputs import PlainText, Strict
from chats.api.core.outputs import build_page_serializer
from chats.api.policies.policy_inputs import validate_storable_texts
from chats.ground.refusals import Refusal
from chats.record import access, audit_access
from chats.streams.ledger import build_export_response
from contextpolicy.audit.export import FORMS, start_ledger_export
from contextpolicy.audit.reading import record_ledger_read
from contextpolicy.audit.search import (
    LONGEST,
    LedgerSearch,
    format_search_line,
    parse_search_line,
)
from contextpolicy.audit.search_values import SearchNotUnderstood
from contextpolicy.models import AuditEvent

READ = "contextpolicy.view_auditevent"


class InvalidSearch(Refusal):
    """The search query is invalid. The error message names the faulty term and the reason."""

    code = SearchNotUnderstood.code
    sentence = "{reason}"
    param = "q"


class EventViewSet(Endpoint):
    serializer_class = EventOut
    read_scope = "audit:read"

    @extend_schema(
        summary="List audit events",
        parameters=[EventsQuery],
        responses=build_page_serializer(EventOut),
    )
    def list(self, request: Request) -> Response:
        """List audit events, newest first.

        Auditors receive all events, and the audit log records each of their searches once within
        30 minutes. Other users receive the events of their chats that are not deleted; the
        instance can hide events about auditors' access from them (`OWNERS_SEE_READINGS=0`). Raises
        `InvalidSearch` for an invalid `q`.
        """
        query = EventsQuery.read(request.query_params.dict())
        search = parse_search_query(query.pop("q", ""), names=self.user.has_perm(READ))
        filters: dict[str, Any] = {
            name: query.pop(name) for name in ("type", "chat", "since") if name in query
        }
        if self.user.has_perm(READ):
            asked = {"event": filters.get("type"), "chat": filters.get("chat")}
            said = " ".join(filter(None, [format_search_line(asked.items()), search.text]))
            record_ledger_read(actor=self.actor, search=said, now=timezone.now())
        return self.respond_page(
            filter_events(list_visible_events(self.user).filter(search.condition), **filters),
            order=("-id",),
            name=f"events:{self.user.pk}:{sorted(filters.items())}:{search.text}",
            query=query,
        )


class NewLedgerExport(Strict):
    """The format of an export, and a query that selects its events."""

    form = serializers.ChoiceField(
        choices=list(FORMS),
        default="jsonl",
        help_text=(
            "`jsonl`: one event per line, exactly as hashed. The last line contains the search, "
            "the numbers of events and of audit logs, the SHA-256 of the lines before it, and "
            "the latest checkpoint. `csv`: for spreadsheets, without this last line."
        ),
    )
    q = PlainText(
        default="",
        max_length=LONGEST,
        help_text="Search query, in the syntax of `q` in the list of events. Empty: all events.",
    )


class LedgerExportViewSet(Endpoint):
    write_scope = "audit:read"
    permissions: ClassVar = {"export": [READ]}
    # Each export adds an audit event, so a repeated request must run again.
    repeatable = ("export",)

    @extend_schema(
        summary="Export the audit log",
        request=NewLedgerExport,
        responses={
            (200, "application/jsonl"): OpenApiTypes.STR,
            (200, "text/csv"): OpenApiTypes.STR,
        },
    )
    @action(detail=False, methods=["post"])
    def export(self, request: Request) -> StreamingHttpResponse:
        """Export the audit events that match a query, as a stream.

        The audit log records the start of the export, and its end as `ledger.exported` with the
        number of events. A `jsonl` file without its last line is incomplete. Raises `Forbidden`,
        `NotFound`, `InvalidCharacter` and `InvalidSearch`.
        """
        asked = validate_storable_texts(NewLedgerExport.read(request.data))
        search = parse_search_query(asked["q"], names=True)
        now = timezone.now()
        return build_export_response(
            start_ledger_export(search=search, form=asked["form"], actor=self.actor, now=now)
        )


def parse_search_query(text: str, *, names: bool) -> LedgerSearch:
    """Parse a search query. `names`: the user may learn which user names exist.

    Raises `InvalidSearch`.
    """
    try:
        return parse_search_line(text, names=names)
    except SearchNotUnderstood as refusal:
        raise InvalidSearch(reason=str(refusal)) from refusal


def list_visible_events(user: User) -> QuerySet[AuditEvent]:
    """Return all events for auditors; for other users, the events of their current chats.

    Other users get events about auditors' access only with `OWNERS_SEE_READINGS`.
    """
    if user.has_perm(READ):
        return AuditEvent.objects.all()
    own = AuditEvent.objects.filter(chat_id__in=access.get_visible_chats(user=user).values("pk"))
    return own if settings.OWNERS_SEE_READINGS else own.exclude(type__in=audit_access.CONTENT)


def filter_events(
    rows: QuerySet[AuditEvent],
    *,
    type: str | None = None,  # noqa: A002  # the filter's public name
    chat: UUID | None = None,
    since: datetime | None = None,
) -> QuerySet[AuditEvent]:
    """Return the events of this type, of this chat, and since `since`. None: no filter."""
    if type is not None:
        rows = rows.filter(type=type)
    if chat is not None:
        rows = rows.filter(chat_id=chat)
    if since is not None:
        rows = rows.filter(at__gte=since)
    return rows

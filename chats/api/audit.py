"""Reads the audit ledger: all of it for auditors, one's own chats for everybody."""

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
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import EventsQuery, PlainText, Strict
from chats.api.outputs import EventOut, items, listed
from chats.api.pages import page_of
from chats.api.policy_access import require
from chats.api.policy_inputs import storable
from chats.api.schema import READ_ERRORS, answers
from chats.ground.refusals import Refusal
from chats.record import access, reading
from chats.streams.ledger import streamed
from contextpolicy.audit.export import FORMS, begin
from contextpolicy.audit.reading import note
from contextpolicy.audit.search import (
    LONGEST,
    LedgerSearch,
    SearchNotUnderstood,
    joined,
    understood,
)
from contextpolicy.models import AuditEvent

READ = "contextpolicy.view_auditevent"


class NotUnderstood(Refusal):
    """A search line of the ledger cannot be read; the sentence says which part, and why."""

    code = SearchNotUnderstood.code
    sentence = "{reason}"
    param = "q"


class Events(Endpoint):
    """Audit events."""

    scopes: ClassVar = {"GET": "audit:read"}

    @extend_schema(
        operation_id="audit_events_list",
        parameters=[EventsQuery],
        responses=answers({200: listed(EventOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the events, newest first."""
        query = EventsQuery.read(request.query_params.dict())
        user = person(request)
        search = searched(query.pop("q", ""), names=user.has_perm(READ))
        filters: dict[str, Any] = {
            name: query.pop(name) for name in ("type", "chat", "since") if name in query
        }
        if user.has_perm(READ):
            asked = {"event": filters.get("type"), "chat": filters.get("chat")}
            said = " ".join(filter(None, [joined(asked.items()), search.text]))
            note(actor=f"user:{user.pk}", search=said, now=timezone.now())
        page = page_of(
            chosen(visible_to(user).filter(search.condition), **filters),
            order=("-id",),
            name=f"events:{user.pk}:{sorted(filters.items())}:{search.text}",
            **query,
        )
        return Response({"data": items(EventOut, page.rows), "next_cursor": page.next_cursor})


class NewLedgerExport(Strict):
    """The rows of the ledger that are exported, and how."""

    form = serializers.ChoiceField(
        choices=list(FORMS),
        default="jsonl",
        help_text="`jsonl`: each line is exactly what is hashed, the last one counts them and has"
        " the last checkpoint; `csv`: to read.",
    )
    q = PlainText(default="", max_length=LONGEST, help_text="A search line. Empty: all of it.")


class LedgerExport(Endpoint):
    """The ledger as a file."""

    scopes: ClassVar = {"POST": "audit:read"}
    # It writes nothing but that somebody asked, each time.
    knows_repetitions = True

    @extend_schema(
        operation_id="audit_export",
        request=NewLedgerExport,
        responses=answers(
            {
                (200, "application/jsonl"): OpenApiTypes.STR,
                (200, "text/csv"): OpenApiTypes.STR,
            }
        ),
    )
    def post(self, request: Request) -> StreamingHttpResponse:
        """Read what a search line finds, piece by piece, however much it is.

        The ledger has a row before the first piece and one behind the last. A file without a last
        line that counts was cut off. Raises `Forbidden`, `NotFound`,
        `InvalidCharacter` and `NotUnderstood`.
        """
        user = person(request)
        require(user, "view_auditevent")
        asked = storable(NewLedgerExport.read(request.data))
        search = searched(asked["q"], names=True)
        now = timezone.now()
        return streamed(begin(search=search, form=asked["form"], actor=f"user:{user.pk}", now=now))


def searched(text: str, *, names: bool) -> LedgerSearch:
    """Return what a search line asks for. Raises `NotUnderstood`."""
    try:
        return understood(text, names=names)
    except SearchNotUnderstood as refusal:
        raise NotUnderstood(reason=str(refusal)) from refusal


def visible_to(user: User) -> QuerySet[AuditEvent]:
    """Return every event to readers of the ledger, to others those of their present chats."""
    if user.has_perm(READ):
        return AuditEvent.objects.all()
    own = AuditEvent.objects.filter(chat_id__in=access.chats_visible_to(user=user).values("pk"))
    return own if settings.OWNERS_SEE_READINGS else own.exclude(type__in=reading.CONTENT)


def chosen(
    rows: QuerySet[AuditEvent],
    *,
    type: str | None = None,  # noqa: A002  # the filter's public name
    chat: UUID | None = None,
    since: datetime | None = None,
) -> QuerySet[AuditEvent]:
    """Keep the rows that pass every given filter."""
    if type is not None:
        rows = rows.filter(type=type)
    if chat is not None:
        rows = rows.filter(chat_id=chat)
    if since is not None:
        rows = rows.filter(at__gte=since)
    return rows

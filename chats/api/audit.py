"""Reads the audit ledger: all of it for auditors, one's own chats for everybody."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import EventsQuery
from chats.api.outputs import EventOut, items, listed
from chats.api.pages import page_of
from chats.api.schema import READ_ERRORS, answers
from chats.record import access
from contextpolicy.models import AuditEvent


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
        filters: dict[str, Any] = {
            name: query.pop(name) for name in ("type", "chat", "since") if name in query
        }
        page = page_of(
            chosen(visible_to(person(request)), **filters),
            order=("-id",),
            name=f"events:{request.user.pk}:{sorted(filters.items())}",
            **query,
        )
        return Response({"data": items(EventOut, page.rows), "next_cursor": page.next_cursor})


def visible_to(user: User) -> QuerySet[AuditEvent]:
    """Return every event to readers of the ledger, to others those of their present chats."""
    if user.has_perm("contextpolicy.view_auditevent"):
        return AuditEvent.objects.all()
    return AuditEvent.objects.filter(chat_id__in=access.chats_visible_to(user=user).values("pk"))


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

"""The page that lists auditors' accesses to the content of a user's chats."""

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.models import Chat
from chats.record import audit_access
from chats.web.auth import PersonRequest, signed_in
from contextpolicy.audit.phrases import PHRASES
from contextpolicy.audit.sentences import load_event_names
from contextpolicy.models import AuditEvent

SHOWN = 100


@dataclass(frozen=True, slots=True)
class OwnersReading:
    """An access event of the ledger, as shown to the chat's owner."""

    event: AuditEvent
    what: str
    who: str
    chat: Chat


@require_GET
@signed_in
def access_log(request: PersonRequest) -> HttpResponse:
    """List accesses by auditors to the user's chats, newest first."""
    events = list(audit_access.list_readings_by_others(request.user)[:SHOWN])
    chats = Chat.objects.in_bulk({event.chat_id for event in events if event.chat_id})
    names = load_event_names(events)
    context = {
        "is_told": settings.OWNERS_SEE_READINGS,
        "shown": SHOWN,
        "rows": [
            OwnersReading(
                event,
                str(PHRASES.get(event.type, event.type)),
                names.person(audit_access.parse_actor_id(event.actor)),
                chats[event.chat_id],
            )
            for event in events
            # A chat may be erased between the queries.
            if event.chat_id in chats
        ],
    }
    return render(request, "readings.html", context)

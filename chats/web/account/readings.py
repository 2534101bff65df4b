"""The page that says who read what in a person's chats."""

from dataclasses import dataclass

from django.conf import settings
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.models import Chat
from chats.record import reading
from chats.web.auth import PersonRequest, signed_in
from contextpolicy.audit.phrases import PHRASES
from contextpolicy.audit.sentences import names_in
from contextpolicy.models import AuditEvent

SHOWN = 100


@dataclass(frozen=True, slots=True)
class OwnersReading:
    """One row of the ledger as its chat's owner reads it."""

    event: AuditEvent
    what: str
    who: str
    chat: Chat


@require_GET
@signed_in
def readings(request: PersonRequest) -> HttpResponse:
    """List who read what, the newest first."""
    events = list(reading.told_to(request.user)[:SHOWN])
    chats = Chat.objects.in_bulk({event.chat_id for event in events if event.chat_id})
    names = names_in(events)
    context = {
        "is_told": settings.OWNERS_SEE_READINGS,
        "shown": SHOWN,
        "rows": [
            OwnersReading(
                event,
                PHRASES.get(event.type, event.type),
                names.person(reading.number_of(event.actor)),
                chats[event.chat_id],
            )
            for event in events
            # One that is erased in this moment is gone.
            if event.chat_id in chats
        ],
    }
    return render(request, "readings.html", context)

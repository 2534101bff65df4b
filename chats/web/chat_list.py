"""Further pages of the chat list, loaded on demand."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.models import Chat
from chats.record import access
from chats.web.auth import PersonRequest, signed_in
from chats.web.shell import list_after, list_for, parse_list_place


@require_GET
@signed_in
def chat_list(request: PersonRequest) -> HttpResponse:
    """Show the first or a later page of the chat list, as a partial or as a whole page."""
    after = parse_list_place(request.GET.get("after", ""))
    current = parse_open_chat_id(request)
    found = (
        list_after(user=request.user, after=after, current=current)
        if after
        else list_for(user=request.user, current=find_open_chat(request, current))
    )
    template = "chats/_chat_groups.html" if request.htmx else "chats/list.html"
    return render(request, template, {"list": found})


def find_open_chat(request: PersonRequest, key: uuid.UUID | None) -> Chat | None:
    """Return the chat with this ID if the user may see it; None otherwise, or without an ID."""
    return access.get_visible_chats(user=request.user).filter(pk=key).first() if key else None


def parse_open_chat_id(request: PersonRequest) -> uuid.UUID | None:
    """Return the ID of the open chat from the query parameter `current`.

    None if it is missing or not a UUID.
    """
    try:
        return uuid.UUID(request.GET.get("current", ""))
    except ValueError:
        return None

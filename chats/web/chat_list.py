"""More of the chat list than a page shows."""

import uuid

from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from chats.web.doors import PersonRequest, signed_in
from chats.web.shell import list_after, list_for, place_in


@require_GET
@signed_in
def chat_list(request: PersonRequest) -> HttpResponse:
    """The next chats of the person's list, as a part of the sidebar or as a page of its own."""
    after = place_in(request.GET.get("after", ""))
    current = chat_in(request)
    found = (
        list_after(user=request.user, after=after, current=current)
        if after
        else list_for(user=request.user)
    )
    template = "chats/_chat_groups.html" if request.htmx else "chats/list.html"
    return render(request, template, {"list": found})


def chat_in(request: PersonRequest) -> uuid.UUID | None:
    """The chat that the list stands beside, where the address names one."""
    try:
        return uuid.UUID(request.GET.get("current", ""))
    except ValueError:
        return None

"""The answer to everything that changes the end of a thread: the new end, and what depends on it.

A page that follows along gets the messages that became still, the tail, and out of band the meter,
the send button and the chat's line in the list. A page without scripts is sent to the chat again.
"""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import HttpResponseClientRefresh

from chats import library
from chats.models import Chat
from chats.web.composer import composer_for, meter_view
from chats.web.doors import PersonRequest
from chats.web.thread import Stale, thread_from


def tail_update(request: PersonRequest, chat: Chat, *, sent: bool = False) -> HttpResponse:
    """The thread's end; with `sent` the message box comes back empty too."""
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#tail")
    try:
        thread = thread_from(chat=chat, start=seq_from(request, "from") or 1)
    except Stale:
        return HttpResponseClientRefresh()
    library.mark_read(chat=chat)
    chat.is_replying = thread.is_replying  # type: ignore[attr-defined]  # as `chats_of` annotates
    meter = meter_view(chat=chat)
    composer = composer_for(
        user=request.user, chat=chat, limit=meter.limit, is_replying=thread.is_replying
    )
    return render(
        request,
        "chats/_tail_update.html",
        {"chat": chat, "thread": thread, "meter": meter, "composer": composer, "sent": sent},
    )


def seq_from(request: PersonRequest, name: str) -> int | None:
    """A position from the query or the form; None when there is none or it is no number."""
    value = request.GET.get(name) or request.POST.get(name) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 18 else None

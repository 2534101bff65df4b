"""Updates of the end of a thread: the new end, and what depends on it.

A page that follows along gets the messages that are now final, the tail, and out of band the meter,
the send button and the chat's line in the list. When compaction markers or rails have changed it is
told how each message that it shows stands now; only a page on another path, or one that is far
behind, gets the thread anew. A page without scripts is redirected to the chat.
"""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import reswap, retarget, trigger_client_event

from chats.actions import lifecycle
from chats.models import Chat
from chats.web.auth import PersonRequest
from chats.web.thread.composer import composer_for, meter_view
from chats.web.thread.thread import ShownState, Stale, ThreadPage, thread_from, thread_of
from chats.web.thread.versions import branches_of


def tail_update(request: PersonRequest, chat: Chat, *, sent: bool = False) -> HttpResponse:
    """Render the thread's end; with `sent` the message box comes back empty too."""
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#tail")
    thread = changed_part(request, chat, shown=shown_on(request))
    return update(request, chat, thread, sent=sent)


def thread_update(request: PersonRequest, chat: Chat, *, place: str) -> HttpResponse:
    """Render what is different after something changed in the middle of the thread.

    `place`: the id of the part it happened to; the reader finds their place there again.
    """
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + f"#{place}")
    shown = shown_on(request)
    thread = changed_part(request, chat, shown=shown) if shown else None
    response = update(request, chat, thread)
    if thread is not None:
        response = reswap(retarget(response, "#tail"), "outerHTML")
    return placed(response, place)


def changed_part(
    request: PersonRequest, chat: Chat, *, shown: ShownState | None
) -> ThreadPage | None:
    """Return the thread from where the page's tail began; None if the page needs all of it."""
    start = seq_from(request, "from") or 1
    try:
        return thread_from(chat=chat, user=request.user, start=start, shown=shown)
    except Stale:
        return None


def placed(response: HttpResponse, place: str) -> HttpResponse:
    """Let the page put the focus back where it was, or on the part with this id."""
    return trigger_client_event(response, "placed", {"id": place}, after="settle")


def update(
    request: PersonRequest, chat: Chat, part: ThreadPage | None, *, sent: bool = False
) -> HttpResponse:
    """Render a part of the thread, or all of it, with what depends on it out of band."""
    thread = part or thread_of(chat=chat, user=request.user)
    lifecycle.mark_read(chat=chat)
    chat.is_replying = thread.is_replying  # type: ignore[attr-defined]  # as `page_of` annotates
    meter = meter_view(chat=chat, thread=thread)
    composer = composer_for(
        user=request.user,
        chat=chat,
        limit=meter.limit,
        is_replying=thread.is_replying,
        choice=thread.ground.choice,
    )
    is_whole = part is None
    context = {
        "chat": chat,
        "thread": thread,
        "meter": meter,
        "composer": composer,
        "sent": sent,
        "whole": is_whole,
        "branches": branches_of(chat) if is_whole and thread.ground.facts.branches > 1 else (),
        "compaction_count": thread.ground.facts.compactions,
    }
    response = render(request, "chats/_tail_update.html", context)
    if is_whole:
        # The thread is swapped out of band; the end that was asked for is part of it.
        return reswap(response, "none")
    # The message box asks for no place of its own: the tail that it saw when it sent may have been
    # replaced meanwhile. Requests from a part of the tail are left out when that part is gone.
    return retarget(response, "#tail") if sent else response


def shown_on(request: PersonRequest) -> ShownState | None:
    """Return what the page shows; None for one that shows no end of a thread."""
    state = seen(request)
    start = seq_from(request, "from") or 1
    top = seq_from(request, "top") or start
    return ShownState(state, top=min(top, start)) if state else None


def seen(request: PersonRequest) -> str:
    """Return the state of markers and rails that the page was drawn from; "" if it has none."""
    return request.GET.get("seen") or request.POST.get("seen") or ""


def seq_from(request: PersonRequest, name: str) -> int | None:
    """Return a position from the query or the form; None if there is none or it is no number."""
    value = request.GET.get(name) or request.POST.get(name) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 18 else None

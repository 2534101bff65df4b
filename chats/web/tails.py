"""The answer to everything that changes the end of a thread: the new end, and what depends on it.

A page that follows along gets the messages that became still, the tail, and out of band the meter,
the send button and the chat's line in the list. When seams or rails have changed it gets the whole
thread in place of its own. A page without scripts is sent to the chat again.
"""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django_htmx.http import reswap, retarget, trigger_client_event

from chats import library
from chats.models import Chat
from chats.web.composer import composer_for, meter_view
from chats.web.doors import PersonRequest
from chats.web.looks import Look, next_look
from chats.web.thread import Stale, Thread, thread_from, thread_of
from chats.web.versions import branches_of


def tail_update(
    request: PersonRequest, chat: Chat, *, sent: bool = False, looks: int = 0
) -> HttpResponse:
    """The thread's end; with `sent` the message box comes back empty too.

    `looks`: how often the page has looked for a summary since its last reply.
    """
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#tail")
    try:
        start = seq_from(request, "from") or 1
        thread = thread_from(chat=chat, user=request.user, start=start)
        is_whole = seen(request) not in {"", thread.state}
    except Stale:
        is_whole = True
    if is_whole:
        thread = thread_of(chat=chat, user=request.user)
    return update(request, chat, thread, is_whole=is_whole, sent=sent, looks=looks)


def thread_update(request: PersonRequest, chat: Chat, *, place: str) -> HttpResponse:
    """The whole thread after something changed in the middle of it.

    `place`: the id of the part it happened to; the reader finds their place there again.
    """
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + f"#{place}")
    thread = thread_of(chat=chat, user=request.user)
    response = update(request, chat, thread, is_whole=True)
    return placed(response, place)


def placed(response: HttpResponse, place: str) -> HttpResponse:
    """The same answer; the page puts the focus back where it was, or on the part with this id."""
    return trigger_client_event(response, "placed", {"id": place}, after="settle")


def update(
    request: PersonRequest,
    chat: Chat,
    thread: Thread,
    *,
    is_whole: bool,
    sent: bool = False,
    looks: int = 0,
) -> HttpResponse:
    """The end of the thread, or all of it, with what depends on it out of band."""
    library.mark_read(chat=chat)
    chat.is_replying = thread.is_replying  # type: ignore[attr-defined]  # as `chats_of` annotates
    meter = meter_view(chat=chat, thread=thread)
    composer = composer_for(
        user=request.user,
        chat=chat,
        limit=meter.limit,
        is_replying=thread.is_replying,
        choice=thread.ground.choice,
    )
    context = {
        "chat": chat,
        "thread": thread,
        "look": look_of(thread, looks=looks),
        "meter": meter,
        "composer": composer,
        "sent": sent,
        "whole": is_whole,
        "branches": branches_of(chat) if is_whole and thread.ground.facts.branches > 1 else (),
        "compaction_count": thread.ground.facts.compactions,
    }
    response = render(request, "chats/_tail_update.html", context)
    if is_whole:
        # The thread takes its place out of band, the end that was asked for is part of it.
        return reswap(response, "none")
    # htmx looks up a target that is named here when the answer is there: the tail that the message
    # box saw when it sent may have been replaced meanwhile. (Asked for by a part of the tail, it
    # would be an error that the part is gone.)
    return retarget(response, "#tail") if sent else response


def look_of(thread: Thread, *, looks: int = 0) -> Look | None:
    """The next look of a page with this thread; none while a reply is followed anyway."""
    if thread.is_replying:
        return None
    return next_look(
        number=looks, turn=thread.turn, is_preparing=thread.is_preparing, now=timezone.now()
    )


def seen(request: PersonRequest) -> str:
    """The state of seams and rails that the page was drawn from; empty when it does not say."""
    return request.GET.get("seen") or request.POST.get("seen") or ""


def seq_from(request: PersonRequest, name: str) -> int | None:
    """A position from the query or the form; None when there is none or it is no number."""
    value = request.GET.get(name) or request.POST.get(name) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 18 else None

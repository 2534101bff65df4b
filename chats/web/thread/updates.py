"""Updates of the end of a thread for open pages.

A page receives the messages that have become final and the tail. Out of band, it receives the
meter, the send button and the chat's line in the list. If compaction markers or rails changed, it
also receives the new state of each message it shows. A page on another path, or far behind,
receives the whole thread. A page without scripts is redirected to the chat.
"""

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import reswap, retarget, trigger_client_event

from chats.actions import lifecycle
from chats.models import Chat
from chats.web.auth import PersonRequest
from chats.web.thread.composer import build_composer, build_meter_view
from chats.web.thread.thread import (
    ShownState,
    Stale,
    ThreadPage,
    load_thread_page,
    load_thread_since,
)
from chats.web.thread.versions import list_branch_links


def render_tail_update(request: PersonRequest, chat: Chat, *, sent: bool = False) -> HttpResponse:
    """Render the end of the thread. `sent` also renders an empty message box."""
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#tail")
    thread = load_changed_part(request, chat, shown=parse_shown_state(request))
    return render_thread_part(request, chat, thread, sent=sent)


def render_thread_update(request: PersonRequest, chat: Chat, *, place: str) -> HttpResponse:
    """Render the changes after an action in the middle of the thread.

    `place`: ID of the changed element, which receives the focus.
    """
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + f"#{place}")
    shown = parse_shown_state(request)
    thread = load_changed_part(request, chat, shown=shown) if shown else None
    response = render_thread_part(request, chat, thread)
    if thread is not None:
        response = reswap(retarget(response, "#tail"), "outerHTML")
    return restore_focus(response, place)


def load_changed_part(
    request: PersonRequest, chat: Chat, *, shown: ShownState | None
) -> ThreadPage | None:
    """Return the thread from the start of the page's tail.

    None if the page needs the whole thread.
    """
    start = parse_seq(request, "from") or 1
    try:
        return load_thread_since(chat=chat, user=request.user, start=start, shown=shown)
    except Stale:
        return None


def restore_focus(response: HttpResponse, place: str) -> HttpResponse:
    """Make the page focus the element with this ID.

    An empty ID restores the focus of the previously focused element.
    """
    return trigger_client_event(response, "placed", {"id": place}, after="settle")


def render_thread_part(
    request: PersonRequest, chat: Chat, part: ThreadPage | None, *, sent: bool = False
) -> HttpResponse:
    """Render a part of the thread or all of it, with out-of-band updates.

    Marks the chat as read.
    """
    thread = part or load_thread_page(chat=chat, user=request.user)
    lifecycle.mark_read(chat=chat)
    chat.is_replying = thread.is_replying  # type: ignore[attr-defined]  # by `paginate_chats`
    meter = build_meter_view(chat=chat, thread=thread)
    composer = build_composer(
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
        "branches": list_branch_links(chat)
        if is_whole and thread.ground.facts.branches > 1
        else (),
        "compaction_count": thread.ground.facts.compactions,
    }
    response = render(request, "chats/_tail_update.html", context)
    if is_whole:
        # The thread is swapped out of band and includes the requested end.
        return reswap(response, "none")
    # The message box sets no target, because the tail it was rendered with may be replaced.
    # Requests from inside the tail are dropped if that part is gone.
    return retarget(response, "#tail") if sent else response


def parse_shown_state(request: PersonRequest) -> ShownState | None:
    """Return the state from which the page was rendered, or None."""
    state = parse_seen_state(request)
    start = parse_seq(request, "from") or 1
    top = parse_seq(request, "top") or start
    return ShownState(state, top=min(top, start)) if state else None


def parse_seen_state(request: PersonRequest) -> str:
    """Return the state of markers and rails with which the page was rendered, or ""."""
    return request.GET.get("seen") or request.POST.get("seen") or ""


def parse_seq(request: PersonRequest, name: str) -> int | None:
    """Return a seq from the query or the form, or None if it is missing or not a number."""
    value = request.GET.get(name) or request.POST.get(name) or ""
    return int(value) if value.isascii() and value.isdigit() and len(value) < 18 else None

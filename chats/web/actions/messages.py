"""Actions on a message: pin, exclude, edit, regenerate, branch."""

import functools
import uuid
from collections.abc import Callable

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods
from django_htmx.http import reswap, retarget

from chats.actions import branching, marks
from chats.ground.refusals import Refusal
from chats.models import Message
from chats.record import access
from chats.web.actions.in_place import chat_action, render_changed_thread
from chats.web.auth import PersonRequest, View, count_message, format_actor, signed_in
from chats.web.thread.composer import build_meter_view
from chats.web.thread.message_acts import MessageActs
from chats.web.thread.message_forms import MessageForm
from chats.web.thread.thread import find_message_entry
from chats.web.thread.updates import parse_seen_state, restore_focus


@require_GET
@signed_in
def message_page(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Show one message: its current state in the thread, or a page with its actions."""
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    return (
        render_flagged_message(request, chat_id, row)
        if request.htmx
        else render_message_page(request, chat_id, row)
    )


def render_message_page(request: PersonRequest, chat_id: uuid.UUID, row: Message) -> HttpResponse:
    """Render the message's page, or redirect to the chat if no thread shows it."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    entry, _ = find_message_entry(chat=chat, user=request.user, message=row)
    if entry is None:
        return redirect_to_message(row)
    acts = MessageActs(row.pk, row.turn_id, frozenset(entry.offered))
    context = {"chat": chat, "message": row, "entry": entry, "acts": acts}
    return render(request, "chats/message.html", context)


@require_GET
@signed_in
def message_source(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Return the message's source text, for copying."""
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    return HttpResponse(row.text, content_type="text/plain; charset=utf-8")


def redirect_to_message(row: Message) -> HttpResponse:
    """Redirect to the chat, scrolled to the message."""
    return redirect(reverse("chats:chat", args=[row.branch.chat_id]) + f"#message-{row.pk}")


def render_flagged_message(
    request: PersonRequest, chat_id: uuid.UUID, row: Message
) -> HttpResponse:
    """Render the message with its new flags and the meter.

    If compaction markers changed too, renders the whole thread.
    """
    if not request.htmx:
        return redirect_to_message(row)
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    entry, state = find_message_entry(chat=chat, user=request.user, message=row)
    if entry is None or parse_seen_state(request) not in {"", state}:
        return render_changed_thread(request, chat_id, place=f"message-{row.pk}")
    context = {"chat": chat, "entry": entry, "meter": build_meter_view(chat=chat)}
    response = render(request, "chats/_message_update.html", context)
    restore_focus(response, f"message-{row.pk}")
    return reswap(retarget(response, f"#message-{row.pk}"), "outerHTML")


def mark_action(act: Callable[[PersonRequest, Message], object]) -> View:
    """Decorator: load the message that the URL names, run the action, and show the new marks."""

    @chat_action
    @functools.wraps(act)
    def view(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
        row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
        act(request, row)
        return render_flagged_message(request, chat_id, row)

    return view


@mark_action
def message_pin(request: PersonRequest, row: Message) -> None:
    """Pin the message, so that every prompt includes its full text."""
    marks.pin_message(message=row, actor=format_actor(request), now=timezone.now())


@mark_action
def message_unpin(request: PersonRequest, row: Message) -> None:
    """Unpin the message, so that summaries can cover it."""
    marks.unpin_message(message=row, actor=format_actor(request), now=timezone.now())


@mark_action
def message_exclude(request: PersonRequest, row: Message) -> None:
    """Exclude a message, and every summary that covers it, from prompts."""
    marks.exclude_message(message=row, actor=format_actor(request), now=timezone.now())


@mark_action
def message_include(request: PersonRequest, row: Message) -> None:
    """Include an excluded message in prompts again."""
    marks.include_message(message=row, actor=format_actor(request), now=timezone.now())


@require_http_methods(["GET", "POST"])
@signed_in
def message_edit(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Show the message in a text box, or send the new text on a new branch.

    A refused text stays in the box.
    """
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    if request.method == "GET":
        return edit_form(request, row, text=row.text)
    sent = MessageForm(request.POST).read_values()
    try:
        count_message(request)
        accepted = branching.edit_message(
            user=request.user,
            message=row,
            text=sent["text"],
            now=timezone.now(),
            idempotency_key=sent["key"],
        )
    except Refusal as refusal:
        return edit_form(request, row, text=sent["text"], refusal=refusal)
    return render_changed_thread(request, chat_id, place=f"message-{accepted.message.pk}")


def edit_form(
    request: PersonRequest, row: Message, *, text: str, refusal: Refusal | None = None
) -> HttpResponse:
    """Render the text box in place of the message, or on its own page."""
    context = {
        "chat": row.branch.chat,
        "message": row,
        "text": text,
        "refusal": refusal,
        "key": uuid.uuid4().hex,
    }
    if not request.htmx:
        status = refusal.status if refusal else 200
        return render(request, "chats/message_edit.html", context, status=status)
    response = render(request, "chats/_message_edit.html", context)
    return reswap(retarget(response, f"#message-{row.pk}"), "outerHTML")


@chat_action
def message_regenerate(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Request another reply to the same question, on a new branch."""
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    count_message(request)
    branching.regenerate_reply(user=request.user, message=row, now=timezone.now())
    return render_changed_thread(request, chat_id, place="tail")


@chat_action
def message_regenerate_round(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Regenerate an agent's reply and the later replies of its round, on a new branch."""
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    count_message(request)
    branching.regenerate_reply(user=request.user, message=row, now=timezone.now(), play_on=True)
    return render_changed_thread(request, chat_id, place="tail")


@chat_action
def message_branch(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Continue from this message on a new branch."""
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    branching.branch_from_message(user=request.user, message=row, now=timezone.now())
    return render_changed_thread(request, chat_id, place=f"message-{row.pk}")


@chat_action
def branch_choose(request: PersonRequest, chat_id: uuid.UUID, branch_id: uuid.UUID) -> HttpResponse:
    """Switch to another branch, chosen by its version of a message."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    branching.choose_branch(user=request.user, chat=chat, branch_id=branch_id, now=timezone.now())
    return render_changed_thread(request, chat_id, place=request.POST.get("place", "tail"))

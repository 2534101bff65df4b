"""What a person does to a message: mark it, say it otherwise, part from it."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import reswap, retarget

from chats import access, branching
from chats.compaction import marks
from chats.models import Message
from chats.refusals import Refusal
from chats.web.chat_pages import sent_text
from chats.web.composer import PolicyInTheWay, meter_view
from chats.web.doors import PersonRequest, actor, count_message, signed_in
from chats.web.in_place import changed, in_place
from chats.web.tails import placed, seen
from chats.web.thread import entry_of
from contextpolicy.engine.budget import BudgetRefusal


@require_GET
@signed_in
def message(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """One message of the thread as it is now."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    return marked(request, chat_id, row) if request.htmx else to_message(row)


def to_message(row: Message) -> HttpResponse:
    """To the message in its chat."""
    return redirect(reverse("chats:chat", args=[row.branch.chat_id]) + f"#message-{row.pk}")


def marked(request: PersonRequest, chat_id: uuid.UUID, row: Message) -> HttpResponse:
    """The message with its new mark and the meter; the whole thread when seams changed with it."""
    if not request.htmx:
        return to_message(row)
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    entry, state = entry_of(chat=chat, user=request.user, message=row)
    if entry is None or seen(request) not in {"", state}:
        return changed(request, chat_id, place=f"message-{row.pk}")
    context = {"chat": chat, "entry": entry, "meter": meter_view(chat=chat)}
    response = render(request, "chats/_message_update.html", context)
    placed(response, f"message-{row.pk}")
    return reswap(retarget(response, f"#message-{row.pk}"), "outerHTML")


@require_POST
@signed_in
@in_place
def message_pin(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Send the message whole in every prompt."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    marks.pin(message=row, actor=actor(request), now=timezone.now())
    return marked(request, chat_id, row)


@require_POST
@signed_in
@in_place
def message_unpin(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Let the message be folded like any other."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    marks.unpin(message=row, actor=actor(request), now=timezone.now())
    return marked(request, chat_id, row)


@require_POST
@signed_in
@in_place
def message_exclude(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Send the message in no prompt any more."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    marks.exclude(message=row, actor=actor(request), now=timezone.now())
    return marked(request, chat_id, row)


@require_POST
@signed_in
@in_place
def message_include(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Take an exclusion back."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    marks.include(message=row, actor=actor(request), now=timezone.now())
    return marked(request, chat_id, row)


@require_http_methods(["GET", "POST"])
@signed_in
def message_edit(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """The message in a box; then its new words on a new branch. Refused, the text stays."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    if request.method == "GET":
        return edit_form(request, row, text=row.text)
    text, key = sent_text(request), request.POST.get("key", "")
    try:
        count_message(request)
        accepted = branching.edit(
            user=request.user, message=row, text=text, now=timezone.now(), idempotency_key=key
        )
    except BudgetRefusal as error:
        return edit_form(request, row, text=text, refusal=PolicyInTheWay(reason=str(error)))
    except Refusal as refusal:
        return edit_form(request, row, text=text, refusal=refusal)
    return changed(request, chat_id, place=f"message-{accepted.message.pk}")


def edit_form(
    request: PersonRequest, row: Message, *, text: str, refusal: Refusal | None = None
) -> HttpResponse:
    """The box in place of the message, or on a page of its own."""
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


@require_POST
@signed_in
@in_place
def message_regenerate(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Answer again what this reply answered, on a new branch."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    count_message(request)
    branching.regenerate(user=request.user, message=row, now=timezone.now())
    return changed(request, chat_id, place="tail")


@require_POST
@signed_in
@in_place
def message_branch(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Go on from this message in a new branch."""
    row = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    branching.branch_from(user=request.user, message=row, now=timezone.now())
    return changed(request, chat_id, place=f"message-{row.pk}")


@require_POST
@signed_in
@in_place
def branch_choose(request: PersonRequest, chat_id: uuid.UUID, branch_id: uuid.UUID) -> HttpResponse:
    """Go on in another branch: the versions of its messages."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    branching.choose_branch(user=request.user, chat=chat, branch_id=branch_id, now=timezone.now())
    return changed(request, chat_id, place=request.POST.get("place", "tail"))

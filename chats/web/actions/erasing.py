"""Permanent erasure: pages that list which data is erased and which is kept.

Erasing requires a recent sign-in, so that an unattended browser cannot be used to destroy data.
Viewing the certificate of an erased chat does not.
"""

import functools
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import erasure, pending_erasures, running_replies
from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat, Message, PendingErasure
from chats.people import sessions
from chats.record import access, holds
from chats.record.message_erasure import Proof
from chats.web.auth import PersonRequest, View, signed_in
from chats.web.reasons import ERASED
from chats.web.words import truncate_line

SHOWN = 160


def freshly_signed_in(view: View) -> View:
    """Require a sign-in in the last 15 minutes; otherwise redirect to the confirmation.

    After the confirmation the user returns to the form. A POST that was redirected is not
    repeated.
    """

    @functools.wraps(view)
    def wrapped(request: PersonRequest, chat_id: uuid.UUID, **ids: Any) -> HttpResponse:
        access.get_chat_including_deleted(user=request.user, chat_id=chat_id)
        if not sessions.has_recent_reauthentication(session=request.session, now=timezone.now()):
            return redirect_to_login(request.path, reverse("confirm"))
        return view(request, chat_id, **ids)

    return wrapped


@require_http_methods(["GET", "POST"])
@signed_in
@freshly_signed_in
def message_erase(
    request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID
) -> HttpResponse:
    """Show the messages that quote a message, then erase it with the selected quotes.

    Only the response to the erasure contains the proofs. It also lists messages that still quote
    the erased one.
    """
    row = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    refusal = None
    if request.method == "POST":
        also = parse_selected_messages(request)
        try:
            erased = erasure.erase_message(
                user=request.user, message=row, now=timezone.now(), also=also
            )
        except NotFound:
            raise
        except Refusal as error:
            refusal = error
        else:
            return render_message_erasure(request, erased.message, proofs=erased.proofs)
    return render_message_erasure(request, row, refusal=refusal)


def parse_selected_messages(request: PersonRequest) -> set[uuid.UUID]:
    """Return the selected quoting messages; invalid IDs are ignored."""
    found = set()
    for value in request.POST.getlist("also"):
        try:
            found.add(uuid.UUID(value))
        except ValueError:
            continue
    return found


def render_message_erasure(
    request: PersonRequest,
    row: Message,
    *,
    refusal: Refusal | None = None,
    proofs: Mapping[Message, Proof] | None = None,
) -> HttpResponse:
    """Render the page that lists the effects of an erasure.

    After the erasure, the page shows the proofs.
    """
    quotes = [
        (quote.message, truncate_line(quote.words or quote.message.text, SHOWN))
        for quote in erasure.list_quotes(row)
    ]
    chat = row.branch.chat
    context = {
        "chat": chat,
        "is_held": holds.is_held(chat, now=timezone.now()),
        "pending": PendingErasure.objects.filter(message=row).first(),
        "message": row,
        "quotes": quotes,
        "selected": parse_selected_messages(request),
        "proofs": (proofs or {}).items(),
        "lock": lock_of(lambda: running_replies.check_over(row)),
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "chats/message_erase.html", context, status=status)


def lock_of(check: Callable[[], None]) -> Refusal | None:
    """Return the refusal that `check` raises now, or None if the action is possible."""
    try:
        check()
    except Refusal as refusal:
        return refusal
    return None


@require_http_methods(["GET", "POST"])
@signed_in
@freshly_signed_in
def chat_erase(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the confirmation, or permanently erase the chat and every copy of its text.

    A chat under a legal hold is deleted, and its erasure stays pending.
    """
    chat = access.get_chat_including_deleted(user=request.user, chat_id=chat_id)
    refusal = None
    if request.method == "POST":
        try:
            proof = erasure.erase_chat(user=request.user, chat=chat, now=timezone.now())
        except NotFound:
            # Another request erased it in between.
            return redirect("chats:chat-erased", chat_id)
        except Refusal as error:
            refusal = error
            # A held chat was deleted instead.
            chat.refresh_from_db()
        else:
            return render_erasure_certificate(request, chat_id=chat_id, proof=proof)
    context = {
        "chat": chat,
        "is_held": holds.is_held(chat, now=timezone.now()),
        "pending": PendingErasure.objects.filter(chat=chat).first(),
        "size": count_chat_contents(chat),
        "lock": lock_of(lambda: running_replies.check_chat_over(chat)),
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "chats/chat_erase.html", context, status=status)


def count_chat_contents(chat: Chat) -> dict[str, int]:
    return {
        "messages": Message.objects.filter(branch__chat=chat).count(),
        "branches": chat.branches.count(),
    }


@require_POST
@signed_in
def pending_erasure_cancel(request: PersonRequest, erasure_id: uuid.UUID) -> HttpResponse:
    """Cancel a pending erasure. Raises `NotFound`."""
    if not pending_erasures.cancel_pending_erasure(
        owner_id=request.user.pk, erasure_id=erasure_id, now=timezone.now()
    ):
        raise NotFound
    return redirect("chats:archive")


@require_GET
@signed_in
def chat_erased(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the certificate of an erased chat to the user who erased it."""
    return render_erasure_certificate(request, chat_id=chat_id)


def render_erasure_certificate(
    request: PersonRequest, *, chat_id: uuid.UUID, proof: Proof | None = None
) -> HttpResponse:
    """Render the certificate. It includes the proof only in the response to the erasure."""
    event = access.get_erasure_certificate(user=request.user, chat_id=chat_id)
    copies = [(words, event.data["copies"].get(name, 0)) for name, words in ERASED.items()]
    context = {"event": event, "copies": copies, "proof": proof}
    return render(request, "chats/chat_erased.html", context)

"""The page of a chat's own system text: read it, write it, take it away."""

import uuid
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from chats.actions import system_texts
from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.record import access
from chats.web.auth import PersonRequest, actor, signed_in
from chats.web.reasons import SYSTEM_TEXT_RULES
from chats.web.words import grouped
from contextpolicy.linter.errors import LONGEST_TEXT


@dataclass(frozen=True, slots=True)
class SystemTextView:
    """The text with what its policy does with it, or the sentence that says why it is not sent."""

    text: str
    where: str
    lock: str
    limit: int = LONGEST_TEXT

    @property
    def length(self) -> str:
        """The number of its characters."""
        return grouped(len(self.text))

    @property
    def is_over(self) -> bool:
        """True if it is too long."""
        return len(self.text) > self.limit

    @property
    def limit_words(self) -> str:
        """The limit for people."""
        return grouped(self.limit)


@require_http_methods(["GET", "POST"])
@signed_in
def system_text(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the text with its form, and store it. A refused one comes back with its sentence."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    if request.method == "GET":
        return answer(request, chat, text=chat.system_text)
    # Browsers send line ends as CRLF.
    text = request.POST.get("text", "").replace("\r\n", "\n")
    try:
        system_texts.write(chat=chat, text=text, actor=actor(request), now=timezone.now())
    except Refusal as refusal:
        return answer(request, chat, text=text, refusal=refusal)
    if not request.htmx:
        return redirect("chats:system-text", chat.pk)
    saved = "Saved. It counts from the next message on." if text else "Taken away."
    return answer(request, chat, text=text, saved=saved)


def answer(
    request: PersonRequest,
    chat: Chat,
    *,
    text: str,
    refusal: Refusal | None = None,
    saved: str = "",
) -> HttpResponse:
    """Render the page, or its changing part for a page that is there already."""
    context = {
        "chat": chat,
        "view": view_of(chat, text=text),
        "refusal": refusal,
        "saved": saved,
    }
    if request.htmx:
        # As a success: htmx does not put a part with an error status in its place.
        return render(request, "chats/_system_text.html", context)
    status = refusal.status if refusal else 200
    return render(request, "chats/system_text.html", context, status=status)


def view_of(chat: Chat, *, text: str) -> SystemTextView:
    """Return the text under its policy, locked with a sentence if that cannot be used."""
    try:
        place = system_texts.place_of(chat=chat)
    except Refusal as problem:
        return SystemTextView(text=text, where="", lock=str(problem))
    return SystemTextView(text=text, where=SYSTEM_TEXT_RULES.get(place.rule, ""), lock=place.lock)

"""The page of a chat's own system text: read it, write it, take it away."""

import uuid
from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from chats import access, systemtext
from chats.models import Chat
from chats.refusals import Refusal
from chats.web.doors import PersonRequest, actor, signed_in
from chats.web.words import grouped
from contextpolicy.engine.budget import BudgetRefusal
from contextpolicy.lint import LONGEST_TEXT

WHERE = {
    "append": "It stands behind the system text of the policy, if that has one.",
    "replace": "It stands in place of the system text of the policy.",
}


@dataclass(frozen=True, slots=True)
class SystemTextView:
    """The text with what its policy does with it, or the sentence that says why it is not sent."""

    text: str
    where: str
    lock: str
    limit: int = LONGEST_TEXT

    @property
    def length(self) -> str:
        """How many characters it has."""
        return grouped(len(self.text))

    @property
    def is_over(self) -> bool:
        """Whether it is too long."""
        return len(self.text) > self.limit

    @property
    def limit_words(self) -> str:
        """The limit for people."""
        return grouped(self.limit)


@require_http_methods(["GET", "POST"])
@signed_in
def system_text(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """The text with its form. One that is refused comes back with its sentence."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    if request.method == "GET":
        return answer(request, chat, text=chat.system_text)
    # Browsers send line ends as CRLF.
    text = request.POST.get("text", "").replace("\r\n", "\n")
    try:
        systemtext.write(chat=chat, text=text, actor=actor(request), now=timezone.now())
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
    """The page, or its changing part for a page that is there already."""
    context = {
        "chat": chat,
        "view": view_of(chat, text=text),
        "refusal": refusal,
        "saved": saved,
    }
    if request.htmx:
        # As a success: a part that is answered with an error is not put in its place.
        return render(request, "chats/_system_text.html", context)
    status = refusal.status if refusal else 200
    return render(request, "chats/system_text.html", context, status=status)


def view_of(chat: Chat, *, text: str) -> SystemTextView:
    """The text under its policy; one whose policy cannot be used is locked with its sentence."""
    try:
        place = systemtext.place_of(chat=chat)
    except (Refusal, BudgetRefusal) as problem:
        return SystemTextView(text=text, where="", lock=str(problem))
    return SystemTextView(text=text, where=WHERE.get(place.rule, ""), lock=place.lock)

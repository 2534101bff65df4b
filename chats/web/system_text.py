"""The page of a chat's system text: read, edit, remove."""

import uuid
from dataclasses import dataclass

from django import forms
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_http_methods

from chats.actions import system_texts
from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.record import access
from chats.web.auth import PersonRequest, format_actor, signed_in
from chats.web.forms import PageForm, TextField
from chats.web.reasons import SYSTEM_TEXT_RULES
from chats.web.words import format_number
from contextpolicy.linter.errors import LONGEST_TEXT


class SystemTextForm(PageForm):
    """The system text of a chat."""

    id_format = "own-%s"

    text = TextField(
        label=gettext_lazy("System text"),
        required=False,
        help_text=gettext_lazy(
            "Empty: no system text. Do not include secrets, because a model can repeat this text. "
            "The prompt receipt of each reply shows it."
        ),
        widget=forms.Textarea(
            attrs={
                "class": "input editor",
                "dir": "auto",
                "autocomplete": "off",
                # The style sheet sets the size.
                "cols": False,
                "rows": False,
                "data-limit": LONGEST_TEXT,
                "data-counted": "own-text-count",
                "aria-describedby": "own-text_helptext own-text-count",
            }
        ),
    )


@dataclass(frozen=True, slots=True)
class SystemTextView:
    """A chat's system text, and how the policy uses it, or why it is not sent."""

    text: str
    rule: str
    where: str
    lock: str
    limit: int = LONGEST_TEXT

    @property
    def length(self) -> str:
        return format_number(len(self.text))

    @property
    def is_over(self) -> bool:
        """True if the text is too long."""
        return len(self.text) > self.limit

    @property
    def limit_words(self) -> str:
        return format_number(self.limit)


@require_http_methods(["GET", "POST"])
@signed_in
def chat_system_text(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show or save the text. A refused text stays in its field."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    if request.method == "GET":
        form = SystemTextForm(initial={"text": chat.system_text})
        return render_system_text(request, chat, form, text=chat.system_text)
    form = SystemTextForm(request.POST)
    text = form.read_values()["text"]
    try:
        system_texts.set_system_text(
            chat=chat, text=text, actor=format_actor(request), now=timezone.now()
        )
    except Refusal as refusal:
        form.refuse(refusal, field="text")
        return render_system_text(request, chat, form, text=text)
    if not request.htmx:
        return redirect("chats:system-text", chat.pk)
    saved = (
        gettext("System text saved. It applies starting with the next message.")
        if text
        else gettext("System text removed.")
    )
    return render_system_text(request, chat, form, text=text, saved=saved)


def render_system_text(
    request: PersonRequest, chat: Chat, form: SystemTextForm, *, text: str, saved: str = ""
) -> HttpResponse:
    """Render the page, or only its changing part for htmx."""
    context = {
        "chat": chat,
        "view": build_system_text_view(chat, text=text),
        "form": form,
        "refusal": form.refusal,
        "saved": saved,
    }
    if request.htmx:
        # Status 200, because htmx does not swap in a response with an error status.
        return render(request, "chats/_system_text.html", context)
    return render(request, "chats/system_text.html", context, status=form.status)


def build_system_text_view(chat: Chat, *, text: str) -> SystemTextView:
    """Return the text with the rule by which its policy uses it.

    If the policy is unusable, the view is locked and contains the reason.
    """
    try:
        place = system_texts.find_system_text_rule(chat=chat)
    except Refusal as problem:
        return SystemTextView(text=text, rule="", where="", lock=problem.localized)
    where = str(SYSTEM_TEXT_RULES.get(place.rule, ""))
    return SystemTextView(text=text, rule=place.rule, where=where, lock=place.lock)

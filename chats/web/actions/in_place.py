"""Shows refusals of chat actions on the page that sent the request."""

import functools
import uuid
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from chats.ground.refusals import NotFound, Refusal
from chats.models.compactions import EXTRACTIVE
from chats.record import access
from chats.web.auth import PersonRequest, View, signed_in
from chats.web.chat_pages import render_chat_page
from chats.web.compactions.listing import list_response
from chats.web.compactions.page import render_compaction_page
from chats.web.forms import OptionField, PageForm, TextField
from chats.web.thread.updates import render_thread_update


def in_place(view: View) -> View:
    """Decorator for views: show refusals among the notices of the requesting page.

    htmx replaces only the notices; a plain form gets the whole page again.
    """

    @functools.wraps(view)
    def wrapped(request: PersonRequest, chat_id: uuid.UUID, **ids: Any) -> HttpResponse:
        try:
            return view(request, chat_id, **ids)
        except NotFound:
            raise
        except Refusal as refusal:
            if request.htmx:
                raise
            if request.POST.get("from") == "page":
                return page_response(request, chat_id, ids.get("compaction_id"), notice=refusal)
            chat = access.get_chat(user=request.user, chat_id=chat_id)
            return render_chat_page(request, chat, notice=refusal)

    return wrapped


def chat_action(view: View) -> View:
    """Decorator for views: accept only POST of signed-in users, and show refusals in place."""
    return require_POST(signed_in(in_place(view)))


def page_response(
    request: PersonRequest,
    chat_id: uuid.UUID,
    compaction_id: uuid.UUID | None,
    *,
    notice: Refusal,
) -> HttpResponse:
    """Render the compaction's page, or the list of compactions, with the refusal `notice`."""
    if compaction_id is None:
        return list_response(request, chat_id, notice=notice)
    return render_compaction_page(request, chat_id, compaction_id, notice=notice)


def render_compaction_overview(
    request: PersonRequest, chat_id: uuid.UUID, *, place: str = "context-meter"
) -> HttpResponse:
    """Render the list of compactions or the chat, after an action on no single compaction."""
    if request.POST.get("from") == "page":
        return redirect(reverse("chats:compactions", args=[chat_id]))
    return render_changed_thread(request, chat_id, place=place)


def render_changed_thread(
    request: PersonRequest, chat_id: uuid.UUID, *, place: str
) -> HttpResponse:
    """Render the updated thread, scrolled to the changed part."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    return render_thread_update(request, chat, place=place)


def render_changed_compaction(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Render the response to an action on one compaction.

    This is the compaction's page if the action came from there, otherwise the thread at its marker.
    """
    if request.POST.get("from") == "page":
        return redirect(reverse("chats:compaction", args=[chat_id, compaction_id]))
    return render_changed_thread(request, chat_id, place=f"compaction-{compaction_id}")


class SummaryOptionsForm(PageForm):
    """The details to keep in a new summary, and the model that writes it."""

    focus = TextField()
    # Empty: the policy chooses.
    summariser = OptionField()


def parse_summary_options(request: PersonRequest) -> dict[str, Any]:
    """Return the form's `focus` and `model` as keyword arguments for a new summary.

    `model` is None if the policy chooses the model, and "" for a summary without a model.
    """
    sent = SummaryOptionsForm(request.POST).read_values()
    chosen = sent["summariser"]
    # The extractive summariser has no model slug.
    model = None if not chosen else "" if chosen == EXTRACTIVE else chosen
    return {"focus": sent["focus"].strip(), "model": model}

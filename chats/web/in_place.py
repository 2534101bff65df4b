"""Actions on a chat: a refusal is said on the page it came from, never on a page of its own."""

import functools
import uuid
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from chats import access
from chats.compaction.plan import EXTRACTIVE
from chats.refusals import NotFound, Refusal
from chats.web.chat_pages import chat_response
from chats.web.compaction_list import list_response
from chats.web.compaction_page import compaction_response
from chats.web.composer import PolicyInTheWay
from chats.web.doors import PersonRequest, View
from chats.web.tails import thread_update
from contextpolicy.engine.budget import BudgetRefusal


def in_place(view: View) -> View:
    """Show a refusal of the view on the page that asked, in the place where it has its notices.

    A partial's refusal goes there by the page's own rule; a plain form gets its page again.
    """

    @functools.wraps(view)
    def wrapped(request: PersonRequest, chat_id: uuid.UUID, **ids: Any) -> HttpResponse:
        try:
            return view(request, chat_id, **ids)
        except NotFound:
            raise
        except (Refusal, BudgetRefusal) as error:
            refusal = error if isinstance(error, Refusal) else PolicyInTheWay(reason=str(error))
            if request.htmx:
                raise refusal from None
            if request.POST.get("from") == "page":
                return page_response(request, chat_id, ids.get("compaction_id"), notice=refusal)
            chat = access.chat_for(user=request.user, chat_id=chat_id)
            return chat_response(request, chat, notice=refusal)

    return wrapped


def page_response(
    request: PersonRequest,
    chat_id: uuid.UUID,
    compaction_id: uuid.UUID | None,
    *,
    notice: Refusal,
) -> HttpResponse:
    """The page of the compaction that was acted on, or that of all, with the refusal on it."""
    if compaction_id is None:
        return list_response(request, chat_id, notice=notice)
    return compaction_response(request, chat_id, compaction_id, notice=notice)


def compacting_changed(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """The answer to what was asked of compaction as such: on the page of all, or in the chat."""
    if request.POST.get("from") == "page":
        return redirect(reverse("chats:compactions", args=[chat_id]))
    return changed(request, chat_id, place="context-meter")


def changed(request: PersonRequest, chat_id: uuid.UUID, *, place: str) -> HttpResponse:
    """The answer to an action: the thread as it is now, at the part that was changed."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    return thread_update(request, chat, place=place)


def compaction_changed(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """The answer to an action on a compaction: its page if it came from there, else its seam."""
    if request.POST.get("from") == "page":
        return redirect(reverse("chats:compaction", args=[chat_id, compaction_id]))
    return changed(request, chat_id, place=f"compaction-{compaction_id}")


def wish_of(request: PersonRequest) -> dict[str, Any]:
    """What a person asks of a new summary, as `compaction.controls` takes it."""
    chosen = request.POST.get("summariser", "")
    # Nothing chosen leaves it to the policy; the summariser without a model has no slug.
    model = None if not chosen else "" if chosen == EXTRACTIVE else chosen
    return {"focus": request.POST.get("focus", "").strip(), "model": model}

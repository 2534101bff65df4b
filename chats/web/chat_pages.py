"""The chat page and its actions: read, send, rename, choose a model."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import reswap, retarget

from chats.actions import lifecycle
from chats.ground.refusals import Refusal
from chats.ground.texts import storable
from chats.models import Branch, Chat
from chats.record import access
from chats.record.idempotency import IdempotencyKeyReused
from chats.turns.start import start
from chats.turns.warm_ups import begin_to_write
from chats.web.auth import PersonRequest, actor, count_message, count_warm_up, signed_in
from chats.web.shell import shell_for
from chats.web.thread.composer import composer_for, meter_view
from chats.web.thread.message_acts import PATTERN
from chats.web.thread.rows import branch_of, now_on
from chats.web.thread.thread import thread_of
from chats.web.thread.updates import seen, seq_from, tail_update
from chats.web.thread.versions import branches_of


class AlreadySent(Refusal):
    """The form was already sent, the response was lost, and the text was edited since."""

    code = "already_sent"
    status = 409
    sentence = gettext_noop(
        "An earlier version of this message was already sent; reload to see it."
        " Send again to add this text as a new message."
    )


@require_GET
@signed_in
def home(request: PersonRequest) -> HttpResponse:
    """Redirect to the newest chat, or to the page for a new one."""
    newest = access.chats_visible_to(user=request.user).order_by("-updated_at", "-pk").first()
    return redirect("chats:chat", newest.pk) if newest else redirect("chats:chat-new")


@require_GET
@signed_in
def chat_page(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show a chat: its newest messages, or those before a seq."""
    branch = access.branch_for(user=request.user, chat_id=chat_id)
    chat = branch.chat
    before = seq_from(request, "before")
    if request.htmx and before:
        thread = thread_of(chat=chat, user=request.user, before=before, branch=branch)
        context = {"chat": chat, "thread": thread, "more": True}
        return render(request, "chats/_earlier.html", context)
    lifecycle.mark_read(chat=chat)
    return chat_response(request, chat, before=before, branch=branch)


def chat_response(
    request: PersonRequest,
    chat: Chat,
    *,
    before: int | None = None,
    text: str = "",
    refusal: Refusal | None = None,
    notice: Refusal | None = None,
    branch: Branch | None = None,
) -> HttpResponse:
    """Render the whole page. With a refusal, the text stays in the message box.

    `notice` is the refusal of any other action. `branch` is the chat's branch, just read.
    """
    refused = refusal or notice
    models = lifecycle.enabled_models()
    thread = thread_of(
        chat=chat,
        user=request.user,
        before=before,
        branch=branch,
        default=lifecycle.default_of(models),
    )
    meter = meter_view(chat=chat, thread=thread)
    composer = composer_for(
        user=request.user,
        chat=chat,
        limit=meter.limit,
        is_replying=thread.is_replying,
        text=text,
        refusal=refusal,
        choice=thread.ground.choice,
        models=models,
    )
    return render(
        request,
        "chats/chat.html",
        {
            "chat": chat,
            "shell": shell_for(user=request.user, current=chat),
            "thread": thread,
            "before": before,
            "meter": meter,
            "composer": composer,
            "branches": branches_of(chat) if thread.ground.facts.branches > 1 else (),
            "compaction_count": thread.ground.facts.compactions,
            "notice": notice,
            "acts": PATTERN,
        },
        status=refused.status if refused else 200,
    )


@require_POST
@signed_in
def message_create(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Send a message. A refused text is returned in its box."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    text, key = sent_text(request), request.POST.get("key", "")
    try:
        count_message(request)
        start(
            user=request.user,
            chat=chat,
            text=text,
            now=timezone.now(),
            idempotency_key=key,
            as_role=request.POST.get("as", ""),
        )
    except IdempotencyKeyReused:
        return message_refused(request, chat, text=text, refusal=AlreadySent())
    except Refusal as refusal:
        return message_refused(request, chat, text=text, refusal=refusal)
    return tail_update(request, chat, sent=True)


def message_refused(
    request: PersonRequest, chat: Chat, *, text: str, refusal: Refusal
) -> HttpResponse:
    """Render the message box with the text and the error, as a partial or within its page."""
    if not request.htmx:
        return chat_response(request, chat, text=text, refusal=refusal)
    composer = composer_for(
        user=request.user,
        chat=chat,
        limit=meter_view(chat=chat).limit,
        is_replying="replying" in request.POST,
        text=text,
        refusal=refusal,
    )
    response = render(request, "chats/_composer.html", {"chat": chat, "composer": composer})
    return reswap(retarget(response, "#composer"), "outerHTML")


def sent_text(request: PersonRequest) -> str:
    """Return the text with LF line ends: browsers send CRLF."""
    return storable(request.POST.get("text", "").replace("\r\n", "\n"))


@require_GET
@signed_in
def tail(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the current end of the thread."""
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_GET
@signed_in
def changes(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Return the changed end of the thread, or 204 if the page is up to date."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    now = now_on(branch_of(chat))
    is_shown = seen(request).partition(".")[0] == now.state
    is_shown &= request.GET.get("turn", "") == now.turn
    return HttpResponse(status=204) if is_shown else tail_update(request, chat)


@require_GET
@signed_in
def meter(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show the context meter for the next message."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    return render(request, "chats/_meter.html", {"chat": chat, "meter": meter_view(chat=chat)})


@require_POST
@signed_in
def warm_up(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Request a cache warm-up when the user starts typing. Never fails the request."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    count_warm_up(request)
    begin_to_write(chat=chat, now=timezone.now())
    return HttpResponse(status=204)


@require_POST
@signed_in
def chat_rename(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Rename the chat."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    title = request.POST.get("title", "")
    lifecycle.rename_chat(chat=chat, title=title, actor=actor(request), now=timezone.now())
    return redirect("chats:chat", chat.pk)


@require_POST
@signed_in
def chat_model(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Choose the model that replies from the next message on."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    slug = request.POST.get("model", "")
    lifecycle.choose_model(chat=chat, model_slug=slug, actor=actor(request), now=timezone.now())
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#composer")
    view = meter_view(chat=chat)
    composer = composer_for(user=request.user, chat=chat, limit=view.limit)
    context = {"chat": chat, "composer": composer, "meter": view}
    return render(request, "chats/_model_update.html", context)

"""The chat page and its actions: read, send, rename, choose a model."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import reswap, retarget

from chats.actions import lifecycle
from chats.background.cache_warming import request_warm_up
from chats.ground.rates import RateLimited
from chats.ground.refusals import Refusal
from chats.models import Branch, Chat
from chats.prompt.meter import Draft
from chats.record import access
from chats.record.idempotency import IdempotencyKeyReused
from chats.turns.start import start_turn
from chats.web.auth import (
    PersonRequest,
    count_message,
    count_meter_update,
    count_warm_up,
    format_actor,
    signed_in,
)
from chats.web.errors import set_retry_after
from chats.web.shell import build_shell
from chats.web.thread.composer import build_composer, build_meter_view
from chats.web.thread.message_acts import PATTERN
from chats.web.thread.message_forms import MessageForm
from chats.web.thread.rows import load_active_branch, load_current_state
from chats.web.thread.thread import load_thread_page
from chats.web.thread.updates import parse_seen_state, parse_seq, render_tail_update
from chats.web.thread.versions import list_branch_links


class AlreadySent(Refusal):
    """The form was sent before and the response was lost, but the text has changed since."""

    code = "already_sent"
    status = 409
    sentence = gettext_noop(
        "An earlier version of this message was already sent. Reload the page to see it, or send "
        "again to add this text as a new message."
    )


@require_GET
@signed_in
def home(request: PersonRequest) -> HttpResponse:
    """Redirect to the newest chat, or to the page for a new one."""
    newest = access.get_visible_chats(user=request.user).order_by("-updated_at", "-pk").first()
    return redirect("chats:chat", newest.pk) if newest else redirect("chats:chat-new")


@require_GET
@signed_in
def chat_page(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show a chat and mark it as read: its newest messages, or those before a seq."""
    branch = access.get_chat_branch(user=request.user, chat_id=chat_id)
    chat = branch.chat
    before = parse_seq(request, "before")
    if request.htmx and before:
        thread = load_thread_page(chat=chat, user=request.user, before=before, branch=branch)
        context = {"chat": chat, "thread": thread, "more": True}
        return render(request, "chats/_earlier.html", context)
    lifecycle.mark_read(chat=chat)
    return render_chat_page(request, chat, before=before, branch=branch)


def render_chat_page(
    request: PersonRequest,
    chat: Chat,
    *,
    before: int | None = None,
    sent: MessageForm | None = None,
    notice: Refusal | None = None,
    branch: Branch | None = None,
) -> HttpResponse:
    """Render the whole page. A refused message, `sent`, stays in the message box.

    `notice` is the refusal of another action. `branch` is the chat's branch, if just loaded.
    """
    refused = sent.refusal if sent else notice
    models = lifecycle.load_enabled_models()
    thread = load_thread_page(
        chat=chat,
        user=request.user,
        before=before,
        branch=branch,
        default=lifecycle.find_default_model(models),
    )
    meter = build_meter_view(chat=chat, thread=thread)
    composer = build_composer(
        user=request.user,
        chat=chat,
        limit=meter.limit,
        is_replying=thread.is_replying,
        sent=sent,
        choice=thread.ground.choice,
        models=models,
    )
    response = render(
        request,
        "chats/chat.html",
        {
            "chat": chat,
            "shell": build_shell(user=request.user, current=chat),
            "thread": thread,
            "before": before,
            "meter": meter,
            "composer": composer,
            "branches": list_branch_links(chat) if thread.ground.facts.branches > 1 else (),
            "compaction_count": thread.ground.facts.compactions,
            "notice": notice,
            "acts": PATTERN,
        },
        status=refused.status if refused else 200,
    )
    return set_retry_after(response, refused) if refused else response


@require_POST
@signed_in
def message_create(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Send a message. A refused text stays in the message box."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    form = MessageForm(request.POST)
    sent = form.read_values()
    try:
        count_message(request)
        start_turn(
            user=request.user,
            chat=chat,
            text=sent["text"],
            now=timezone.now(),
            idempotency_key=sent["key"],
            as_role=sent["as"],
            files=sent["files"],
            unread=sent["unread"],
        )
    except IdempotencyKeyReused:
        form.refuse(AlreadySent())
    except Refusal as refusal:
        form.refuse(refusal)
    else:
        return render_tail_update(request, chat, sent=True)
    return render_refused_message(request, chat, form)


def render_refused_message(request: PersonRequest, chat: Chat, form: MessageForm) -> HttpResponse:
    """Render the message box with the text and the error, alone or within its page."""
    if not request.htmx:
        return render_chat_page(request, chat, sent=form)
    composer = build_composer(
        user=request.user,
        chat=chat,
        limit=build_meter_view(chat=chat).limit,
        is_replying=form.read_values()["replying"],
        sent=form,
    )
    response = render(request, "chats/_composer.html", {"chat": chat, "composer": composer})
    if composer.refusal is not None:
        set_retry_after(response, composer.refusal)
    return reswap(retarget(response, "#composer"), "outerHTML")


@require_GET
@signed_in
def chat_tail(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))


@require_GET
@signed_in
def chat_changes(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Return the changed end of the thread, or 204 if the page is up to date."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    now = load_current_state(load_active_branch(chat))
    is_shown = parse_seen_state(request).partition(".")[0] == now.state
    is_shown &= request.GET.get("turn", "") == now.turn
    return HttpResponse(status=204) if is_shown else render_tail_update(request, chat)


@require_http_methods(["GET", "POST"])
@signed_in
def chat_meter(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Render the context meter. A POST contains the form of the message being written.

    Above the rate limit, the response is empty and the page keeps its meter.
    """
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    try:
        count_meter_update(request)
    except RateLimited:
        return HttpResponse(status=204)
    sent = MessageForm(request.POST).read_values()
    draft = Draft(request.user, sent["text"], sent["files"])
    meter = build_meter_view(chat=chat, draft=draft)
    return render(request, "chats/_meter.html", {"chat": chat, "meter": meter})


@require_POST
@signed_in
def chat_warm_up(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Request a cache warm-up when the user starts typing. Raises `RateLimited`."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    count_warm_up(request)
    request_warm_up(chat=chat, now=timezone.now())
    return HttpResponse(status=204)


@require_POST
@signed_in
def chat_rename(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    title = request.POST.get("title", "")
    lifecycle.rename_chat(chat=chat, title=title, actor=format_actor(request), now=timezone.now())
    return redirect("chats:chat", chat.pk)


@require_POST
@signed_in
def chat_model(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Choose the model that replies from the next message on."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    slug = request.POST.get("model", "")
    lifecycle.choose_model(
        chat=chat, model_slug=slug, actor=format_actor(request), now=timezone.now()
    )
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#composer")
    view = build_meter_view(chat=chat)
    composer = build_composer(user=request.user, chat=chat, limit=view.limit)
    context = {"chat": chat, "composer": composer, "meter": view}
    return render(request, "chats/_model_update.html", context)

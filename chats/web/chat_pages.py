"""The chat page and what is done on it: read, send, rename, choose a model, delete."""

import uuid

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django_htmx.http import reswap, retarget

from chats import access, library
from chats.idempotency import IdempotencyKeyReused
from chats.models import Branch, Chat
from chats.refusals import Refusal
from chats.turns.start import start
from chats.web.composer import PolicyInTheWay, composer_for, meter_view
from chats.web.doors import PersonRequest, actor, count_message, signed_in
from chats.web.looks import next_look
from chats.web.rows import branch_of, now_on
from chats.web.shell import shell_for
from chats.web.tails import look_of, seen, seq_from, tail_update
from chats.web.thread import thread_of
from chats.web.versions import branches_of
from contextpolicy.engine.budget import BudgetRefusal


class AlreadySent(Refusal):
    """The box was sent, its answer got lost on the way, and then the text was changed."""

    code = "already_sent"
    status = 409
    sentence = (
        "An earlier version of this message was already sent; reload to see it."
        " Send again to add this text as a new message."
    )


@require_GET
@signed_in
def home(request: PersonRequest) -> HttpResponse:
    """The newest chat, or the page for a new one."""
    newest = access.chats_visible_to(user=request.user).order_by("-updated_at", "-pk").first()
    return redirect("chats:chat", newest.pk) if newest else redirect("chats:chat-new")


@require_GET
@signed_in
def chat_page(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """A chat: its newest messages, or those before a seq."""
    branch = access.branch_for(user=request.user, chat_id=chat_id)
    chat = branch.chat
    before = seq_from(request, "before")
    if request.htmx and before:
        thread = thread_of(chat=chat, user=request.user, before=before, branch=branch)
        return render(request, "chats/_earlier.html", {"chat": chat, "thread": thread})
    library.mark_read(chat=chat)
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
    """The whole page; with a refusal the text stays in the box under its sentence.

    `notice`: the refusal of anything but a message. `branch`: that of the chat, read just now.
    """
    refused = refusal or notice
    models = library.enabled_models()
    thread = thread_of(
        chat=chat,
        user=request.user,
        before=before,
        branch=branch,
        default=library.default_of(models),
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
            "look": look_of(thread),
            "before": before,
            "meter": meter,
            "composer": composer,
            "branches": branches_of(chat) if thread.ground.facts.branches > 1 else (),
            "compaction_count": thread.ground.facts.compactions,
            "notice": notice,
        },
        status=refused.status if refused else 200,
    )


@require_POST
@signed_in
def message_create(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Send a message. Refused, the text comes back in its box."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    text, key = sent_text(request), request.POST.get("key", "")
    try:
        count_message(request)
        start(user=request.user, chat=chat, text=text, now=timezone.now(), idempotency_key=key)
    except IdempotencyKeyReused:
        return message_refused(request, chat, text=text, refusal=AlreadySent())
    except BudgetRefusal as error:
        refusal = PolicyInTheWay(reason=str(error))
        return message_refused(request, chat, text=text, refusal=refusal)
    except Refusal as refusal:
        return message_refused(request, chat, text=text, refusal=refusal)
    return tail_update(request, chat, sent=True)


def message_refused(
    request: PersonRequest, chat: Chat, *, text: str, refusal: Refusal
) -> HttpResponse:
    """The message box with the text and the sentence above it, alone or in its page."""
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
    """The text as it was typed: browsers send line ends as CRLF."""
    return request.POST.get("text", "").replace("\r\n", "\n")


@require_GET
@signed_in
def tail(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """The end of the thread as it is now."""
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_GET
@signed_in
def look(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """The whole thread if its seams or rails changed, else the next look, if there is one."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    number = (seq_from(request, "n") or 0) + 1
    now = now_on(branch_of(chat))
    if seen(request).partition(".")[0] not in {"", now.state} or not request.htmx:
        return tail_update(request, chat, looks=number)
    following = next_look(
        number=number, turn=now.turn, is_preparing=now.is_preparing, now=timezone.now()
    )
    return render(request, "chats/_look.html", {"chat": chat, "look": following})


@require_GET
@signed_in
def meter(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """What the next message would send."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    return render(request, "chats/_meter.html", {"chat": chat, "meter": meter_view(chat=chat)})


@require_POST
@signed_in
def chat_rename(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Give the chat another title."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    title = request.POST.get("title", "")
    library.rename_chat(chat=chat, title=title, actor=actor(request), now=timezone.now())
    return redirect("chats:chat", chat.pk)


@require_POST
@signed_in
def chat_model(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Let another model answer from the next message on."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    slug = request.POST.get("model", "")
    library.choose_model(chat=chat, model_slug=slug, actor=actor(request), now=timezone.now())
    if not request.htmx:
        return redirect(reverse("chats:chat", args=[chat.pk]) + "#composer")
    view = meter_view(chat=chat)
    composer = composer_for(user=request.user, chat=chat, limit=view.limit)
    context = {"chat": chat, "composer": composer, "meter": view}
    return render(request, "chats/_model_update.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def chat_delete(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Ask, then delete the chat with everything said in it."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    if request.method == "POST":
        library.delete_chat(chat=chat, actor=actor(request), now=timezone.now())
        return redirect("chats:home")
    return render(request, "chats/delete.html", {"chat": chat})

"""The page for a chat that does not exist yet; its first message makes it."""

from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from chats import answering, library
from chats.idempotency import IdempotencyKeyReused
from chats.models import Chat
from chats.refusals import Refusal
from chats.web.chat_pages import AlreadySent, sent_text
from chats.web.composer import PolicyInTheWay, composer_for
from chats.web.doors import PersonRequest, count_message, signed_in
from chats.web.shell import shell_for
from contextpolicy import resolution
from contextpolicy.engine.budget import BudgetRefusal
from contextpolicy.engine.policy import PolicyValues

# Beginnings that a first message can take: what the button says, what it is for, its text.
SUGGESTIONS = (
    (
        "Explain a text in plain words",
        "Paste a letter, a contract or an error message",
        "Explain this in plain words, step by step:\n\n",
    ),
    (
        "Draft a reply",
        "Paste what you received, say what you want",
        "Draft a short, friendly reply to this message:\n\n",
    ),
    (
        "Review some code",
        "Errors, unclear names, missing cases",
        "Review this code. Name errors first, then what is unclear:\n\n",
    ),
    (
        "See what the model gets",
        "Ask twice, then open “What the model saw”",
        "What do you know about our conversation so far?",
    ),
)


@require_http_methods(["GET", "POST"])
@signed_in
def chat_new(request: PersonRequest) -> HttpResponse:
    """Welcome, or make the chat with its first message."""
    if request.method == "GET":
        return welcome(request)
    text = sent_text(request)
    try:
        count_message(request)
        accepted = library.start_in_new_chat(
            user=request.user,
            text=text,
            now=timezone.now(),
            model_slug=request.POST.get("model", ""),
            idempotency_key=request.POST.get("key", ""),
        )
    except IdempotencyKeyReused:
        return welcome(request, text=text, refusal=AlreadySent())
    except BudgetRefusal as error:
        return welcome(request, text=text, refusal=PolicyInTheWay(reason=str(error)))
    except Refusal as refusal:
        return welcome(request, text=text, refusal=refusal)
    return redirect(reverse("chats:chat", args=[accepted.turn.branch.chat_id]))


def limit_for(user: User) -> int:
    """How long a first message may be, in code points, under the policies that apply to a person.

    The model's own window decides nothing here, so none is asked for.
    """
    try:
        effective = answering.effective_policy(chat=Chat(owner=user), model=None)
    except BudgetRefusal:
        return PolicyValues().input_length_limit
    return resolution.values_of(effective).input_length_limit


def welcome(
    request: PersonRequest, *, text: str = "", refusal: Refusal | None = None
) -> HttpResponse:
    """The page; with a refusal the text stays in the box under its sentence."""
    composer = composer_for(
        user=request.user,
        chat=None,
        limit=limit_for(request.user),
        text=text,
        refusal=refusal,
    )
    models = composer.models
    values = {
        "shell": shell_for(user=request.user),
        "composer": composer,
        "suggestions": SUGGESTIONS,
        "only_demo": bool(models) and all(choice.is_demo for choice in models),
        "no_model": not models,
    }
    status = refusal.status if refusal else 200
    return render(request, "chats/new.html", values, status=status)

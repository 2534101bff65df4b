"""Actions on a turn.

Show its queue position, allow or deny a tool call, stop, retry or continue the reply, and keep an
incomplete reply.
"""

import uuid
from contextlib import suppress

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from chats.actions import marks
from chats.actions.lifecycle import retry_with
from chats.models import Turn
from chats.record import access
from chats.turns.consents import (
    ConsentIsOver,
    decide_tool_call,
    parse_call_id,
    parse_decision,
)
from chats.turns.follow_up_turns import continue_reply
from chats.turns.stop import TurnIsOver, stop_turn
from chats.web.auth import PersonRequest, count_message, format_actor, signed_in
from chats.web.thread.arrangement import load_queue_position
from chats.web.thread.composer import list_offered_models
from chats.web.thread.updates import render_tail_update


@require_GET
@signed_in
def turn_queue(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Show the reply's position in the queue.

    Empty once the reply has started, and while it waits for consent to a tool call.
    """
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    is_queued = turn.status == Turn.Status.QUEUED and not turn.awaits_consent
    context = {
        "chat": turn.branch.chat,
        "turn": turn,
        "queue": load_queue_position(turn) if is_queued else None,
    }
    return render(request, "chats/_queue.html", context)


@require_POST
@signed_in
def turn_consent(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Allow or deny a waiting tool call. Does nothing if the call was already answered."""
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    with suppress(ConsentIsOver):
        decide_tool_call(
            user=request.user,
            turn=turn,
            call_id=parse_call_id(request.POST.get("call", "")),
            decision=parse_decision(request.POST.get("decision", "")),
            now=timezone.now(),
        )
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def turn_stop(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Stop the reply, or all parallel replies. Does nothing if the reply has ended."""
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    every = bool(request.POST.get("all"))
    with suppress(TurnIsOver):
        stop_turn(user=request.user, turn=turn, now=timezone.now(), with_others=every)
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def turn_retry(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Retry the reply, optionally with another model."""
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    count_message(request)
    model = request.POST.get("model", "")
    retry_with(user=request.user, turn=turn, model_slug=model, now=timezone.now())
    if model:
        return redirect(reverse("chats:chat", args=[chat_id]) + "#composer")
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))


@require_GET
@signed_in
def turn_models(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """List the other models with which a failed reply can be retried."""
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    offered = list_offered_models(user=request.user, chat=chat)
    others = [each for each in offered if each.spec.pk != turn.model_id]
    context = {"chat": chat, "turn": turn, "models": others}
    return render(request, "chats/other_models.html", context)


@require_POST
@signed_in
def turn_continue(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Continue a truncated reply where it was cut off, as a new turn."""
    turn = access.get_turn(user=request.user, chat_id=chat_id, turn_id=turn_id)
    count_message(request)
    continue_reply(user=request.user, turn=turn, now=timezone.now())
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def message_keep(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Keep an incomplete reply, so that later prompts include it."""
    message = access.get_message(user=request.user, chat_id=chat_id, message_id=message_id)
    marks.keep_incomplete_reply(message=message, actor=format_actor(request), now=timezone.now())
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))

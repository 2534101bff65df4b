"""What a person may ask and do about a turn: its place in line, stop, retry, continue, keep."""

import uuid
from contextlib import suppress

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET, require_POST

from chats import access
from chats.compaction import marks
from chats.models import Turn
from chats.turns.start import continue_reply, retry
from chats.turns.stop import TurnIsOver, stop
from chats.web.doors import PersonRequest, actor, count_message, signed_in
from chats.web.tails import tail_update
from chats.web.thread import queue_of


@require_GET
@signed_in
def turn_queue(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """What a reply waits for; nothing once it has begun."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    is_queued = turn.status == Turn.Status.QUEUED
    context = {
        "chat": turn.branch.chat,
        "turn": turn,
        "queue": queue_of(turn) if is_queued else None,
    }
    return render(request, "chats/_queue.html", context)


@require_POST
@signed_in
def turn_stop(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Stop the reply. One that ended meanwhile is simply shown."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    with suppress(TurnIsOver):
        stop(user=request.user, turn=turn, now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def turn_retry(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Answer the same message again."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    count_message(request)
    retry(user=request.user, turn=turn, now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def turn_continue(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Go on with a reply that was cut."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    count_message(request)
    continue_reply(user=request.user, turn=turn, now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def message_keep(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Let an incomplete reply count in later prompts."""
    message = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    marks.keep(message=message, actor=actor(request), now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))

"""What a person may do about a turn or its reply: stop, try again, continue, keep."""

import uuid
from contextlib import suppress

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from chats import access, messages
from chats.turns.start import continue_reply, retry
from chats.turns.stop import TurnIsOver, stop
from chats.web.doors import PersonRequest, actor, signed_in
from chats.web.tails import tail_update


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
    retry(user=request.user, turn=turn, now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def turn_continue(request: PersonRequest, chat_id: uuid.UUID, turn_id: uuid.UUID) -> HttpResponse:
    """Go on with a reply that was cut."""
    turn = access.turn_for(user=request.user, chat_id=chat_id, turn_id=turn_id)
    continue_reply(user=request.user, turn=turn, now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))


@require_POST
@signed_in
def message_keep(request: PersonRequest, chat_id: uuid.UUID, message_id: uuid.UUID) -> HttpResponse:
    """Let an incomplete reply count in later prompts."""
    message = access.message_for(user=request.user, chat_id=chat_id, message_id=message_id)
    messages.keep(message=message, actor=actor(request), now=timezone.now())
    return tail_update(request, access.chat_for(user=request.user, chat_id=chat_id))

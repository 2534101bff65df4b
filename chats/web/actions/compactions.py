"""A person's actions on compaction: ask, stop, undo, redo, decide, and end its pauses."""

import uuid

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from chats.compaction import pauses
from chats.compaction.people import approve, controls, undo
from chats.record import access
from chats.web.actions.in_place import compacting_changed, compaction_changed, in_place, wish_of
from chats.web.auth import PersonRequest, actor, signed_in


@require_POST
@signed_in
@in_place
def compact(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Ask for a compaction now, whatever the marks say."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    controls.compact_now(user=request.user, chat=chat, now=timezone.now(), **wish_of(request))
    return compacting_changed(request, chat_id)


@require_POST
@signed_in
@in_place
def compaction_resume(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Resume automatic compaction after an undo."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    pauses.resume(chat=chat, actor=actor(request), now=timezone.now())
    return compacting_changed(request, chat_id)


@require_POST
@signed_in
@in_place
def compaction_reset(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Forget the failures that made compaction rest, and try again."""
    chat = access.chat_for(user=request.user, chat_id=chat_id)
    pauses.reset_breaker(chat=chat, actor=actor(request), now=timezone.now())
    return compacting_changed(request, chat_id)


@require_POST
@signed_in
@in_place
def compaction_undo(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Send the originals again."""
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    undo.undo(user=request.user, compaction=row, now=timezone.now())
    return compaction_changed(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_redo(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Put an undone summary in force again."""
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    undo.redo(user=request.user, compaction=row, now=timezone.now())
    return compaction_changed(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_cancel(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Stop a summary that is being written."""
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    controls.cancel(user=request.user, compaction=row, now=timezone.now())
    return compaction_changed(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_rerun(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Ask for the summary in force to be written again from its originals."""
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    wish = wish_of(request)
    controls.rerun(user=request.user, compaction=row, now=timezone.now(), **wish)
    return compaction_changed(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_approve(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Let a draft take effect."""
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    approve.approve(user=request.user, compaction=row, now=timezone.now())
    return compaction_changed(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_reject(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Refuse a draft, with the reason."""
    row = access.compaction_for(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    reason = request.POST.get("reason", "")
    approve.reject(user=request.user, compaction=row, reason=reason, now=timezone.now())
    return compaction_changed(request, chat_id, row.pk)

"""Actions on compaction: request, cancel, undo, redo, approve, reject, resume."""

import uuid

from django.http import HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from chats.compaction import pauses
from chats.compaction.people import approve, controls, undo
from chats.record import access
from chats.web.actions.in_place import (
    in_place,
    parse_summary_options,
    render_changed_compaction,
    render_compaction_overview,
)
from chats.web.auth import PersonRequest, format_actor, signed_in


@require_POST
@signed_in
@in_place
def chat_compact(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Request a compaction now, even if it is not due."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    controls.compact_now(
        user=request.user, chat=chat, now=timezone.now(), **parse_summary_options(request)
    )
    return render_compaction_overview(request, chat_id, place="answer")


@require_POST
@signed_in
@in_place
def compaction_resume(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Resume automatic compaction after an undo."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    pauses.resume_compaction(chat=chat, actor=format_actor(request), now=timezone.now())
    return render_compaction_overview(request, chat_id)


@require_POST
@signed_in
@in_place
def compaction_reset(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Reset the failures that paused compaction, and retry."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    pauses.reset_breaker(chat=chat, actor=format_actor(request), now=timezone.now())
    return render_compaction_overview(request, chat_id)


@require_POST
@signed_in
@in_place
def compaction_undo(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Undo a compaction, so that prompts contain the original messages again."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    undo.undo_summary(user=request.user, compaction=row, now=timezone.now())
    return render_changed_compaction(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_redo(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Make an undone summary active again."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    undo.redo_summary(user=request.user, compaction=row, now=timezone.now())
    return render_changed_compaction(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_cancel(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Cancel a summary that is being written."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    controls.cancel_summary(user=request.user, compaction=row, now=timezone.now())
    return render_changed_compaction(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_rerun(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Request that the active summary be regenerated from its originals."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    options = parse_summary_options(request)
    controls.request_summary_rerun(user=request.user, compaction=row, now=timezone.now(), **options)
    return render_changed_compaction(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_approve(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Approve a pending summary, so that it becomes active."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    approve.approve_summary(user=request.user, compaction=row, now=timezone.now())
    return render_changed_compaction(request, chat_id, row.pk)


@require_POST
@signed_in
@in_place
def compaction_reject(
    request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID
) -> HttpResponse:
    """Reject a pending summary with a reason. Prompts do not change."""
    row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
    reason = request.POST.get("reason", "")
    approve.reject_summary(user=request.user, compaction=row, reason=reason, now=timezone.now())
    return render_changed_compaction(request, chat_id, row.pk)

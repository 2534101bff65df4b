"""Actions on compaction: request, cancel, undo, redo, approve, reject, resume."""

import functools
import uuid
from collections.abc import Callable

from django.http import HttpResponse
from django.utils import timezone

from chats.compaction import pauses
from chats.compaction.people import approve, controls, undo
from chats.models import Compaction
from chats.record import access
from chats.web.actions.in_place import (
    chat_action,
    parse_summary_options,
    render_changed_compaction,
    render_compaction_overview,
)
from chats.web.auth import PersonRequest, View, format_actor


@chat_action
def chat_compact(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Request a compaction now, even if it is not due."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    controls.compact_now(
        user=request.user, chat=chat, now=timezone.now(), **parse_summary_options(request)
    )
    return render_compaction_overview(request, chat_id, place="answer")


@chat_action
def compaction_resume(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Resume automatic compaction after an undo."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    pauses.resume_compaction(chat=chat, actor=format_actor(request), now=timezone.now())
    return render_compaction_overview(request, chat_id)


@chat_action
def compaction_reset(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Reset the failures that paused compaction, and retry."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    pauses.reset_breaker(chat=chat, actor=format_actor(request), now=timezone.now())
    return render_compaction_overview(request, chat_id)


def compaction_action(act: Callable[[PersonRequest, Compaction], object]) -> View:
    """Decorator: load the compaction that the URL names, run the action, and show the new state."""

    @chat_action
    @functools.wraps(act)
    def view(request: PersonRequest, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> HttpResponse:
        row = access.get_compaction(user=request.user, chat_id=chat_id, compaction_id=compaction_id)
        act(request, row)
        return render_changed_compaction(request, chat_id, row.pk)

    return view


@compaction_action
def compaction_undo(request: PersonRequest, row: Compaction) -> None:
    """Undo a compaction, so that prompts contain the original messages again."""
    undo.undo_summary(user=request.user, compaction=row, now=timezone.now())


@compaction_action
def compaction_redo(request: PersonRequest, row: Compaction) -> None:
    """Make an undone summary active again."""
    undo.redo_summary(user=request.user, compaction=row, now=timezone.now())


@compaction_action
def compaction_cancel(request: PersonRequest, row: Compaction) -> None:
    """Cancel a summary that is being written."""
    controls.cancel_summary(user=request.user, compaction=row, now=timezone.now())


@compaction_action
def compaction_rerun(request: PersonRequest, row: Compaction) -> None:
    """Request that the active summary be regenerated from its originals."""
    options = parse_summary_options(request)
    controls.request_summary_rerun(user=request.user, compaction=row, now=timezone.now(), **options)


@compaction_action
def compaction_approve(request: PersonRequest, row: Compaction) -> None:
    """Approve a pending summary, so that it becomes active."""
    approve.approve_summary(user=request.user, compaction=row, now=timezone.now())


@compaction_action
def compaction_reject(request: PersonRequest, row: Compaction) -> None:
    """Reject a pending summary with a reason. Prompts do not change."""
    reason = request.POST.get("reason", "")
    approve.reject_summary(user=request.user, compaction=row, reason=reason, now=timezone.now())

"""Undoes and redoes compactions. An undo restores the previous context byte for byte."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import Sum
from django.utils.translation import gettext_noop

from chats.compaction import coverage, pauses
from chats.compaction.coverage import (
    forget_request,
    get_active_summary,
    load_locked_active_branch,
    record_compaction_event,
    retire_pending_summary,
)
from chats.compaction.people import summary_permissions
from chats.compaction.people.controls import SummaryNotActive
from chats.compaction.plan import count_fixed_tokens
from chats.ground.refusals import Refusal
from chats.models import Branch, Compaction
from chats.prompt import model_choice, prompt_facts
from chats.prompt.tokenizer import O200kCounter
from chats.record import history
from chats.record.locking import lock_chat
from contextpolicy.engine.history.entries import estimate_sendable_tokens
from contextpolicy.engine.policy.budget import compute_prompt_limit, convert_provider_tokens


class UndoDoesNotFit(Refusal):
    """Without the summary, the prompt would exceed its limit. The error gives the token counts."""

    code = "undo_does_not_fit"
    status = 409
    sentence = gettext_noop(
        "Without this summary, the prompt would have about {tokens:,} tokens; the limit is "
        "{limit:,}. Keep the summary, or choose a policy with a higher limit or a model with a "
        "larger context window."
    )


class NothingToRedo(Refusal):
    """The summary was not undone, or another summary has become active."""

    code = "nothing_to_redo"
    status = 409
    sentence = gettext_noop(
        "This summary no longer matches the active compaction. Compact the chat again instead."
    )


@transaction.atomic
def undo_summary(*, user: AbstractBaseUser, compaction: Compaction, now: datetime) -> Compaction:
    """Deactivate the active summary and restore the compaction that it replaced.

    Automatic compaction pauses on the branch (see `pauses.can_compact_automatically`). Undoing it
    again changes nothing. Raises `SummaryNotActive`, `NotAllowedByPolicy`, `UndoDoesNotFit`, and
    the errors of `model_choice.choose_chat_model`.
    """
    branch = load_locked_active_branch(lock_chat(compaction.branch.chat_id))
    row = Compaction.objects.select_related("branch", "displaced__base").get(pk=compaction.pk)
    summary_permissions.check_summary_permission(user=user, chat=branch.chat, action="undo")
    if get_active_summary(branch.active_compaction) != row:
        # A row that another branch still uses keeps its status.
        is_undone_here = branch.compaction_paused and can_be_redone(row, branch=branch)
        if row.status == Compaction.Status.UNDONE or is_undone_here:
            return row
        raise SummaryNotActive
    restored = find_restorable_compaction(row, branch=branch)
    check_restored_prompt(branch, restored=restored)
    by = f"user:{user.pk}"
    retire_pending_summary(branch, reason="undone", now=now, actor=by)
    coverage.activate_compaction(branch, to=restored)
    # The row may still be active on another branch.
    Compaction.objects.filter(pk=row.pk).exclude(status=Compaction.Status.PUBLISHED).update(
        status=Compaction.Status.UNDONE
    )
    branch.compaction_paused = True
    branch.paused_at = now
    branch.save(update_fields=["compaction_paused", "paused_at"])
    record_undo_event("compaction.undone", row=row, branch=branch, actor=by, now=now)
    return row


def find_restorable_compaction(row: Compaction, *, branch: Branch) -> Compaction | None:
    """Return the newest valid compaction that the summary directly or indirectly replaced.

    None if there is none; the messages themselves are then sent.
    """
    found = row.displaced
    while found is not None:
        summary = get_active_summary(found)
        if summary is not None and not coverage.is_true(summary, branch):
            found = summary.displaced
        elif found.kind != Compaction.Kind.WINDOW or coverage.is_range_on_path(found, branch):
            return found
        else:
            # The window moved past the message at which this branch began.
            found = found.base or found.displaced
    return None


def check_restored_prompt(branch: Branch, *, restored: Compaction | None) -> None:
    """Raise `UndoDoesNotFit` if the restored prompt would exceed its limit.

    Adds up the stored token counts as sent; the next question is not included.
    """
    choice = model_choice.choose_chat_model(chat=branch.chat)
    counter = O200kCounter()
    limit = convert_provider_tokens(
        compute_prompt_limit(choice.values, model_window=choice.model.window),
        calibration=prompt_facts.get_calibration_factor(branch, model=choice.model),
    )
    summary, window_to = prompt_facts.summary_and_window(restored, counter=counter)
    fixed = count_fixed_tokens(branch) + (summary.tokens if summary else 0)
    after, before = max(summary.to_seq if summary else 0, window_to), branch.last_seq + 1
    loaded = history.load_newest_messages(
        branch,
        after=after,
        before=before,
        values=choice.values,
        counter=counter,
        tokens=max(limit - fixed, 1),
        most=None,
    )
    sent = sum(
        estimate_sendable_tokens(message, values=choice.values)
        for message in loaded.messages
        if not message.excluded and not message.incomplete
    )
    if loaded.unloaded is not None:
        rows = history.select_path_messages(branch, after=after, before=loaded.unloaded[1] + 1)
        sent += rows.aggregate(total=Sum("token_count"))["total"] or 0
    if fixed + sent > limit:
        raise UndoDoesNotFit(tokens=fixed + sent, limit=limit)


@transaction.atomic
def redo_summary(*, user: AbstractBaseUser, compaction: Compaction, now: datetime) -> Compaction:
    """Activate an undone summary again, if the compaction that it replaced is active.

    This also ends the pause of the undo. Redoing an active summary changes nothing. Raises
    `NothingToRedo` and `NotAllowedByPolicy`.
    """
    branch = load_locked_active_branch(lock_chat(compaction.branch.chat_id))
    rows = Compaction.objects.select_related("branch", "displaced__base")
    row = rows.get(pk=compaction.pk)
    summary_permissions.check_summary_permission(user=user, chat=branch.chat, action="undo")
    if get_active_summary(branch.active_compaction) == row:
        return row
    active = branch.active_compaction
    if not can_be_redone(row, branch=branch):
        raise NothingToRedo
    by = f"user:{user.pk}"
    retire_pending_summary(branch, reason="redone", now=now, actor=by)
    # The next undo restores the compaction that is active now, including a window moved since.
    Compaction.objects.filter(pk=row.pk).update(
        status=Compaction.Status.PUBLISHED, displaced=active
    )
    coverage.activate_compaction(branch, to=find_last_window(row, branch=branch) or row)
    if branch.compaction_paused:
        pauses.end_pause(branch, reason="redone", actor=by, now=now)
    record_undo_event("compaction.redone", row=row, branch=branch, actor=by, now=now)
    return row


def find_last_window(row: Compaction, *, branch: Branch) -> Compaction | None:
    """Return the window over a summary when it was last active, or None.

    A summary is replaced together with its window, so the newest window is the right one.
    """
    windows = Compaction.objects.filter(base=row, kind=Compaction.Kind.WINDOW)
    newest_first = windows.order_by("-created_at", "-to_seq")
    return next(
        (window for window in newest_first if coverage.is_range_on_path(window, branch)), None
    )


def can_be_redone(row: Compaction, *, branch: Branch) -> bool:
    """Return True if an undone summary is still valid and its predecessor is active."""
    is_next = get_active_summary(branch.active_compaction) == get_active_summary(
        find_restorable_compaction(row, branch=branch)
    )
    was_used = row.status in {Compaction.Status.UNDONE, Compaction.Status.PUBLISHED}
    return is_next and was_used and coverage.is_true(row, branch)


def record_undo_event(
    event: str, *, row: Compaction, branch: Branch, actor: str, now: datetime
) -> None:
    """Record an undo or redo in the ledger, with its effect on the prompt's prefix."""
    forget_request(branch)
    record_compaction_event(
        event,
        row=row,
        now=now,
        actor=actor,
        branch=str(branch.pk),
        context_revision=branch.context_revision,
        prefix_break=event.rpartition(".")[2],
    )

"""Approval: under some policies, a user approves each summary before it takes effect."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.utils.translation import gettext_noop

from chats.compaction.coverage import close_attempt, record_compaction_event
from chats.compaction.people import summary_permissions
from chats.compaction.publish import publish_summary
from chats.ground.refusals import Refusal
from chats.models import Branch, Compaction
from chats.record.locking import lock_chat
from chats.record.message_text import check_characters

REASON_LENGTH = 400


class NotWaiting(Refusal):
    """The summary is no longer pending: it was approved or rejected, or became outdated."""

    code = "not_waiting"
    status = 409
    sentence = gettext_noop("This summary is no longer pending approval. Reload the chat.")


class ReasonTooLong(Refusal):
    """The reason has more than 400 characters. Reasons are never truncated."""

    code = "reason_too_long"
    status = 422
    sentence = gettext_noop(
        "The reason has {length} characters. The limit is {limit}. Shorten the reason."
    )
    param = "reason"


class Overtaken(Refusal):
    """The chat changed, so the summary cannot be used. A new summary is written."""

    code = "draft_overtaken"
    status = 409
    sentence = gettext_noop(
        "The chat has changed since this summary was written, so the summary was not used. A new "
        "summary follows automatically."
    )


def approve_summary(*, user: AbstractBaseUser, compaction: Compaction, now: datetime) -> Compaction:
    """Publish a summary that waits for approval.

    Raises `NotWaiting`, `NotAllowedByPolicy`, and `Overtaken`, which also retires the
    summary.
    """
    with transaction.atomic():
        branch, row = lock_waiting_summary(user=user, compaction=compaction)
        by = f"user:{user.pk}"
        Compaction.objects.filter(pk=row.pk).update(needs_approval=False)
        done = publish_summary(row, branch=branch, actor=by, now=now)
        if done:
            record_compaction_event("compaction.approved", row=row, now=now, actor=by)
    if not done:
        raise Overtaken
    row.refresh_from_db()
    return row


def check_rejection_reason(reason: str) -> str:
    """Return a reason without surrounding spaces. Raises `ReasonTooLong`, `InvalidCharacter`."""
    reason = reason.strip()
    if len(reason) > REASON_LENGTH:
        raise ReasonTooLong(length=len(reason), limit=REASON_LENGTH)
    check_characters(reason)
    return reason


@transaction.atomic
def reject_summary(
    *, user: AbstractBaseUser, compaction: Compaction, reason: str, now: datetime
) -> Compaction:
    """Reject a summary that waits for approval; the row stores the reason.

    Raises `NotWaiting`, `NotAllowedByPolicy`, and the refusals of `check_rejection_reason`.
    """
    reason = check_rejection_reason(reason)
    _, row = lock_waiting_summary(user=user, compaction=compaction)
    close_attempt(
        row=row,
        status=Compaction.Status.REJECTED,
        reason="rejected_by_person",
        now=now,
        actor=f"user:{user.pk}",
        remark=reason,
    )
    row.refresh_from_db()
    return row


def lock_waiting_summary(
    *, user: AbstractBaseUser, compaction: Compaction
) -> tuple[Branch, Compaction]:
    """Lock the chat of a summary that waits for approval. Return the branch and the summary.

    Raises `NotWaiting`, `NotAllowedByPolicy`, and the errors of `model_choice.choose_chat_model`.
    """
    lock_chat(compaction.branch.chat_id)
    branches = Branch.objects.select_related("active_compaction__base", "chat__owner")
    branch = branches.get(pk=compaction.branch_id)
    summary_permissions.check_summary_permission(user=user, chat=branch.chat, action="approve")
    row = Compaction.objects.select_related("branch", "displaced").get(pk=compaction.pk)
    if row.status != Compaction.Status.PREPARED or not row.needs_approval:
        raise NotWaiting
    return branch, row

"""Approval: under some policies a summary waits until a person has read it."""

from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from chats.compaction.coverage import close, record
from chats.compaction.people import rights
from chats.compaction.publish import publish
from chats.ground.refusals import Refusal
from chats.models import Branch, Compaction
from chats.record.locking import locked_chat
from chats.record.messages import UNSTORABLE, InvalidCharacter

REASON_LENGTH = 400


class NotWaiting(Refusal):
    """The summary was approved, rejected or overtaken already."""

    code = "not_waiting"
    status = 409
    sentence = "This summary no longer waits for approval. Look at the chat again."


class ReasonTooLong(Refusal):
    """The reason is over its limit; reasons are never cut."""

    code = "reason_too_long"
    status = 422
    sentence = "The reason has {length} characters; {limit} are allowed."
    param = "reason"


class Overtaken(Refusal):
    """The chat changed after the draft was written."""

    code = "draft_overtaken"
    status = 409
    sentence = "The chat has changed since this summary was written. A new one will follow."


def approve(*, user: AbstractBaseUser, compaction: Compaction, now: datetime) -> Compaction:
    """Put a waiting summary in force.

    Raises `NotWaiting`, `NotAllowedByPolicy`, and `Overtaken`, which is stored as the row's end.
    """
    with transaction.atomic():
        branch, row = waiting(user=user, compaction=compaction)
        by = f"user:{user.pk}"
        Compaction.objects.filter(pk=row.pk).update(needs_approval=False)
        done = publish(row, branch=branch, actor=by, now=now)
        if done:
            record("compaction.approved", row=row, now=now, actor=by)
    if not done:
        raise Overtaken
    row.refresh_from_db()
    return row


@transaction.atomic
def reject(
    *, user: AbstractBaseUser, compaction: Compaction, reason: str, now: datetime
) -> Compaction:
    """Refuse a waiting summary; the reason stays with the row.

    Raises `NotWaiting`, `NotAllowedByPolicy`, `ReasonTooLong` and `InvalidCharacter`.
    """
    reason = reason.strip()
    if len(reason) > REASON_LENGTH:
        raise ReasonTooLong(length=len(reason), limit=REASON_LENGTH)
    if found := UNSTORABLE.search(reason):
        raise InvalidCharacter(position=found.start())
    _, row = waiting(user=user, compaction=compaction)
    close(
        row=row,
        status=Compaction.Status.REJECTED,
        reason="rejected_by_person",
        now=now,
        actor=f"user:{user.pk}",
        remark=reason,
    )
    row.refresh_from_db()
    return row


def waiting(*, user: AbstractBaseUser, compaction: Compaction) -> tuple[Branch, Compaction]:
    """Return the draft with its locked branch. Raises `NotWaiting` and `NotAllowedByPolicy`."""
    locked_chat(compaction.branch.chat_id)
    branches = Branch.objects.select_related("active_compaction__base", "chat__owner")
    branch = branches.get(pk=compaction.branch_id)
    rights.check(user=user, chat=branch.chat, deed="approve")
    row = Compaction.objects.select_related("branch", "displaced").get(pk=compaction.pk)
    if row.status != Compaction.Status.PREPARED or not row.needs_approval:
        raise NotWaiting
    return branch, row

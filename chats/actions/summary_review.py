"""Shows an administrator a summary waiting for approval, next to its sources.

Reading another user's chat requires a reason, which the audit log records before anything is
shown.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User

from chats.compaction.people import summary_permissions
from chats.compaction.people.approve import NotWaiting
from chats.ground.refusals import NotFound
from chats.memory.search.searchable_text import collect_searchable_texts
from chats.models import Compaction
from chats.record import audit_access
from chats.record.history import select_path_messages

# Maximum number of sources shown, the newest ones.
MOST_SOURCES = 500


@dataclass(frozen=True, slots=True)
class ReviewSource:
    """A message that a summary covers. `author` is `said_by` in the reader's language."""

    seq: int
    said_by: str
    author: str
    text: str


@dataclass(frozen=True, slots=True)
class SummaryReview:
    """A waiting summary, the earlier summary that it continues, and the messages after that.

    `left_out` is the number of older messages that `sources` omits.
    """

    compaction: Compaction
    text: str
    earlier: str
    sources: Sequence[ReviewSource]
    left_out: int


def find_reviewable_summary(*, user: User, compaction_id: uuid.UUID) -> Compaction:
    """Return a summary that waits for the user's approval.

    Raises `NotFound`, `NotWaiting`, `NotAllowedByPolicy` and the refusals of
    `model_choice.choose_chat_model`.
    """
    rows = Compaction.objects.select_related("branch__chat__owner", "previous")
    row = rows.filter(pk=compaction_id, branch__chat__deleted_at=None).first()
    # Only its owner and administrators may learn that a summary exists.
    edits_policies = user.has_perm(summary_permissions.EDITS_POLICIES)
    if row is None or not (row.branch.chat.owner_id == user.pk or edits_policies):
        raise NotFound
    summary_permissions.check_summary_permission(user=user, chat=row.branch.chat, action="approve")
    if row.status != Compaction.Status.PREPARED or not row.needs_approval:
        raise NotWaiting
    return row


def find_review_expiry(row: Compaction, *, user: User, now: datetime) -> datetime | None:
    """Return the time until which the user may read the chat. None: a reason is needed first."""
    chat = row.branch.chat
    if chat.owner_id == user.pk:
        return now + audit_access.HALF_AN_HOUR
    return audit_access.get_reading_expiry(chat_id=chat.pk, actor=f"user:{user.pk}", now=now)


def read_summary(row: Compaction, *, user: User, now: datetime) -> SummaryReview:
    """Return the summary with its sources.

    The audit log first records the reading of another user's chat.
    Raises `ReadingNotOpen` if the chat is another user's and no reason was given.
    """
    chat, actor = row.branch.chat, f"user:{user.pk}"
    if chat.owner_id != user.pk:
        audit_access.require_open(chat_id=chat.pk, actor=actor, now=now)
        call = {"compaction": str(row.pk)}
        audit_access.note_read(chat_id=chat.pk, call=call, actor=actor, now=now)
    after = row.previous.to_seq if row.previous else row.from_seq - 1
    found = select_path_messages(row.branch, after=after, before=row.to_seq + 1).filter(
        erased_at=None
    )
    found = found.exclude(seq__in=row.exceptions)
    total = found.count()
    newest = list(found.order_by("-seq")[:MOST_SOURCES])[::-1]
    sources = [
        ReviewSource(
            message.seq or 0,
            message.said_by,
            message.author,
            "\n".join(collect_searchable_texts(message.parts)),
        )
        for message in newest
    ]
    earlier = row.previous.text if row.previous else ""
    return SummaryReview(row, row.text, earlier, sources, total - len(sources))

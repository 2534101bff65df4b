"""Limits for concurrent summaries, and the choice of the next one.

Each user has a few slots across all workers, so that one user's chats do not delay those of others.
A worker has fewer slots than threads, which leaves threads for other jobs. A chat without a slot is
marked in the database. Each finished summary starts the next one; users with the fewest summaries
in progress come first.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F, Q

from chats.ground import leases, queue
from chats.models import Branch, Chat, Compaction

# The outcome stored at the turn after which a summary was deferred.
PUT_OFF = "put_off"
# Maximum number of waiting branches that one choice reads.
MOST = 1000


def list_running_summaries() -> Any:
    """Return the summaries in progress, whose workers renew their claims."""
    return Compaction.objects.filter(leases.match_held_leases())


def lock_owner(chat_id: uuid.UUID) -> None:
    """Lock a chat's owner until the transaction ends.

    Call this before locking a branch, as when a team message is accepted.
    """
    owner = Chat.objects.filter(pk=chat_id).values("owner")
    list(User.objects.select_for_update(no_key=True).filter(pk__in=owner).values_list("pk"))


def has_place(branch: Branch) -> bool:
    """Return True if a slot is free for another summary of this branch's owner.

    The caller has locked the branch and its owner, so that two claims cannot take the same slot.
    """
    written = list_running_summaries().filter(branch__chat__owner=branch.chat.owner_id).count()
    return bool(written < settings.SUMMARIES_PER_USER)


def put_off(branch: Branch, *, now: datetime) -> None:
    """Mark the branch as waiting for a slot or a worker."""
    Branch.objects.filter(pk=branch.pk).update(summary_due_at=now)


def clear_summary_due(branch: Branch) -> None:
    """Clear the mark: the branch got a slot, or no summary is due."""
    Branch.objects.filter(pk=branch.pk, summary_due_at__isnull=False).update(summary_due_at=None)


def call_next(*, now: datetime) -> None:
    """Enqueue the task of a waiting chat after a slot has become free.

    This moves the chat to the end of the queue.
    """
    rows = list(list_waiting_branches()[:MOST])
    if not rows:
        return
    owners = {owner for _, _, owner in rows}
    busy = Counter(
        list_running_summaries()
        .filter(branch__chat__owner__in=owners)
        .values_list("branch__chat__owner", flat=True)
    )
    branch_id, chat_id, _ = min(rows, key=lambda row: busy[row[2]])
    Branch.objects.filter(pk=branch_id).update(summary_due_at=now)
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat_id)


def list_waiting_branches() -> Any:
    """Return the ids of branch, chat and owner of each waiting summary, longest wait first.

    A branch that is no longer active waits only for a user's request.
    """
    rows = Branch.objects.filter(summary_due_at__isnull=False, chat__deleted_at=None)
    rows = rows.filter(Q(chat__active_branch=F("pk")) | Q(asked_at__isnull=False))
    rows = rows.order_by("summary_due_at")
    return rows.values_list("pk", "chat", "chat__owner")


def find_overdue_chats() -> Iterator[Any]:
    """Yield chats whose summary has waited too long, at most `SUMMARIES_PER_USER` per owner."""
    since = leases.subtract_from_now(timedelta(seconds=settings.REQUEUE_AFTER))
    called: Counter[Any] = Counter()
    for _, chat_id, owner in list_waiting_branches().filter(summary_due_at__lt=since)[:MOST]:
        called[owner] += 1
        if called[owner] <= settings.SUMMARIES_PER_USER:
            yield chat_id

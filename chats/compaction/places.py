"""Places for summaries: limits how many are written at once, and chooses whose comes next.

A person has a few places over all workers, so that a hundred chats of one delay no summary of
another; a worker has as many as leave some of its threads to other work. A chat that finds no place
is put off in the database, and each summary that ends calls the next one: of the people who wait,
that of one who has the fewest summaries in the making.
"""

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import F

from chats.ground import leases, queue
from chats.models import Branch, Chat, Compaction

# The outcome written at the turn after which a summary was put off.
PUT_OFF = "put_off"
# The most waiting branches that one choice reads.
MOST = 1000


def living() -> Any:
    """Return the summaries that are being written, by workers that renew their claims."""
    return Compaction.objects.filter(leases.held())


def lock_owner(chat_id: uuid.UUID) -> None:
    """Lock a chat's owner: before a branch of it, as who accepts a message to a team does."""
    owner = Chat.objects.filter(pk=chat_id).values("owner")
    list(User.objects.select_for_update(no_key=True).filter(pk__in=owner).values_list("pk"))


def has_place(branch: Branch) -> bool:
    """Tell whether one more summary of this branch's owner may be written now.

    The caller has locked the branch and its owner, so that two claims see each other.
    """
    written = living().filter(branch__chat__owner=branch.chat.owner_id).count()
    return bool(written < settings.SUMMARIES_PER_USER)


def put_off(branch: Branch, *, now: datetime) -> None:
    """Remember that a summary of this branch waits for a place, or for a worker."""
    Branch.objects.filter(pk=branch.pk).update(summary_due_at=now)


def put_off_chat(chat_id: uuid.UUID, *, now: datetime) -> None:
    """Put off a chat's active branch before anybody has checked whether a summary is due."""
    active = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"))
    Branch.objects.filter(pk__in=list(active.values_list("pk", flat=True))).update(
        summary_due_at=now
    )


def settle(branch: Branch) -> None:
    """Note that the branch waits no longer: it has its place, or nothing is due any more."""
    Branch.objects.filter(pk=branch.pk, summary_due_at__isnull=False).update(summary_due_at=None)


def call_next(*, now: datetime) -> None:
    """Send the task of a chat that waits, because a place is free.

    Meanwhile the chat waits behind all others.
    """
    rows = list(waiting()[:MOST])
    if not rows:
        return
    owners = {owner for _, _, owner in rows}
    busy = Counter(
        living()
        .filter(branch__chat__owner__in=owners)
        .values_list("branch__chat__owner", flat=True)
    )
    branch_id, chat_id, _ = min(rows, key=lambda row: busy[row[2]])
    Branch.objects.filter(pk=branch_id).update(summary_due_at=now)
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat_id)


def waiting() -> Any:
    """Return branch, chat and owner of each summary that waits, the longest wait first."""
    rows = Branch.objects.filter(summary_due_at__isnull=False).order_by("summary_due_at")
    return rows.values_list("pk", "chat", "chat__owner")


def overdue() -> Iterator[Any]:
    """Yield chats that nobody called for too long: of each person as many as there are places."""
    since = leases.ago(timedelta(seconds=settings.REQUEUE_AFTER))
    called: Counter[Any] = Counter()
    for _, chat_id, owner in waiting().filter(summary_due_at__lt=since)[:MOST]:
        called[owner] += 1
        if called[owner] <= settings.SUMMARIES_PER_USER:
            yield chat_id

"""Coverage: which compaction replaces which messages on a branch, and the code that changes it.

`Branch.active_compaction` is the only source of truth. Code that changes it locks the branch,
checks that the active compaction and the context revision are still those it planned with, and
increments the revision. `record.locking` defines the order of locks.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

from django.db.models import Q

from chats.ground import queue
from chats.ground.commitments import compute_commitment
from chats.memory.search import index_schedule
from chats.models import Branch, Chat, Compaction, Message
from chats.record import history
from contextpolicy import ledger

IN_THE_MAKING = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]
# Statuses of a row that is or was active.
USABLE = [Compaction.Status.PUBLISHED, Compaction.Status.REPLACED]
# Statuses of a row that may become active.
ALIVE = [*USABLE, *IN_THE_MAKING, Compaction.Status.UNDONE]
WORKER = "worker"
# Reason of an attempt that ended with its process. The summariser did not fail.
HANDED_BACK = "handed_back"


def load_locked_branches(chat: Chat) -> list[Branch]:
    rows = Branch.objects.filter(chat=chat).select_related("active_compaction__base", "chat")
    return list(rows.order_by("pk"))


def load_locked_active_branch(chat: Chat) -> Branch:
    rows = Branch.objects.select_related("active_compaction__base", "chat__owner", "chat__model")
    return rows.get(chat=chat, pk=cast(uuid.UUID, chat.active_branch_id))


def get_active_summary(active: Compaction | None) -> Compaction | None:
    """Return the active summary: the active row, or the base of an active window.

    None if there is no active compaction, or only a window without a summary below it.
    """
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        return active.base
    return active


def walk_summary_chain(active: Compaction | None) -> Iterator[Compaction]:
    """Yield the active summary, the summary that it replaced, and so on, newest first."""
    row = get_active_summary(active)
    while row is not None:
        yield row
        row = get_active_summary(row.displaced)


def is_seq_covered(row: Compaction, seq: int) -> bool:
    """Return True if the summary covers the message with this seq."""
    return row.from_seq <= seq <= row.to_seq and seq not in row.exceptions


def is_message_on_path(branch: Branch, message: Message) -> bool:
    """Return True if the message is on the branch's path."""
    return message.seq is not None and any(
        part.contains(message.branch_id, message.seq) for part in history.list_path_segments(branch)
    )


def is_range_on_path(row: Compaction, branch: Branch) -> bool:
    """Return True if every message in the row's range is on the branch's path."""
    return any(
        part.branch_id == row.branch_id and row.to_seq <= part.to
        for part in history.list_path_segments(branch)
    )


def is_true(row: Compaction, branch: Branch) -> bool:
    """Return True if the summary may replace its messages on this branch.

    The messages must be on the path. None may be excluded or erased, except those that the
    summary lists as exceptions.
    """
    if row.erased_at or not row.text or not is_range_on_path(row, branch):
        return False
    rows = history.select_path_messages(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    withdrawn = rows.filter(Q(excluded=True) | Q(erased_at__isnull=False))
    return all(seq in row.exceptions for seq in withdrawn.values_list("seq", flat=True))


def is_usable(row: Compaction, branch: Branch) -> bool:
    """Return True if the summary was neither undone nor retired, and is valid on this branch."""
    return row.status in USABLE and is_true(row, branch)


def activate_compaction(branch: Branch, *, to: Compaction | None) -> None:
    """Make a row active on a locked branch (None: the originals), and increment its revision."""
    before = branch.active_compaction
    branch.active_compaction = to
    branch.context_revision += 1
    branch.save(update_fields=["active_compaction", "context_revision"])
    update_compaction_statuses(before, to)
    index_schedule.request_indexing(branch)
    queue.enqueue(queue.WARM_UP, branch_id=branch.pk, cause="swap")


def update_compaction_statuses(*rows: Compaction | None) -> None:
    """Update the status of rows that were activated or replaced on some branch."""
    named = {pk for row in rows if row for pk in (row.pk, row.base_id)}
    touched = [pk for pk in named if pk]
    # Branches share rows. The lock orders transactions that settle the same row on other branches.
    shared = Compaction.objects.select_for_update(no_key=True).filter(pk__in=touched)
    list(shared.order_by("pk").values_list("pk"))
    places = Branch.objects.filter(
        Q(active_compaction__in=touched) | Q(active_compaction__base__in=touched)
    )
    found = places.values_list("active_compaction", "active_compaction__base")
    active_ids = [pk for pair in found for pk in pair if pk]
    usable = Compaction.objects.filter(pk__in=touched, status__in=USABLE)
    usable.filter(pk__in=active_ids).update(status=Compaction.Status.PUBLISHED)
    usable.exclude(pk__in=active_ids).update(status=Compaction.Status.REPLACED)


def close_attempt(
    *,
    row: Compaction,
    status: str,
    reason: str,
    now: datetime,
    actor: str = WORKER,
    **values: Any,
) -> None:
    """End an attempt with its reason. Originals and the active summary do not change.

    A worker ends its own attempt without locking the branch, so other callers lock the row first.
    """
    Compaction.objects.filter(pk=row.pk).update(
        status=status,
        reason=reason[:500],
        lease_token="",
        lease_until=None,
        finished_at=now,
        **values,
    )
    # Reload: a call may have been recorded since the row was read.
    stored = Compaction.objects.only("calls", "bodies", "salt").get(pk=row.pk)
    ledger.record_event(
        f"compaction.{status}",
        actor=actor,
        now=now,
        chat_id=row.branch.chat_id,
        data={
            "compaction": str(row.pk),
            "reason": reason[:500],
            "calls": stored.calls,
            **build_body_commitments(stored),
        },
    )


def retire_summaries(
    rows: Iterable[Compaction], *, reason: str, now: datetime, actor: str
) -> list[str]:
    """Retire summaries permanently; a worker that still writes one loses its claim.

    Returns the ids of the retired summaries. A summary whose attempt has ended in the
    meantime keeps its status.
    """
    found = list(rows)
    living = Compaction.objects.select_for_update(no_key=True).filter(
        pk__in=[row.pk for row in found], status__in=ALIVE
    )
    alive = set(living.order_by("pk").values_list("pk", flat=True))
    taken = [row for row in found if row.pk in alive]
    for row in taken:
        close_attempt(
            row=row, status=Compaction.Status.OVERTAKEN, reason=reason, now=now, actor=actor
        )
    return [str(row.pk) for row in taken]


def retire_pending_summary(branch: Branch, *, reason: str, now: datetime, actor: str) -> None:
    """Retire the summary that is in progress or prepared on a branch whose context changed."""
    making = branch.compactions.select_related("branch").filter(status__in=IN_THE_MAKING)
    retire_summaries(making, reason=reason, now=now, actor=actor)


def lock_pending_summaries(chat: Chat) -> list[Compaction]:
    """Return the chat's summaries that are in progress or prepared, locked.

    Their rows come before turns and the head of the ledger in the order of locks.
    """
    rows = Compaction.objects.select_related("branch").filter(
        branch__chat=chat, status__in=IN_THE_MAKING
    )
    return list(rows.select_for_update(of=("self",), no_key=True).order_by("pk"))


def forget_summaries_due(chat: Chat) -> None:
    """End the pending requests of all branches of a chat, and their waiting for a summary."""
    waiting = Q(asked_at__isnull=False) | Q(summary_due_at__isnull=False)
    Branch.objects.filter(waiting, chat=chat).update(
        asked={}, asked_at=None, request_outcome=None, summary_due_at=None
    )


def list_covering_summaries(message: Message, *, branches: Sequence[Branch]) -> list[Compaction]:
    """Return every summary, in any status, that covers the message, newest first."""
    seq = message.seq or 0
    ids = [branch.pk for branch in branches if is_message_on_path(branch, message)]
    rows = Compaction.objects.filter(
        branch__in=ids, kind=Compaction.Kind.SUMMARY, from_seq__lte=seq, to_seq__gte=seq
    )
    found = rows.select_related("branch").order_by("-created_at", "-attempt")
    return [row for row in found if is_seq_covered(row, seq)]


def retire_covering_summaries(
    message: Message, *, chat: Chat, reason: str, now: datetime, actor: str
) -> tuple[list[str], list[Branch]]:
    """Retire every summary that covers the message, on all branches of a locked chat.

    Where one was active, the newest earlier summary without the message becomes active, if there is
    one, and the messages after it are sent again. The window leaves out messages that do not fit.
    If the active branch changed, a new summary is requested. Returns the ids of the retired
    summaries, and the branches whose context changed.
    """
    branches, seq = load_locked_branches(chat), message.seq or 0
    gone = [
        row for row in list_covering_summaries(message, branches=branches) if row.status in ALIVE
    ]
    changed = []
    for branch in branches:
        active = get_active_summary(branch.active_compaction)
        if (
            active is None
            or not is_seq_covered(active, seq)
            or not is_message_on_path(branch, message)
        ):
            continue
        earlier = (row for row in walk_summary_chain(active) if not is_seq_covered(row, seq))
        activate_compaction(
            branch, to=next((row for row in earlier if is_usable(row, branch)), None)
        )
        changed.append(branch)
    ids = retire_summaries(gone, reason=reason, now=now, actor=actor)
    if any(branch.pk == chat.active_branch_id for branch in changed):
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return ids, changed


def forget_request(branch: Branch) -> None:
    """Clear the stored outcome of a compaction request, because the user has acted since then."""
    Branch.objects.filter(pk=branch.pk).update(request_outcome=None)


def build_body_commitments(row: Compaction) -> dict[str, list[str]]:
    """Return the body commitments of a summary's calls, for the ledger."""
    if not row.bodies or not row.salt:
        return {}
    return {"bodies": [compute_commitment(body, salt=row.salt) for body in row.bodies]}


def record_compaction_event(
    event: str, *, row: Compaction, now: datetime, actor: str = WORKER, **more: object
) -> None:
    """Reload a row and record an event about it in the ledger: ranges and numbers, never text."""
    row.refresh_from_db()
    ledger.record_event(
        event,
        actor=actor,
        now=now,
        chat_id=row.branch.chat_id,
        data={
            "compaction": str(row.pk),
            "from_seq": row.from_seq,
            "to_seq": row.to_seq,
            "sources": row.source_count,
            "source_digest": row.source_digest,
            "tokens_before": row.tokens_before,
            "tokens_after": row.tokens_after,
            "text_commitment": row.text_commitment,
            "calls": row.calls,
            **build_body_commitments(row),
            "model": row.model_name,
            "policy": row.effective_policy_id,
            "trigger": row.trigger,
            **({"skills": row.skills} if row.skills else {}),
            **more,
        },
    )

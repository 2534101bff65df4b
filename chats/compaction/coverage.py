"""Coverage: which compaction stands for which messages on a branch, and the one place to swap it.

`Branch.active_compaction` is the only truth. Code that changes it holds the branch's row, compares
what was in force and the context revision with those that the change was planned on, and raises the
revision. The order of locks stands in `record.locking`.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, cast

from django.db.models import Q

from chats.ground import queue
from chats.ground.seals import commitment
from chats.memory import archive
from chats.models import Branch, Chat, Compaction, Message
from chats.record import history
from contextpolicy import ledger

IN_THE_MAKING = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]
# The statuses of a row that was in force once, or still is.
USABLE = [Compaction.Status.PUBLISHED, Compaction.Status.REPLACED]
# The statuses of a row that may still come into force, or come back.
ALIVE = [*USABLE, *IN_THE_MAKING, Compaction.Status.UNDONE]
WORKER = "worker"
# The reason of an attempt that ended with its process; it says nothing about the summariser.
HANDED_BACK = "handed_back"


def branches_of(chat: Chat) -> list[Branch]:
    """Return the branches of a locked chat with what is in force on them."""
    rows = Branch.objects.filter(chat=chat).select_related("active_compaction__base", "chat")
    return list(rows.order_by("pk"))


def active_branch(chat: Chat) -> Branch:
    """Return the active branch of a locked chat with what is in force on it."""
    rows = Branch.objects.select_related("active_compaction__base", "chat__owner", "chat__model")
    return rows.get(chat=chat, pk=cast(uuid.UUID, chat.active_branch_id))


def summary_of(active: Compaction | None) -> Compaction | None:
    """Return the summary in force: the active row, or the one under it if that is a window."""
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        return active.base
    return active


def chain(active: Compaction | None) -> Iterator[Compaction]:
    """Yield the summary in force, the one it displaced, and so on, newest first."""
    row = summary_of(active)
    while row is not None:
        yield row
        row = summary_of(row.displaced)


def covers(row: Compaction, seq: int) -> bool:
    """Tell whether a summary was made of the message at this place."""
    return row.from_seq <= seq <= row.to_seq and seq not in row.exceptions


def contains(branch: Branch, message: Message) -> bool:
    """Tell whether the message stands on the branch's path."""
    return message.seq is not None and any(
        part.branch_id == message.branch_id and part.after < message.seq <= part.to
        for part in history.segments(branch)
    )


def is_visible(row: Compaction, branch: Branch) -> bool:
    """Tell whether every message in the row's range stands on the branch's path."""
    return any(
        part.branch_id == row.branch_id and row.to_seq <= part.to
        for part in history.segments(branch)
    )


def is_true(row: Compaction, branch: Branch) -> bool:
    """Tell whether a summary may stand for its messages here.

    It may when all of them are on the path and none was withdrawn.
    """
    if row.erased_at or not row.text or not is_visible(row, branch):
        return False
    rows = history.on_path(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    withdrawn = rows.filter(Q(excluded=True) | Q(erased_at__isnull=False))
    return all(seq in row.exceptions for seq in withdrawn.values_list("seq", flat=True))


def swap(branch: Branch, *, to: Compaction | None) -> None:
    """Put a row (None: the originals) in force on a locked branch, and raise its revision."""
    before = branch.active_compaction
    branch.active_compaction = to
    branch.context_revision += 1
    branch.save(update_fields=["active_compaction", "context_revision"])
    settle(before, to)
    archive.catch_up(branch)
    queue.enqueue(queue.WARM_UP, branch_id=branch.pk, cause="swap")


def settle(*rows: Compaction | None) -> None:
    """Set the status of rows that changed places: in force on some branch, or on none."""
    named = {pk for row in rows if row for pk in (row.pk, row.base_id)}
    touched = [pk for pk in named if pk]
    # Branches share rows: a transaction that settles one of these on another branch comes first, or
    # waits until it can see the places.
    shared = Compaction.objects.select_for_update(no_key=True).filter(pk__in=touched)
    list(shared.order_by("pk").values_list("pk"))
    places = Branch.objects.filter(
        Q(active_compaction__in=touched) | Q(active_compaction__base__in=touched)
    )
    found = places.values_list("active_compaction", "active_compaction__base")
    in_force = [pk for pair in found for pk in pair if pk]
    usable = Compaction.objects.filter(pk__in=touched, status__in=USABLE)
    usable.filter(pk__in=in_force).update(status=Compaction.Status.PUBLISHED)
    usable.exclude(pk__in=in_force).update(status=Compaction.Status.REPLACED)


def close(
    *,
    row: Compaction,
    status: str,
    reason: str,
    now: datetime,
    actor: str = WORKER,
    **values: Any,
) -> None:
    """End an attempt with its reason; originals and the summary in force are untouched.

    A worker ends its own attempt without the branch, so whoever else does locks the row first.
    """
    Compaction.objects.filter(pk=row.pk).update(
        status=status,
        reason=reason[:500],
        lease_token="",
        lease_until=None,
        finished_at=now,
        **values,
    )
    # Read again: another call may have been booked since the row was read.
    stored = Compaction.objects.only("calls", "bodies", "salt").get(pk=row.pk)
    ledger.record(
        f"compaction.{status}",
        actor=actor,
        now=now,
        chat_id=row.branch.chat_id,
        data={
            "compaction": str(row.pk),
            "reason": reason[:500],
            "calls": stored.calls,
            **sealed_bodies(stored),
        },
    )


def overtake(rows: Iterable[Compaction], *, reason: str, now: datetime, actor: str) -> list[str]:
    """Take summaries out of use for good; a worker that still writes one finds its claim gone.

    Returns their ids. One that its worker ended meanwhile stays as it ended.
    """
    found = list(rows)
    living = Compaction.objects.select_for_update(no_key=True).filter(
        pk__in=[row.pk for row in found], status__in=ALIVE
    )
    alive = set(living.order_by("pk").values_list("pk", flat=True))
    taken = [row for row in found if row.pk in alive]
    for row in taken:
        close(row=row, status=Compaction.Status.OVERTAKEN, reason=reason, now=now, actor=actor)
    return [str(row.pk) for row in taken]


def overtake_making(branch: Branch, *, reason: str, now: datetime, actor: str) -> None:
    """End the summary that is being written or waits on a branch: its context is gone."""
    making = branch.compactions.select_related("branch").filter(status__in=IN_THE_MAKING)
    overtake(making, reason=reason, now=now, actor=actor)


def made_of(message: Message, *, branches: Sequence[Branch]) -> list[Compaction]:
    """Return every summary, in any status, that was made of the message, the newest first."""
    seq = message.seq or 0
    ids = [branch.pk for branch in branches if contains(branch, message)]
    rows = Compaction.objects.filter(
        branch__in=ids, kind=Compaction.Kind.SUMMARY, from_seq__lte=seq, to_seq__gte=seq
    )
    found = rows.select_related("branch").order_by("-created_at", "-attempt")
    return [row for row in found if covers(row, seq)]


def withdraw(
    message: Message, *, chat: Chat, reason: str, now: datetime, actor: str
) -> tuple[list[str], list[Branch]]:
    """Take every summary that was made of the message out of use, on all branches of a locked chat.

    Where one was in force, the newest summary without the message is in force again, so that the
    originals after it are sent; the window leaves out what no longer fits, and a new summary is
    asked for. Returns the ids of the summaries and the branches on which the context changed.
    """
    branches, seq = branches_of(chat), message.seq or 0
    gone = [row for row in made_of(message, branches=branches) if row.status in ALIVE]
    changed = []
    for branch in branches:
        in_force = summary_of(branch.active_compaction)
        if in_force is None or not covers(in_force, seq) or not contains(branch, message):
            continue
        swap(branch, to=next((row for row in chain(in_force) if not covers(row, seq)), None))
        changed.append(branch)
    ids = overtake(gone, reason=reason, now=now, actor=actor)
    if any(branch.pk == chat.active_branch_id for branch in changed):
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return ids, changed


def forget_request(branch: Branch) -> None:
    """Say no more of what a person asked for before: they did something else since."""
    Branch.objects.filter(pk=branch.pk).update(request_outcome=None)


def sealed_bodies(row: Compaction) -> dict[str, list[str]]:
    """Return the commitments to the bodies of a summary's calls, for a row of the ledger."""
    if not row.bodies or not row.salt:
        return {}
    return {"bodies": [commitment(body, salt=row.salt) for body in row.bodies]}


def record(
    event: str, *, row: Compaction, now: datetime, actor: str = WORKER, **more: object
) -> None:
    """Record an event of a compaction in the ledger: ranges and numbers, never its text."""
    row.refresh_from_db()
    ledger.record(
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
            **sealed_bodies(row),
            "model": row.model_name,
            "policy": row.effective_policy_id,
            "trigger": row.trigger,
            **more,
        },
    )

"""Erases a message's values in the states of a chat."""

from django.db.models import TextField
from django.db.models.functions import Cast

from chats.compaction.coverage import is_message_on_path, load_locked_branches
from chats.models import (
    Branch,
    ChatState,
    Compaction,
    Message,
    Receipt,
)
from chats.record import receipts, states
from chats.record.erasure_marks import ErasureMarks


def is_state(segment: receipts.Segment) -> bool:
    """Return True if a segment is a state or another tail, which may quote messages of the chat."""
    return bool(segment[0] == "tail" and segment[1] in {"state", "tail"})


def erase_states(message: Message, summaries: list[Compaction], marks: ErasureMarks) -> int:
    """Delete all state values that were set or changed since the message was created.

    A state that loses values gets a new version. This also discards a running extraction
    that read the message, and deletes prompt texts of states that may contain it. Returns the
    number of changed versions and deleted texts.
    """
    del summaries
    if message.seq is None:
        return 0
    seq, erased = message.seq, 0
    branches = [
        branch
        for branch in load_locked_branches(message.branch.chat)
        if is_message_on_path(branch, message)
    ]
    for branch in branches:
        erased += clear_states(branch, seq=seq, marks=marks)
    rows = Receipt.objects.filter(turn__branch__in=branches)
    rows = rows.annotate(said=Cast("segments", TextField())).filter(said__contains='"tail"')
    # A text sent before the message existed cannot contain it.
    older = {
        segment[5]
        for receipt in receipts.iter_erasable_receipts(rows.filter(last_seq__lt=seq))
        for segment in receipt.segments
    }
    newer = rows.filter(last_seq__gte=seq)
    return (
        erased
        + receipts.mark_erased_receipts(
            newer, gone=lambda segment: is_state(segment) and segment[5] not in older, marks=marks
        )[1]
    )


def clear_states(branch: Branch, *, seq: int, marks: ErasureMarks) -> int:
    """Delete the values that may contain a message from a branch's versions.

    Returns the number of changed versions.
    """
    cleared = 0
    for row in ChatState.objects.filter(branch=branch, to_seq__gte=seq):
        kept = {n: v for n, v in row.values.items() if row.origins.get(n, {}).get("seq", 0) < seq}
        if kept != row.values:
            row.values = kept
            row.origins = {name: row.origins[name] for name in kept}
            row.save(update_fields=["values", "origins"])
            cleared += 1
    if cleared:
        base = states.find_newest_state(branch)
        states.append_state_version(
            branch_id=branch.pk,
            base=base,
            kind=ChatState.Kind.ERASED,
            values=base.values if base else {},
            to_seq=base.to_seq if base else seq,
            now=marks.now,
        )
    return cleared

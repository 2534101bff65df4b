"""The window: leaves old messages out of prompts in one batch, without a model call."""

import uuid
from datetime import datetime

from django.db import transaction

from chats.compaction.coverage import get_active_summary, update_compaction_statuses
from chats.memory.search import index_schedule
from chats.models import Branch, Compaction
from chats.prompt.composition import WindowMoveRequired
from chats.prompt.moved_skills import find_window_skills
from chats.prompt.prepared_summary import CAP, is_window_kept
from chats.prompt.tokenizer import O200kCounter
from chats.prompt.widening import WIDENED
from chats.record.locking import lock_branch
from contextpolicy import ledger
from contextpolicy.engine.policy.policy import parse_policy_values


def is_makeshift(active: Compaction | None) -> bool:
    """Return True if the active window exists only because no summary was ready."""
    return active is not None and active.kind == Compaction.Kind.WINDOW and active.reason != CAP


@transaction.atomic
def move_window(
    *, branch_id: uuid.UUID, move: WindowMoveRequired, now: datetime
) -> Compaction | None:
    """Leave messages up to `move.needed.to_seq` out of prompts, by publishing a window.

    The active summary stays active below it. A widening move leaves out less than the previous
    window; if nothing is left out, the window ends and the summary is returned. Returns None if the
    branch already leaves out as much, or if the window to widen no longer exists. The caller starts
    the cache warm-up of the next prompt.
    """
    branch = lock_branch(branch_id)
    active = branch.active_compaction
    if move.needed.reason == WIDENED:
        if not is_makeshift(active) or active is None or active.to_seq <= move.needed.to_seq:
            return None
        base = get_active_summary(active)
        if move.needed.to_seq <= (base.to_seq if base else 0):
            return lift_window(branch, now=now)
    elif active is not None and active.to_seq >= move.needed.to_seq:
        return None
    row = create_window(
        Compaction(
            branch=branch,
            base=get_active_summary(active),
            previous=active,
            to_seq=move.needed.to_seq,
            reason=move.needed.reason,
            context_revision=branch.context_revision,
            effective_policy=move.effective,
            tokens_before=move.needed.tokens_before,
            tokens_after=move.needed.tokens_after,
        ),
        now=now,
    )
    branch.active_compaction = row
    branch.save(update_fields=["active_compaction"])
    update_compaction_statuses(active)
    index_schedule.request_indexing(branch)
    return row


def lift_window(branch: Branch, *, now: datetime) -> Compaction | None:
    """End the active window on a locked branch, so that prompts include all messages again.

    Returns the summary below the window, which stays active; None if there is none.
    """
    active = branch.active_compaction
    if active is None:
        return None
    branch.active_compaction = active.base
    branch.save(update_fields=["active_compaction"])
    update_compaction_statuses(active, active.base)
    index_schedule.request_indexing(branch)
    ledger.record_event(
        "window.lifted",
        actor="worker",
        now=now,
        chat_id=branch.chat_id,
        data={"compaction": str(active.pk), "from_seq": active.from_seq, "to_seq": active.to_seq},
    )
    return active.base


def keep_window_over_summary(
    row: Compaction, *, active: Compaction | None, now: datetime
) -> Compaction | None:
    """Store the active window over a new summary if it stays there; None if it does not."""
    if active is None or not is_window_kept(row, active=active):
        return None
    return create_window(
        Compaction(
            branch=row.branch,
            base=row,
            previous=active,
            to_seq=active.to_seq,
            reason=active.reason,
            context_revision=active.context_revision,
            effective_policy=active.effective_policy,
            tokens_before=active.tokens_before,
            tokens_after=active.tokens_after,
        ),
        now=now,
    )


def create_window(row: Compaction, *, now: datetime) -> Compaction:
    """Store a published window from the end of its summary to `to_seq`, with its event."""
    row.kind, row.status = Compaction.Kind.WINDOW, Compaction.Status.PUBLISHED
    row.trigger = "window"
    row.from_seq = (row.base.to_seq if row.base else 0) + 1
    row.source_count = row.to_seq - row.from_seq + 1
    row.skills = find_window_skills(
        row.branch,
        base=row.base,
        to_seq=row.to_seq,
        values=parse_policy_values(row.effective_policy.values),
        counter=O200kCounter(),
    )
    row.created_at = row.finished_at = row.published_at = now
    row.save(force_insert=True)
    ledger.record_event(
        "window.moved",
        actor="worker",
        now=now,
        chat_id=row.branch.chat_id,
        data={
            "compaction": str(row.pk),
            "from_seq": row.from_seq,
            "to_seq": row.to_seq,
            "tokens_before": row.tokens_before,
            "tokens_after": row.tokens_after,
            "reason": row.reason,
            **({"skills": row.skills} if row.skills else {}),
        },
    )
    return row

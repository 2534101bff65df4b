"""The never-wait window: history leaves the prompt in one batch, as a row, without a model."""

import uuid
from datetime import datetime

from django.db import transaction

from chats.compaction.coverage import settle, summary_of
from chats.memory import archive
from chats.models import Compaction
from chats.prompt.composition import Move, calibration_of
from chats.record.locking import locked_branch
from contextpolicy import ledger
from contextpolicy.engine.budget import in_our_count, prompt_limit
from contextpolicy.engine.policy import from_json
from contextpolicy.engine.window import MoveReason

# The reason of a window that no prompt moved: its chat had more messages than its team's cap.
CAP: MoveReason = "cap"


def is_makeshift(active: Compaction | None) -> bool:
    """Tell whether a window is in force that a prompt needed because no summary was ready."""
    return active is not None and active.kind == Compaction.Kind.WINDOW and active.reason != CAP


@transaction.atomic
def move(*, branch_id: uuid.UUID, move: Move, now: datetime) -> Compaction | None:
    """Leave everything up to `move.needed.to_seq` out of prompts, as a published `window` row.

    The summary in force stays in force under it. Returns None if the branch already leaves out as
    much. Whoever calls it has the model server read the prompt that follows.
    """
    branch = locked_branch(branch_id)
    active = branch.active_compaction
    if active is not None and active.to_seq >= move.needed.to_seq:
        return None
    row = hide(
        Compaction(
            branch=branch,
            base=summary_of(active),
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
    settle(active)
    archive.catch_up(branch)
    return row


def still_hidden(row: Compaction, *, active: Compaction | None, now: datetime) -> Compaction | None:
    """Put the window over a new summary once more, if too much to be sent comes after the summary.

    A chat that takes several summaries to catch up keeps its window meanwhile: without it the next
    prompt would have to move it to the same place again. One that a team's cap moved stays always.
    """
    if active is None or active.kind != Compaction.Kind.WINDOW or active.to_seq <= row.to_seq:
        return None
    model = row.branch.chat.model
    values = from_json(row.effective_policy.values)
    limit = prompt_limit(values, model_window=model.window if model else None)
    factor = calibration_of(row.branch, model=model) if model else 1.0
    fits = row.tokens_after <= in_our_count(limit, calibration=factor)
    if fits and active.reason != CAP:
        return None
    return hide(
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


def hide(row: Compaction, *, now: datetime) -> Compaction:
    """Store a window from behind its summary to `to_seq`, as published, with its event."""
    row.kind, row.status = Compaction.Kind.WINDOW, Compaction.Status.PUBLISHED
    row.trigger = "window"
    row.from_seq = (row.base.to_seq if row.base else 0) + 1
    row.source_count = row.to_seq - row.from_seq + 1
    row.created_at = row.finished_at = row.published_at = now
    row.save(force_insert=True)
    ledger.record(
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
        },
    )
    return row

"""The never-wait window: history leaves the prompt in one batch, as a row, without a model."""

import uuid
from datetime import datetime

from django.db import transaction

from chats.compaction.force import settle, summary_of
from chats.context import Move
from chats.memory import archive
from chats.models import Branch, Compaction
from contextpolicy import ledger


@transaction.atomic
def move(*, branch_id: uuid.UUID, move: Move, now: datetime) -> Compaction | None:
    """Leave everything up to `move.needed.to_seq` out of prompts, as a published `window` row.

    The summary in force stays in force under it. None when the branch already leaves out as much.
    """
    branch = Branch.objects.select_for_update(no_key=True).get(pk=branch_id)
    active = branch.active_compaction
    if active is not None and active.to_seq >= move.needed.to_seq:
        return None
    base = summary_of(active)
    covered = base.to_seq if base else 0
    row = Compaction.objects.create(
        branch=branch,
        kind=Compaction.Kind.WINDOW,
        status=Compaction.Status.PUBLISHED,
        base=base,
        previous=active,
        from_seq=covered + 1,
        to_seq=move.needed.to_seq,
        source_count=move.needed.to_seq - covered,
        trigger="window",
        reason=move.needed.reason,
        context_revision=branch.context_revision,
        effective_policy=move.effective,
        tokens_before=move.needed.tokens_before,
        tokens_after=move.needed.tokens_after,
        created_at=now,
        finished_at=now,
        published_at=now,
    )
    branch.active_compaction = row
    branch.save(update_fields=["active_compaction"])
    settle(active)
    archive.catch_up(branch)
    ledger.record(
        "window.moved",
        actor="worker",
        now=now,
        chat_id=branch.chat_id,
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

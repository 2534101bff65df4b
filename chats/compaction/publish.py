"""Store a finished summary, and put it in force by compare-and-swap."""

import hashlib
import uuid
from datetime import datetime
from typing import Any

from django.db import transaction

from chats.compaction.perform import Performed
from chats.compaction.plan import Claimed, close
from chats.compaction.sections import sections_of
from chats.models import Branch, Compaction
from contextpolicy import ledger


class ClaimLost(Exception):
    """The attempt was released as dead meanwhile: write nothing."""


@transaction.atomic
def store(*, claimed: Claimed, performed: Performed, now: datetime) -> bool:
    """Keep an accepted summary as prepared, or the attempt as rejected. True when prepared.

    Raises `ClaimLost` when the claim is no longer this process's.
    """
    check_claim(claimed)
    written = performed.written
    previous = claimed.plan.previous
    freed = sum(message.tokens for message in claimed.plan.sources)
    freed += previous.tokens if previous else 0
    result: dict[str, Any] = {
        "prompt_version": written.prompt_version,
        "usage": written.usage,
        "retention": performed.kept_facts,
        "tokens_after": max(claimed.plan.tokens_before - freed + performed.tokens, 0),
    }
    if performed.reasons:
        reason = ", ".join(performed.reasons)
        close(
            row=claimed.row,
            status=Compaction.Status.REJECTED,
            reason=reason,
            now=now,
            text=written.text,
            **result,
        )
        return False
    Compaction.objects.filter(pk=claimed.row.pk).update(
        status=Compaction.Status.PREPARED,
        text=written.text,
        text_sha256=hashlib.sha256(written.text.encode()).hexdigest(),
        sections=sections_of(written.text),
        lease_token="",
        lease_until=None,
        finished_at=now,
        **result,
    )
    record("compaction.prepared", row=claimed.row, now=now)
    return True


@transaction.atomic
def fail(*, claimed: Claimed, reason: str, now: datetime) -> None:
    """Book an attempt that brought no summary. Raises `ClaimLost`."""
    check_claim(claimed)
    close(row=claimed.row, status=Compaction.Status.FAILED, reason=reason, now=now)


def check_claim(claimed: Claimed) -> None:
    """Lock the attempt's row; it must still carry this process's token."""
    mine = Compaction.objects.select_for_update().filter(
        pk=claimed.row.pk, status=Compaction.Status.PREPARING, lease_token=claimed.token
    )
    if not mine.exists():
        raise ClaimLost(claimed.row.pk)


@transaction.atomic
def publish_prepared(*, branch_id: uuid.UUID, now: datetime) -> bool:
    """Put the branch's prepared summary in force. False when there is none, or it was overtaken.

    It is overtaken when the summary it folds is no longer the one in force, or when what stands
    under it changed (the context revision). A window that was published meanwhile changes neither.
    """
    branch = Branch.objects.select_for_update().get(pk=branch_id)
    row = branch.compactions.filter(status=Compaction.Status.PREPARED).first()
    if row is None:
        return False
    active = branch.active_compaction
    base = active.base if active and active.kind == Compaction.Kind.WINDOW else active
    expected = (row.previous_id, row.context_revision)
    if (base.pk if base else None, branch.context_revision) != expected:
        close(row=row, status=Compaction.Status.OVERTAKEN, reason="the context changed", now=now)
        return False
    replaced = [compaction.pk for compaction in (base, active) if compaction]
    Compaction.objects.filter(pk__in=replaced).update(status=Compaction.Status.REPLACED)
    Compaction.objects.filter(pk=row.pk).update(
        status=Compaction.Status.PUBLISHED, published_at=now
    )
    branch.active_compaction = row
    branch.context_revision += 1
    branch.save(update_fields=["active_compaction", "context_revision"])
    record("compaction.published", row=row, now=now)
    return True


def record(event: str, *, row: Compaction, now: datetime) -> None:
    """The ledger's words about a compaction: ranges and numbers, never its text."""
    row.refresh_from_db()
    ledger.record(
        event,
        actor="worker",
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
            "text_sha256": row.text_sha256,
            "model": row.model_name,
            "policy": row.effective_policy_id,
            "trigger": row.trigger,
        },
    )

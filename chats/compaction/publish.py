"""Stores a finished summary, and publishes it by compare-and-swap."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.db import transaction

from chats.compaction import coverage, summary_slots, window
from chats.compaction.calls import CallRecord
from chats.compaction.claims import CLAIMS, Claimed
from chats.compaction.coverage import (
    HANDED_BACK,
    close_attempt,
    record_compaction_event,
)
from chats.compaction.perform import Performed
from chats.compaction.provenance import attribute_sections
from chats.ground import leases, queue
from chats.ground.commitments import compute_commitment
from chats.ground.failpoints import failpoint
from chats.memory.preferences import inference_queue
from chats.models import Branch, Compaction
from chats.prompt import moved_skills, prepared_summary, prompt_facts
from chats.prompt.tokenizer import O200kCounter
from chats.record import quotas
from chats.record.locking import lock_branch
from contextpolicy.engine.policy.budget import (
    compute_low_mark,
    compute_prompt_limit,
    convert_provider_tokens,
)
from contextpolicy.engine.summaries.ladder import classify_attempt


def store_summary(*, claimed: Claimed, performed: Performed, now: datetime) -> bool:
    """Store an accepted summary as prepared, or the attempt as rejected. Return True if prepared.

    Raises `LeaseLost` if this process no longer holds the claim.
    """
    written = performed.written
    # Everything for the row is read and counted before the lock.
    result = measure_attempt(claimed, performed)
    if performed.reasons:
        end_attempt(
            claimed,
            status=Compaction.Status.REJECTED,
            reason=", ".join(performed.reasons),
            now=now,
            text=written.text,
            **result,
        )
        return False
    result |= {
        "text": written.text,
        "text_commitment": compute_commitment(written.text, salt=claimed.row.salt),
        "sections": attribute_sections(written.text, plan=claimed.plan, branch=claimed.row.branch),
        "reason": explain_shortfall(claimed, tokens_after=result["tokens_after"]),
    }
    with transaction.atomic():
        claimed.lease.finish(status=Compaction.Status.PREPARED, finished_at=now, **result)
        record_compaction_event("compaction.prepared", row=claimed.row, now=now)
    return True


def measure_attempt(claimed: Claimed, performed: Performed) -> dict[str, Any]:
    """Return the columns with the numbers of an attempt, whether accepted or rejected.

    They include its cost, duration, facts and token count, and the token count of the prompt after
    it.
    """
    previous = claimed.plan.previous
    freed = sum(message.tokens for message in claimed.plan.sources)
    freed += previous.tokens if previous else 0
    return {
        "skills": find_summary_skills(claimed),
        "prompt_version": performed.written.prompt_version,
        "usage": performed.written.usage,
        "bodies": performed.written.bodies,
        "cost": performed.cost,
        "currency": claimed.summariser.currency if claimed.summariser else "",
        "duration_ms": performed.duration_ms,
        "retention": performed.kept_facts,
        "summary_tokens": performed.tokens,
        "tokens_after": max(claimed.plan.tokens_before - freed + performed.tokens, 0),
    }


def find_summary_skills(claimed: Claimed) -> list[str]:
    """Return the skills that the summary moves to the system text.

    Skills that an earlier compaction moved are left out unless they were loaded again
    since. A summary that revises another one moves the same skills as that one.
    """
    row, previous = claimed.row, claimed.plan.previous
    if row.revises is not None:
        return list(row.revises.skills or ())
    return moved_skills.find_moved_skills(
        row.branch,
        after=previous.to_seq if previous else 0,
        to_seq=row.to_seq,
        values=claimed.values,
        counter=O200kCounter(),
    )


def explain_shortfall(claimed: Claimed, *, tokens_after: int) -> str:
    """Return `insufficient` if the prompt stays over the low mark with this summary, else ""."""
    model = claimed.row.branch.chat.model
    window = model.window if model else None
    factor = prompt_facts.get_calibration_factor(claimed.row.branch, model=model) if model else 1.0
    low = compute_low_mark(
        claimed.values, prompt_limit=compute_prompt_limit(claimed.values, model_window=window)
    )
    outcome = classify_attempt(
        claimed.plan.tokens_before,
        tokens_after,
        low=convert_provider_tokens(low, calibration=factor),
    )
    return outcome if outcome == "insufficient" else ""


@transaction.atomic
def end_attempt(
    claimed: Claimed, *, status: str, reason: str, now: datetime, **values: Any
) -> None:
    """End an attempt that produced no summary. Raises `LeaseLost`."""
    claimed.lease.lock_row()
    close_attempt(row=claimed.row, status=status, reason=reason, now=now, **values)


def mark_attempt_failed(*, claimed: Claimed, reason: str, now: datetime) -> None:
    """Record an attempt as failed, with the code of the reason. Raises `LeaseLost`."""
    end_attempt(claimed, status=Compaction.Status.FAILED, reason=reason, now=now)


@transaction.atomic
def hand_back_attempt(*, claimed: Claimed, now: datetime) -> None:
    """End an attempt because this process is shutting down. Another worker starts it again.

    Raises `LeaseLost`.
    """
    branch = lock_branch(claimed.row.branch_id)
    mark_attempt_failed(claimed=claimed, reason=HANDED_BACK, now=now)
    # A user's request is repeated with the same options.
    if asked := claimed.attempt.asked:
        Branch.objects.filter(pk=branch.pk, asked_at=None).update(asked=asdict(asked), asked_at=now)
    summary_slots.put_off(branch, now=now)
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=branch.chat_id)


def renew_all(tokens: dict[uuid.UUID, str]) -> None:
    """Extend several claims. `tokens` maps row ids to claim tokens.

    A lost claim is not restored.
    """
    held = CLAIMS.select_rows().filter(pk__in=tokens, lease_token__in=tokens.values())
    held.update(lease_until=leases.compute_lease_end())


@transaction.atomic
def renew_claim(
    claimed: Claimed, clock: Callable[[], datetime], prompt: str, record: CallRecord
) -> None:
    """Record a call before it is made, and extend the claim.

    Raises `LeaseLost`, and `quotas.QuotaExceeded` if the chat's owner has no tokens left.

    `record`: the parts of this request and all earlier ones. Only the process with the claim
    records calls, so the row stays complete whichever process ends the attempt.
    """
    if claimed.summariser:
        quotas.check_policy_quota(
            owner_id=claimed.row.branch.chat.owner_id,
            values=claimed.values,
            prices=claimed.summariser.prices,
            now=clock(),
            own=claimed.row,
        )
    calls = claimed.lease.select_row().values_list("calls", flat=True).first() or []
    booked = [*calls, compute_commitment(prompt, salt=claimed.row.salt)]
    claimed.lease.renew(calls=booked, made_of=record.as_stored())


def count_summary_call(
    claimed: Claimed, clock: Callable[[], datetime], usage: Mapping[str, int], estimate: int
) -> None:
    """Count an answered call of the summariser towards the quotas of the chat's owner.

    `estimate`: the size of its prompt in local tokens.
    """
    meter = claimed.summariser and quotas.build_quota_meter(
        owner_id=claimed.row.branch.chat.owner_id,
        values=claimed.values,
        prices=claimed.summariser.prices,
        estimate=estimate,
    )
    if meter:
        quotas.add_usage(meter, usage=usage, is_answered=True, now=clock())


@transaction.atomic
def publish_prepared(*, branch_id: uuid.UUID, now: datetime) -> bool:
    """Publish the branch's prepared summary; return True if published.

    False if there is none, if it is outdated, or while it waits for approval.
    """
    branch = lock_branch(branch_id)
    row = prepared_summary.find_prepared_summary(branch)
    return row is not None and publish_summary(row, branch=branch, actor=coverage.WORKER, now=now)


def publish_summary(row: Compaction, *, branch: Branch, actor: str, now: datetime) -> bool:
    """Publish a prepared row on its locked branch. Retire it and return False if it is outdated.

    The row is outdated if another summary became active since planning, if the context
    revision changed, or if the row no longer applies to the path. A window published in the
    meantime does not matter.
    """
    active = branch.active_compaction
    is_current = prepared_summary.is_current_summary(row, branch)
    if not is_current or not coverage.is_true(row, branch):
        reason = "context_changed"
        close_attempt(
            row=row, status=Compaction.Status.OVERTAKEN, reason=reason, now=now, actor=actor
        )
        return False
    Compaction.objects.filter(pk=row.pk).update(
        status=Compaction.Status.PUBLISHED, published_at=now, displaced=active
    )
    coverage.activate_compaction(
        branch, to=window.keep_window_over_summary(row, active=active, now=now) or row
    )
    failpoint("in_publication")
    record_compaction_event("compaction.published", row=row, now=now, actor=actor)
    # Preferences are read now, while the summarised messages are still in the model server's cache.
    inference_queue.schedule_immediate_reading(branch.chat_id, now=now)
    return True

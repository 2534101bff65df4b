"""Pauses of automatic compaction, after an undo or after consecutive failures."""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import QuerySet

from chats.compaction.coverage import HANDED_BACK, IN_THE_MAKING, load_locked_active_branch
from chats.compaction.window import is_makeshift
from chats.ground import queue
from chats.models import Branch, Chat, Compaction
from chats.prompt import model_choice, prompt_facts
from chats.record.locking import lock_chat
from chats.record.quotas import QuotaExceeded
from contextpolicy import ledger
from contextpolicy.engine.policy.budget import compute_prompt_limit, convert_provider_tokens
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan
from contextpolicy.engine.summaries.ladder import (
    Attempt,
    AttemptOutcome,
    Breaker,
    Rung,
    compute_model_breaker,
    compute_scope_breaker,
)

# Number of attempts a circuit breaker considers: enough for its longest pause.
LAST = 12
MODEL_RUNGS: tuple[Rung, ...] = ("model", "model_again", "smaller_source")
# Reasons of attempts that a user ended, which are not failures of the summariser.
BY_PEOPLE = frozenset({"cancelled", "rejected_by_person"})


def list_counted_attempts(branch: Branch) -> QuerySet[Compaction]:
    """Return the finished summary attempts that the breaker counts, newest first."""
    rows = branch.compactions.filter(kind=Compaction.Kind.SUMMARY).exclude(rung="")
    if branch.breaker_reset_at:
        rows = rows.filter(created_at__gt=branch.breaker_reset_at)
    # The summariser did not fail if its worker ended, or if a quota was used up.
    rows = rows.exclude(
        status=Compaction.Status.FAILED, reason__in=(HANDED_BACK, QuotaExceeded.code)
    )
    return rows.exclude(status__in=IN_THE_MAKING).order_by("-created_at", "-attempt")


def build_ladder_attempt(row: Compaction) -> Attempt:
    outcome: AttemptOutcome = "published"
    if row.reason in BY_PEOPLE:
        outcome = "stopped"
    elif row.status == Compaction.Status.FAILED:
        outcome = "failed"
    elif row.status == Compaction.Status.REJECTED:
        outcome = "rejected"
    rung: Rung = next((name for name in MODEL_RUNGS if name == row.rung), "extractive")
    return Attempt(rung, outcome, tuple(row.reason.split(", ")), at=row.created_at)


def list_latest_attempts(rows: QuerySet[Compaction]) -> list[Attempt]:
    """Return the newest attempts in `rows`, oldest first, as many as the breaker needs."""
    attempts = [
        build_ladder_attempt(row) for row in rows.defer("text", "sections", "retention")[:LAST]
    ]
    return attempts[::-1]


def load_branch_breaker(
    branch: Branch, *, choice: model_choice.ChosenModel, now: datetime
) -> Breaker:
    """Return the circuit breaker of this branch. A new policy or model resets it."""
    rows = list_counted_attempts(branch).filter(effective_policy=choice.effective)
    return compute_scope_breaker(list_latest_attempts(rows), now=now)


def load_model_breaker(branch: Branch, *, model_name: str, now: datetime) -> Breaker:
    """Return the circuit breaker of a summarising model.

    It counts only attempts that called this model.
    """
    rows = list_counted_attempts(branch).filter(rung__in=MODEL_RUNGS, model_name=model_name)
    return compute_model_breaker(list_latest_attempts(rows), now=now)


def can_compact_automatically(
    branch: Branch, *, choice: model_choice.ChosenModel, plan: CompactionPlan, now: datetime
) -> bool:
    """Return True if automatic compaction may run here; ends a pause that has expired.

    A pause after an undo ends when someone resumes, after the policy's period, or when the prompt
    no longer fits. It does not fit if it is over its limit, or if only a window keeps it below.
    """
    if not branch.compaction_paused:
        return True
    hours, since = choice.values.undo_pause_hours, branch.paused_at
    if hours is not None and since is not None and now >= since + timedelta(hours=hours):
        reason = "time_is_over"
    elif is_prompt_over_limit(branch, choice=choice, plan=plan):
        reason = "no_longer_fits"
    else:
        return False
    end_pause(branch, reason=reason, actor="worker", now=now)
    return True


def is_prompt_over_limit(
    branch: Branch, *, choice: model_choice.ChosenModel, plan: CompactionPlan
) -> bool:
    """Return True if the prompt is over its limit, or if a window moved during the pause."""
    active, since = branch.active_compaction, branch.paused_at
    if active is not None and is_makeshift(active):
        moved = active.published_at
        return since is None or moved is None or moved > since
    limit = compute_prompt_limit(choice.values, model_window=choice.model.window)
    return plan.tokens_before >= convert_provider_tokens(
        limit, calibration=prompt_facts.get_calibration_factor(branch, model=choice.model)
    )


def end_pause(branch: Branch, *, reason: str, actor: str, now: datetime) -> None:
    """Resume automatic compaction; the caller has locked the branch."""
    branch.compaction_paused = False
    branch.paused_at = None
    branch.save(update_fields=["compaction_paused", "paused_at"])
    ledger.record_event(
        "compaction.resumed",
        actor=actor,
        now=now,
        chat_id=branch.chat_id,
        data={"branch": str(branch.pk), "reason": reason},
    )


@transaction.atomic
def resume_compaction(*, chat: Chat, actor: str, now: datetime) -> Branch:
    """Resume automatic compaction after an undo. Repeating it changes nothing."""
    branch = load_locked_active_branch(lock_chat(chat.pk))
    if branch.compaction_paused:
        end_pause(branch, reason="resumed", actor=actor, now=now)
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return branch


@transaction.atomic
def reset_breaker(*, chat: Chat, actor: str, now: datetime) -> Branch:
    """Reset the failures of the chat's active branch, so that the next attempt calls the model."""
    branch = load_locked_active_branch(lock_chat(chat.pk))
    branch.breaker_reset_at = now
    branch.save(update_fields=["breaker_reset_at"])
    ledger.record_event(
        "compaction.breaker_reset",
        actor=actor,
        now=now,
        chat_id=chat.pk,
        data={"branch": str(branch.pk)},
    )
    queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat.pk)
    return branch

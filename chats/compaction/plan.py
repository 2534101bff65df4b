"""Decide what to fold and claim it: one compaction in the making per branch.

The claim is a row with a lease, so that a worker that dies leaves something to see, and a second
worker finds the place taken.
"""

import secrets
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Min
from django.db.models.functions import Now

from chats import context, history
from chats.models import Branch, Compaction, Message, Receipt, Turn
from contextpolicy import ledger
from contextpolicy.engine import messages as engine
from contextpolicy.engine.budget import in_our_count, prompt_limit
from contextpolicy.engine.compaction import CompactionPlan, NotNeeded
from contextpolicy.engine.compaction import plan as plan_values
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

EXTRACTIVE = "extractive"
IN_THE_MAKING = [Compaction.Status.PREPARING, Compaction.Status.PREPARED]
# Messages that one plan looks at; what lies beyond waits for the next plan.
MOST_MESSAGES = 2000
FAILURES_TO_PAUSE = 3
PAUSE = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A planned compaction that this process may perform."""

    row: Compaction
    token: str
    plan: CompactionPlan
    values: PolicyValues
    summariser: ModelSpec | None


def claim(*, chat_id: uuid.UUID, counter: TokenCounter, now: datetime) -> Claimed | None:
    """Plan the next compaction of the chat's active branch and take it, or None: nothing is due.

    None also while one is in the making, after an undo, and for a while after repeated failures.
    """
    with transaction.atomic():
        branch = (
            Branch.objects.select_for_update(of=("self",))
            .select_related("chat__owner", "chat__model", "active_compaction__base")
            .filter(chat_id=chat_id, chat__active_branch=F("pk"))
            .first()
        )
        if branch is None or branch.compaction_paused:
            return None
        release_dead(branch=branch, now=now)
        if is_taken(branch) or is_failing(branch, now=now):
            return None
        try:
            choice = context.choose(chat=branch.chat)
        except (context.NoModel, context.ModelNotAllowed):
            return None
        summariser = find_summariser(choice.values)
        found = plan_for(branch, choice=choice, summariser=summariser, counter=counter)
        if isinstance(found, NotNeeded):
            return None
        return store_claim(branch, choice=choice, summariser=summariser, plan=found, now=now)


def release_dead(*, branch: Branch, now: datetime) -> None:
    """Close the claim of a worker that ended: its row says so, and the place is free."""
    dead = branch.compactions.filter(
        status=Compaction.Status.PREPARING, lease_until__lt=Now()
    ).first()
    if dead is None:
        return
    close(row=dead, status=Compaction.Status.FAILED, reason="worker_lost", now=now)


def close(*, row: Compaction, status: str, reason: str, now: datetime, **values: Any) -> None:
    """End an attempt with its reason; originals and the summary in force are untouched."""
    Compaction.objects.filter(pk=row.pk).update(
        status=status,
        reason=reason[:500],
        lease_token="",
        lease_until=None,
        finished_at=now,
        **values,
    )
    ledger.record(
        f"compaction.{status}",
        actor="worker",
        now=now,
        chat_id=row.branch.chat_id,
        data={"compaction": str(row.pk), "reason": reason[:500]},
    )


def is_taken(branch: Branch) -> bool:
    """A compaction of this branch is being written or waits to be published."""
    return branch.compactions.filter(status__in=IN_THE_MAKING).exists()


def is_failing(branch: Branch, *, now: datetime) -> bool:
    """The last attempts all failed a short time ago: leave it for a while."""
    rows = branch.compactions.filter(kind=Compaction.Kind.SUMMARY).order_by("-created_at")
    last = list(rows.values_list("status", "created_at")[:FAILURES_TO_PAUSE])
    bad = {Compaction.Status.FAILED, Compaction.Status.REJECTED}
    return (
        len(last) == FAILURES_TO_PAUSE
        and all(status in bad for status, _ in last)
        and last[0][1] > now - PAUSE
    )


def find_summariser(values: PolicyValues) -> ModelSpec | None:
    """The model that writes summaries; None means the extractive one, which needs no model."""
    if not values.summarization_model:
        return None
    return ModelSpec.objects.filter(slug=values.summarization_model, enabled=True).first()


def plan_for(
    branch: Branch,
    *,
    choice: context.Choice,
    summariser: ModelSpec | None,
    counter: TokenCounter,
) -> CompactionPlan | NotNeeded:
    """What the engine says about the finished turns after the summary in force."""
    summary, _ = context.in_force(branch.active_compaction, counter=counter)
    limit = prompt_limit(choice.values, model_window=choice.model.window)
    _, others = context.never_folded(branch, summary=summary, window_to=0, counter=counter)
    source_limit = None
    if summariser is not None and summariser.window:
        source_limit = max(summariser.window - choice.values.summary_max_tokens - 1500, 1000)
    return plan_values(
        (*others, *finished(branch, after=summary.to_seq if summary else 0, counter=counter)),
        previous=summary,
        values=choice.values,
        prompt_limit=in_our_count(limit, calibration=choice.model.calibration),
        fixed_tokens=fixed_tokens(branch),
        source_limit=source_limit,
        counter=counter,
    )


def finished(branch: Branch, *, after: int, counter: TokenCounter) -> tuple[engine.Message, ...]:
    """The oldest messages after `after` that belong to no unfinished turn."""
    unfinished = Turn.objects.filter(
        branch=branch, status__in=[Turn.Status.QUEUED, Turn.Status.RUNNING]
    )
    # By the turns' ids: a join would walk every message of the branch.
    ids = list(unfinished.values_list("pk", flat=True))
    taken = Message.objects.filter(turn__in=ids, seq__isnull=False)
    open_from = taken.aggregate(first=Min("seq"))["first"]
    rows = history.on_path(branch, after=after, before=open_from or branch.last_seq + 1)
    return history.load_all(rows.order_by("seq")[:MOST_MESSAGES], counter=counter)


def fixed_tokens(branch: Branch) -> int:
    """What the last prompt spent on parts that are no history, in our count."""
    rows = Receipt.objects.filter(turn__branch=branch, call__gt=Receipt.FOR_STATE)
    receipt = rows.order_by("-created_at").only("budget").first()
    if receipt is None:
        return 0
    return sum(receipt.budget.get(part, 0) for part in ("system", "tools", "pins", "tail"))


def store_claim(
    branch: Branch,
    *,
    choice: context.Choice,
    summariser: ModelSpec | None,
    plan: CompactionPlan,
    now: datetime,
) -> Claimed:
    """The row of an attempt that begins now."""
    token = secrets.token_urlsafe(32)
    lease = ExpressionWrapper(
        Now() + timedelta(seconds=settings.SUMMARY_SECONDS + settings.LEASE_SECONDS),
        output_field=DateTimeField(),
    )
    row = Compaction.objects.create(
        branch=branch,
        kind=Compaction.Kind.SUMMARY,
        status=Compaction.Status.PREPARING,
        previous_id=uuid.UUID(plan.previous.id) if plan.previous else None,
        from_seq=plan.from_seq,
        to_seq=plan.to_seq,
        exceptions=list(plan.exceptions),
        source_count=len(plan.sources),
        source_digest=plan.sources_digest,
        trigger=plan.trigger,
        context_revision=branch.context_revision,
        effective_policy=choice.effective,
        model_name=summariser.name if summariser else EXTRACTIVE,
        tokens_before=plan.tokens_before,
        lease_token=token,
        lease_until=lease,
        created_at=now,
    )
    ledger.record(
        "compaction.started",
        actor="worker",
        now=now,
        chat_id=branch.chat_id,
        data={
            "compaction": str(row.pk),
            "from_seq": row.from_seq,
            "to_seq": row.to_seq,
            "trigger": row.trigger,
            "model": row.model_name,
        },
    )
    return Claimed(row=row, token=token, plan=plan, values=choice.values, summariser=summariser)

"""Claims compactions: at most one is in progress per branch.

The claim is a row with a lease. It blocks a second worker. If the worker dies, the
lease expires, and the row shows that the attempt did not end.
"""

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from chats.compaction import pauses, summary_slots
from chats.compaction.attempts import AttemptSpec, CompactionRequest, find_attempt_branch
from chats.compaction.coverage import (
    IN_THE_MAKING,
    WORKER,
    close_attempt,
    get_active_summary,
    retire_pending_summary,
)
from chats.compaction.plan import (
    ClaimDraft,
    draft_compaction,
    is_worth_it,
    snapshot_branch_state,
)
from chats.ground import leases, queue
from chats.ground.background_lock import alone
from chats.ground.jobs import Job, JobLease
from chats.models import Branch, Compaction, Turn
from chats.models.compactions import EXTRACTIVE
from chats.prompt import model_choice
from chats.record import locking, zones
from contextpolicy import ledger
from contextpolicy.engine.messages.messages import Message
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)

# A function that returns the current time.
Clock = Callable[[], datetime]
CLAIMS = Job(Compaction, is_open=Q(status=Compaction.Status.PREPARING))
# Maximum planning attempts of a claim, because the branch may change during planning.
LOOKS = 3
WORKER_LOST = "worker_lost"
# Lost workers after which a user's request is not repeated.
MOST_LOST = 3


@dataclass(frozen=True, slots=True)
class Claimed:
    """A planned compaction that this process has claimed.

    `readable`: the maximum local tokens of one request to the summariser; None if no model is
    called. `cited`: the messages to which the source marks of the previous summary refer. `zone`:
    the time zone of the dates in the prompt; empty if it has no dates.
    """

    row: Compaction
    lease: JobLease[Compaction]
    plan: CompactionPlan
    values: PolicyValues
    summariser: ModelSpec | None
    attempt: AttemptSpec
    readable: int | None = None
    cited: tuple[Message, ...] = ()
    zone: str = ""


def claim_compaction(
    *,
    chat_id: uuid.UUID,
    counter: TokenCounter,
    now: datetime,
    clock: Clock | None = None,
    attempt: AttemptSpec | None = None,
) -> Claimed | None:
    """Plan the next compaction of a branch and claim it.

    Returns None if no compaction is due, and stores the reason with the branch's last turn (see
    `report.skip_reasons`). Also returns None, without a reason, if the chat does not exist, is
    deleted or keeps changing, or if the branch of an attempt without a request is no longer active.
    Without `attempt`, the first attempt on the active branch is planned, including a user's pending
    request.

    Planning reads thousands of messages, so it holds no lock. The claim locks briefly, and plans
    again if the branch has changed. `clock` gives the time of the claim, read under the lock.
    """
    for _ in range(LOOKS):
        with alone:
            draft = draft_compaction(chat_id, attempt=attempt, counter=counter, now=now)
        if draft is None:
            return None
        with alone, transaction.atomic():
            summary_slots.lock_owner(chat_id)
            branch = lock_attempt_branch(chat_id, attempt=attempt)
            if branch is None:
                return None
            now = clock() if clock else now
            release_dead(branch=branch, now=now)
            if draft.seen != snapshot_branch_state(branch):
                continue
            return claim_draft(branch, draft=draft, now=now)
    logger.info("chat %s kept changing during planning; retrying at the next turn", chat_id)
    return None


def claim_draft(branch: Branch, *, draft: ClaimDraft, now: datetime) -> Claimed | None:
    """Claim a draft on a locked branch. If that is impossible, store the reason and return None."""
    found = claim_drafted(branch, draft=draft, now=now)
    if isinstance(found, Claimed):
        return found
    if found == summary_slots.PUT_OFF:
        record_outcome(branch, outcome=found)
        summary_slots.put_off(branch, now=now)
    else:
        summary_slots.clear_summary_due(branch)
        record_skipped_compaction(branch, reason=found, attempt=draft.attempt, now=now)
    return None


def lock_attempt_branch(chat_id: uuid.UUID, *, attempt: AttemptSpec | None) -> Branch | None:
    """Return the branch of an attempt, locked, with its active compaction loaded.

    None if there is none (`attempts.find_attempt_branch`), or if the chat switched branches during
    the wait for the lock. The branch is locked first and read afterwards, because PostgreSQL
    returns rows that are joined to a locked row as they were before the wait.
    """
    waited = find_attempt_branch(chat_id, attempt)
    if waited is None or locking.find_branch(waited.pk) is None:
        return None
    found = find_attempt_branch(chat_id, attempt)
    # The chat may have switched branches before the lock was acquired.
    return found if found is not None and found.pk == waited.pk else None


def claim_drafted(branch: Branch, *, draft: ClaimDraft, now: datetime) -> Claimed | str:
    """Claim a draft on a locked branch. Returns the reason as a code if that is not possible."""
    choice, plan, asked = draft.choice, draft.plan, draft.attempt.asked
    if choice is None:
        return draft.reason
    if reason := find_blocking_reason(branch, asked=asked, now=now):
        return reason
    if plan is None:
        return draft.reason
    if not asked and not pauses.can_compact_automatically(
        branch, choice=choice, plan=plan, now=now
    ):
        return "paused"
    if not asked and not is_worth_it(branch, choice=choice, plan=plan):
        return "not_grown"
    # Later attempts keep the slot of the first one.
    if draft.attempt.number == 1 and not summary_slots.has_place(branch):
        return summary_slots.PUT_OFF
    return store_claim(
        branch,
        choice=choice,
        summariser=draft.summariser,
        plan=plan,
        attempt=draft.attempt,
        readable=draft.readable,
        cited=draft.cited,
        zone=draft.zone,
        now=now,
    )


def find_blocking_reason(branch: Branch, *, asked: CompactionRequest | None, now: datetime) -> str:
    """Return the reason why another summary of this branch blocks a new one, or "".

    A summary blocks while it is being written or is prepared. A prepared summary is
    replaced if a user requests a specific summary.
    """
    making = branch.compactions.filter(status__in=IN_THE_MAKING).first()
    if making is None:
        return ""
    if asked is None or making.status == Compaction.Status.PREPARING:
        return "in_the_making"
    if asked.is_plain:
        return "waits_for_approval"
    retire_pending_summary(branch, reason="asked_again", now=now, actor=asked.by)
    return ""


def record_skipped_compaction(
    branch: Branch, *, reason: str, attempt: AttemptSpec, now: datetime
) -> None:
    """Store the reason why nothing was summarised.

    A user's request ends with this reason, which the ledger records. It stays pending if another
    summary is being written.
    """
    record_outcome(branch, outcome=reason)
    asked = attempt.asked
    if asked is None or reason == "in_the_making":
        return
    Branch.objects.filter(pk=branch.pk).update(**build_request_outcome(asked, reason=reason))
    ledger.record_event(
        "compaction.skipped",
        actor=asked.by,
        now=now,
        chat_id=branch.chat_id,
        data={"reason": reason, "trigger": "rerun" if asked.compaction else "manual"},
    )


def build_request_outcome(
    asked: CompactionRequest, *, reason: str = "", compaction: str = ""
) -> dict[str, Any]:
    """Return the branch columns that mark a request as finished, with its compaction or reason."""
    outcome = {
        "reason": reason,
        "compaction": compaction,
        "after": asked.after,
        "model": asked.model,
    }
    return {"asked": {}, "asked_at": None, "request_outcome": outcome}


def record_outcome(branch: Branch, *, outcome: str) -> None:
    """Store the outcome of a compaction check with the branch's last finished turn.

    Unfinished turns are skipped: their worker holds them and may be waiting for this branch.
    """
    over = branch.turns.filter(finished_at__isnull=False).order_by("-accepted")
    last = over.values_list("pk", flat=True).first()
    if last is not None:
        Turn.objects.filter(pk=last).update(compaction_outcome=outcome)


def store_claim(
    branch: Branch,
    *,
    choice: model_choice.ChosenModel,
    summariser: ModelSpec | None,
    plan: CompactionPlan,
    attempt: AttemptSpec,
    readable: int | None,
    cited: tuple[Message, ...],
    zone: str,
    now: datetime,
) -> Claimed:
    lease = CLAIMS.create_lease(uuid.uuid4())
    asked = attempt.asked
    rerun = uuid.UUID(asked.compaction) if asked and asked.compaction else None
    trigger = "rerun" if rerun else plan.trigger
    record_outcome(branch, outcome="started")
    summary_slots.clear_summary_due(branch)
    # The summary of an imported chat may have dates before any prompt has.
    zones.freeze_zone(branch, zone=zone)
    row = Compaction.objects.create(
        pk=lease.key,
        branch=branch,
        kind=Compaction.Kind.SUMMARY,
        status=Compaction.Status.PREPARING,
        previous_id=uuid.UUID(plan.previous.id) if plan.previous else None,
        displaced=get_active_summary(branch.active_compaction),
        revises_id=rerun,
        from_seq=plan.from_seq,
        to_seq=plan.to_seq,
        exceptions=list(plan.exceptions),
        source_count=len(plan.sources),
        source_digest=plan.sources_digest,
        trigger=trigger,
        asked_by=asked.by if asked else WORKER,
        focus=asked.focus if asked else "",
        rung=cast(str, attempt.rung),
        attempt=attempt.number,
        needs_approval=choice.values.approval != "nobody",
        context_revision=branch.context_revision,
        effective_policy=choice.effective,
        model_name=summariser.name if summariser else EXTRACTIVE,
        tokens_before=plan.tokens_before,
        worker=settings.WORKER_NAME,
        created_at=now,
        # Renewed by `running_summaries.keep_leases`.
        **lease.columns,
    )
    if asked:
        Branch.objects.filter(pk=branch.pk).update(
            **build_request_outcome(asked, compaction=str(row.pk))
        )
    ledger.record_event(
        "compaction.started",
        actor=row.asked_by,
        now=now,
        chat_id=branch.chat_id,
        data={
            "compaction": str(row.pk),
            "from_seq": row.from_seq,
            "to_seq": row.to_seq,
            "trigger": row.trigger,
            "model": row.model_name,
            "rung": row.rung,
        },
    )
    return Claimed(
        row=row,
        lease=lease,
        plan=plan,
        values=choice.values,
        summariser=summariser,
        attempt=attempt,
        readable=readable,
        cited=cited,
        zone=zone,
    )


def release_dead(*, branch: Branch, now: datetime) -> None:
    """Close a dead worker's claim on this branch, so that another worker can claim it."""
    claims = branch.compactions.select_for_update(no_key=True)
    dead = claims.filter(leases.match_expired_leases(), status=Compaction.Status.PREPARING).first()
    if dead is None:
        return
    close_attempt(row=dead, status=Compaction.Status.FAILED, reason=WORKER_LOST, now=now)
    if dead.asked_by != WORKER:
        repeat_request(branch, dead, now=now)


def repeat_request(branch: Branch, dead: Compaction, *, now: datetime) -> None:
    """Store a user's request again after its worker was lost, unless there is a newer one.

    After `MOST_LOST` lost workers it ends, because the request may be the cause.
    """
    lost = branch.compactions.filter(reason=WORKER_LOST, asked_by=dead.asked_by)
    if lost.filter(focus=dead.focus, revises=dead.revises_id).count() >= MOST_LOST:
        return
    outcome = branch.request_outcome or {}
    asked = CompactionRequest(
        by=dead.asked_by,
        focus=dead.focus,
        model=find_requested_model(dead, outcome=outcome),
        compaction=str(dead.revises_id or ""),
        after=outcome.get("after", 0),
    )
    rows = Branch.objects.filter(pk=branch.pk, asked_at=None)
    rows.update(asked=asdict(asked), asked_at=now, request_outcome=None)


def find_requested_model(dead: Compaction, *, outcome: dict[str, Any]) -> str | None:
    """Return `CompactionRequest.model` of the request whose worker was lost."""
    if dead.model_name == EXTRACTIVE:
        return ""
    if "model" in outcome:
        requested: str | None = outcome["model"]
        return requested
    specs = ModelSpec.objects.filter(name=dead.model_name).values_list("slug", flat=True)
    # The name of a deleted model is the slug of none, so the request ends.
    return specs.first() or dead.model_name


def sweep_dead(*, now: datetime) -> int:
    """Close the claims of dead workers in all chats and request their summaries again.

    Returns the number of branches with such claims, at most 1,000.
    """
    dead = Compaction.objects.filter(leases.match_expired_leases())
    branches: Sequence[uuid.UUID] = list(dead.values_list("branch", flat=True)[:1000])
    for branch_id in branches:
        with transaction.atomic():
            branch = locking.find_branch(branch_id)
            if branch is not None:
                release_dead(branch=branch, now=now)
                summary_slots.put_off(branch, now=now)
                queue.enqueue(queue.MAINTAIN_CHAT, chat_id=branch.chat_id)
    return len(branches)

"""Background compaction: writes summaries when they are due, and publishes them.

Plan → claim → summarise → check → store → publish. No transaction is open while a model writes, and
no reply waits. After a failed attempt, the engine's next method is tried, in a new row. If every
method fails, the window keeps prompts below their limit.
"""

import logging
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from django.conf import settings
from django.db.models import F

from chats.compaction import (
    claims,
    indexing,
    message_cap,
    publish,
    running_summaries,
    summary_slots,
)
from chats.compaction.attempts import (
    AttemptSpec,
    find_active_branch,
    get_pending_request,
    select_branches,
)
from chats.compaction.claims import Claimed, Clock
from chats.compaction.perform import Performed, perform_compaction
from chats.ground import leases, queue
from chats.ground.background_lock import alone
from chats.ground.failpoints import failpoint
from chats.ground.leases import LeaseLost
from chats.ground.refusals import Refusal
from chats.memory.search import index_schedule
from chats.models import Branch, Compaction
from chats.providers.base import ProviderError
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import compute_compact_mark, compute_prompt_limit
from contextpolicy.engine.summaries.ladder import Attempt, AttemptOutcome, select_next_rung

logger = logging.getLogger(__name__)
# Maximum compactions of one task: a due one, and one requested by a user in the meantime.
ROUNDS = 2


def maintain_chat_context(
    *, chat_id: uuid.UUID, counter: TokenCounter, now: datetime, clock: Clock | None = None
) -> None:
    """Write a summary if one is due or requested. Duplicate tasks are harmless.

    Also applies the team's message cap and requests indexing for search. `clock` is read after each
    model call, which may take minutes. Without `clock`, the time is always `now`.
    """
    clock = clock or (lambda: now)
    message_cap.apply_message_cap(chat_id=chat_id, now=now)
    for branch in Branch.objects.select_related("active_compaction__base", "chat", "parent").filter(
        chat_id=chat_id, chat__active_branch=F("pk")
    ):
        index_schedule.request_indexing(branch)
    due = find_active_branch(chat_id)
    for _ in range(ROUNDS):
        if due is None:
            return
        run_compaction(due, counter=counter, clock=clock)
        due = find_requested_branch(chat_id)


def find_requested_branch(chat_id: uuid.UUID) -> Branch | None:
    """Return the branch with the oldest pending request, which may be an inactive branch."""
    return select_branches(chat_id).filter(asked_at__isnull=False).order_by("asked_at").first()


def run_compaction(branch: Branch, *, counter: TokenCounter, clock: Clock) -> None:
    """Run one compaction: try each method in turn until a summary is stored or none is left."""
    chat_id = branch.chat_id
    if is_met(branch, now=clock()):
        return
    is_active = branch.pk == branch.chat.active_branch_id
    if is_active and indexing.is_index_first(chat_id=chat_id, now=clock()):
        summary_slots.put_off(branch, now=clock())
        return
    with running_summaries.here.place() as is_free:
        if not is_free:
            summary_slots.put_off(branch, now=clock())
            return
        first = None if is_active else AttemptSpec(branch_id=branch.pk)
        claimed = claims.claim_compaction(
            chat_id=chat_id, counter=counter, now=clock(), clock=clock, attempt=first
        )
        if claimed is None:
            return
        run_attempt_ladder(claimed, counter=counter, clock=clock)
    summary_slots.call_next(now=clock())


def run_attempt_ladder(first: Claimed, *, counter: TokenCounter, clock: Clock) -> None:
    """Make the first attempt, and the following ones until one yields a summary."""
    attempts: list[Attempt] = []
    claimed: Claimed | None = first
    while claimed is not None:
        try:
            attempt, performed = run_summary_attempt(claimed, counter=counter, clock=clock)
        except LeaseLost:
            logger.info("compaction %s lost its claim", claimed.row.pk)
            return
        except running_summaries.HandedBack:
            logger.info("compaction %s is handed back", claimed.row.pk)
            return
        attempts.append(attempt)
        following = plan_next_attempt(claimed, attempts=attempts, performed=performed)
        if following is None:
            return
        chat_id = claimed.row.branch.chat_id
        claimed = claims.claim_compaction(
            chat_id=chat_id, counter=counter, now=clock(), clock=clock, attempt=following
        )


def is_met(branch: Branch, *, now: datetime) -> bool:
    """Publish the prepared summary if it meets a user's request.

    Return True if it was published.
    """
    asked = get_pending_request(branch)
    if asked is None or not asked.is_plain:
        return False
    ready = branch.compactions.filter(status=Compaction.Status.PREPARED).first()
    if ready is None or not publish.publish_prepared(branch_id=branch.pk, now=now):
        return False
    found = claims.build_request_outcome(asked, compaction=str(ready.pk))
    Branch.objects.filter(pk=branch.pk, asked=branch.asked).update(**found)
    return True


def plan_next_attempt(
    claimed: Claimed, *, attempts: list[Attempt], performed: Performed | None
) -> AttemptSpec | None:
    """Return the next attempt, using the next method of `engine.summaries.ladder`.

    None if a summary was stored or no method is left.
    """
    rung = select_next_rung(attempts)
    if rung is None or rung == "window":
        return None
    asked, limit = claimed.attempt.asked, claimed.attempt.source_limit
    if rung == "smaller_source" and asked and asked.compaction:
        # A rerun always reads the whole range of its summary, so the request would be the same.
        rung = "extractive"
    if rung == "smaller_source":
        limit = max(sum(message.tokens for message in claimed.plan.sources) // 2, 1)
    elif rung == "extractive":
        # The extractive summary has no input limit, so it reads the whole range.
        limit = None
    return replace(
        claimed.attempt,
        number=claimed.attempt.number + 1,
        rung=rung,
        lost=performed.lost if performed else (),
        unknown=performed.unknown if performed else (),
        source_limit=limit,
    )


def run_summary_attempt(
    claimed: Claimed, *, counter: TokenCounter, clock: Clock
) -> tuple[Attempt, Performed | None]:
    """Perform a claimed compaction, store its result, and publish it if it is due.

    Returns the attempt with its result; None if it failed. Raises `LeaseLost`, in which case no
    result is stored, and `HandedBack`.
    """
    with running_summaries.here.held(row_id=claimed.row.pk, token=claimed.lease.token):
        try:
            failpoint("before_summary")
            performed = perform_compaction(
                claimed,
                counter=counter,
                renew=partial(publish.renew_claim, claimed, clock),
                count=partial(publish.count_summary_call, claimed, clock),
            )
            failpoint("after_summary")
        except LeaseLost:
            raise
        except running_summaries.HandedBack:
            publish.hand_back_attempt(claimed=claimed, now=clock())
            raise
        except (ProviderError, Refusal) as error:
            return record_failed_attempt(claimed, reason=error.code, now=clock()), None
        except Exception:
            logger.exception("compaction %s failed unexpectedly", claimed.row.pk)
            return record_failed_attempt(claimed, reason="internal_error", now=clock()), None
        now = clock()
        with alone:
            kept = publish.store_summary(claimed=claimed, performed=performed, now=now)
    if kept and should_publish_now(claimed):
        with alone:
            publish.publish_prepared(branch_id=claimed.row.branch_id, now=clock())
    outcome: AttemptOutcome = "published" if kept else "rejected"
    return Attempt(claimed.attempt.rung or "model", outcome, performed.reasons, now), performed


def record_failed_attempt(claimed: Claimed, *, reason: str, now: datetime) -> Attempt:
    """Record an attempt as failed, with the code of the reason. Raises `LeaseLost`."""
    publish.mark_attempt_failed(claimed=claimed, reason=reason, now=now)
    return Attempt(claimed.attempt.rung or "model", "failed", (reason,), now)


def should_publish_now(claimed: Claimed) -> bool:
    """Return True if the summary takes effect at once instead of at the high mark.

    This is the case if a user requested it, if the number of turns triggered it, if the
    prompt exceeds the high mark, or if a window already leaves messages out.
    """
    if claimed.attempt.asked or claimed.plan.trigger == "turns":
        return True
    branch = Branch.objects.select_related("chat__model", "active_compaction").get(
        pk=claimed.row.branch_id
    )
    chat, active = branch.chat, branch.active_compaction
    if active is not None and active.kind == Compaction.Kind.WINDOW:
        return True
    window = chat.model.window if chat.model else None
    limit = compute_prompt_limit(claimed.values, model_window=window)
    return claimed.plan.tokens_before >= compute_compact_mark(claimed.values, prompt_limit=limit)


def sweep_summaries(*, now: datetime) -> int:
    """Close the claims of dead workers and enqueue overdue tasks again. Return the count.

    A task is overdue if no worker began a user's request in time, or if a summary waits too long
    for a slot.
    """
    since = leases.subtract_from_now(timedelta(seconds=settings.REQUEUE_AFTER))
    overdue = Branch.objects.filter(asked_at__lt=since, chat__deleted_at=None)
    # De-duplicated here: with DISTINCT the database scans all branches.
    chats = set(overdue.values_list("chat", flat=True)[:1000]) | set(
        summary_slots.find_overdue_chats()
    )
    for chat_id in chats:
        queue.enqueue(queue.MAINTAIN_CHAT, chat_id=chat_id)
    return claims.sweep_dead(now=now) + len(chats)

"""Decide what to fold and claim it: one compaction in the making per branch.

The claim is a row with a lease, so that a worker that dies leaves something to see, and a second
worker finds the place taken.
"""

import logging
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast

from django.conf import settings
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, Min, Sum
from django.db.models.functions import Now

from chats import answering, context, history, queue
from chats.compaction import pauses, places, running
from chats.compaction.force import IN_THE_MAKING, close, overtake_making, summary_of
from chats.models import Branch, Compaction, Message, Receipt, Turn
from contextpolicy import ledger
from contextpolicy.engine import messages as engine
from contextpolicy.engine.budget import in_our_count, prompt_limit, request_limit
from contextpolicy.engine.compaction import CompactionPlan, NotNeeded, plan_again
from contextpolicy.engine.compaction import plan as plan_values
from contextpolicy.engine.ladder import Rung, has_grown
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

logger = logging.getLogger(__name__)

EXTRACTIVE = "extractive"
# Says what time it is.
Clock = Callable[[], datetime]
# How often a claim plans again because the branch changed meanwhile.
LOOKS = 3
# Messages that one plan looks at: a long chat is caught up in one step, and a worker's memory has a
# bound. What lies beyond waits for the next plan.
MOST_MESSAGES = 20_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person asked for: to fold what can be folded, or the range of `compaction` anew.

    `model` is the slug of another summariser, "" the extractive one, None the policy's own.
    """

    by: str
    focus: str = ""
    model: str | None = None
    compaction: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether any summary of what can be folded will do."""
        return not self.focus and self.model is None and not self.compaction


@dataclass(frozen=True, slots=True)
class Try:
    """Which attempt at one compaction: its rung, and what the earlier ones taught."""

    number: int = 1
    rung: Rung | None = None
    lost: tuple[str, ...] = ()
    source_limit: int | None = None
    asked: Asked | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """A planned compaction that this process may perform.

    `readable`: tokens, in our count, of one request to the summariser; None: no model is asked.
    """

    row: Compaction
    token: str
    plan: CompactionPlan
    values: PolicyValues
    summariser: ModelSpec | None
    attempt: Try
    readable: int | None = None


def claim(
    *,
    chat_id: uuid.UUID,
    counter: TokenCounter,
    now: datetime,
    clock: Clock | None = None,
    attempt: Try | None = None,
) -> Claimed | None:
    """Plan the next compaction of the chat's active branch and take it, or None: nothing is due.

    Why not is written at the branch's last turn (see `outcomes`). Without an `attempt` it is the
    first one, which also takes up what a person asked for.

    Planning reads thousands of messages, so it holds no lock; the claim holds one for a moment, and
    plans again where the branch is no longer as it was read. It bears the time at which it was
    made: `clock` is read once more under the lock.
    """
    for _ in range(LOOKS):
        with running.here.computing:
            draft = draft_for(chat_id, attempt=attempt, counter=counter, now=now)
        if draft is None:
            return None
        with transaction.atomic():
            branch = locked_branch(chat_id)
            if branch is None:
                return None
            now = clock() if clock else now
            release_dead(branch=branch, now=now)
            if draft.seen != seen_of(branch):
                continue
            return claim_draft(branch, draft=draft, now=now)
    logger.info("chat %s changed faster than it was planned; the next turn asks again", chat_id)
    return None


def claim_draft(branch: Branch, *, draft: "Draft", now: datetime) -> Claimed | None:
    """Claim what was drafted on a locked branch, or write down why not."""
    found = take(branch, draft=draft, now=now)
    if isinstance(found, Claimed):
        return found
    if found == places.PUT_OFF:
        told(branch, outcome=found)
        places.put_off(branch, now=now)
    else:
        places.settle(branch)
        refused(branch, reason=found, attempt=draft.attempt, now=now)
    return None


def active_branch(chat_id: uuid.UUID) -> Branch | None:
    """The chat's active branch with what is in force on it."""
    active = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"))
    return active.select_related("chat__owner", "chat__model", "active_compaction__base").first()


def locked_branch(chat_id: uuid.UUID) -> Branch | None:
    """The chat's active branch, locked, with what is in force on it.

    Locked first and read then: PostgreSQL reads what is joined to a row that it waits for as it was
    before the wait.
    """
    active = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"))
    ids = list(active.values_list("pk", flat=True))
    list(Branch.objects.select_for_update(no_key=True).filter(pk__in=ids).values_list("pk"))
    found = active_branch(chat_id)
    # The chat may have moved to another branch before the lock was there.
    return found if found is not None and found.pk in ids else None


def asked_on(branch: Branch) -> Asked | None:
    """What a person asked for on this branch and nobody has begun."""
    return Asked(**branch.asked) if branch.asked else None


def seen_of(branch: Branch) -> tuple[Any, ...]:
    """What a plan was made of, apart from the messages, which only grow."""
    return (branch.pk, branch.active_compaction_id, branch.context_revision, branch.asked)


@dataclass(frozen=True, slots=True)
class Draft:
    """What may be claimed on a branch as it was read (`seen`), or the reason why nothing is due.

    Without a `choice` no model can answer in the chat at all.
    """

    seen: tuple[Any, ...]
    attempt: Try
    choice: answering.Choice | None = None
    plan: CompactionPlan | None = None
    reason: str = ""
    summariser: ModelSpec | None = None
    readable: int | None = None


def draft_for(
    chat_id: uuid.UUID, *, attempt: Try | None, counter: TokenCounter, now: datetime
) -> Draft | None:
    """Plan the next compaction of the chat's active branch; locks and writes nothing."""
    branch = active_branch(chat_id)
    if branch is None:
        return None
    attempt = attempt or Try(asked=asked_on(branch))
    seen = seen_of(branch)
    try:
        choice = answering.choose(chat=branch.chat)
    except (answering.NoModel, answering.ModelNotAllowed, answering.PolicyRefused) as refusal:
        return Draft(seen, attempt, reason=refusal.code)
    asked = attempt.asked
    if is_being_written(branch):
        return Draft(seen, attempt, choice, reason="in_the_making")
    # A ladder that has begun goes on to its end: its last rung needs no model and rarely fails.
    is_first = not attempt.rung
    if asked is None and is_first and pauses.breaker_of(branch, choice=choice, now=now).is_open:
        return Draft(seen, attempt, choice, reason="breaker_open")
    summariser = find_summariser(choice.values, asked=asked)
    rung = attempt.rung or first_rung(branch, summariser=summariser, asked=asked, now=now)
    if rung == "extractive":
        summariser = None
    attempt = replace(attempt, rung=rung)
    readable = readable_by(summariser, branch=branch, values=choice.values)
    found = plan_for(branch, choice=choice, attempt=attempt, counter=counter)
    if isinstance(found, NotNeeded):
        return Draft(seen, attempt, choice, reason=found.reason)
    return Draft(seen, attempt, choice, found, summariser=summariser, readable=readable)


def is_being_written(branch: Branch) -> bool:
    """Whether a living worker writes a summary of this branch."""
    rows = branch.compactions.filter(status=Compaction.Status.PREPARING)
    return rows.filter(lease_until__gte=Now()).exists()


def take(branch: Branch, *, draft: Draft, now: datetime) -> Claimed | str:
    """Claim what was drafted on a locked branch, or the reason why not."""
    choice, plan, asked = draft.choice, draft.plan, draft.attempt.asked
    if choice is None:
        return draft.reason
    if reason := in_the_way(branch, asked=asked, now=now):
        return reason
    if plan is None:
        return draft.reason
    if not asked and not pauses.may_go_on(branch, choice=choice, plan=plan, now=now):
        return "paused"
    if not asked and not is_worth_it(branch, choice=choice, plan=plan):
        return "not_grown"
    # A ladder that has begun keeps the place that it has.
    if draft.attempt.number == 1 and not places.has_place(branch):
        return places.PUT_OFF
    return store_claim(
        branch,
        choice=choice,
        summariser=draft.summariser,
        plan=plan,
        attempt=draft.attempt,
        readable=draft.readable,
        now=now,
    )


def refused(branch: Branch, *, reason: str, attempt: Try, now: datetime) -> None:
    """Write down why nothing is folded now; what a person asked for gets an event of its own."""
    told(branch, outcome=reason)
    asked = attempt.asked
    if asked is None or reason == "in_the_making":
        return
    Branch.objects.filter(pk=branch.pk).update(asked={}, asked_at=None)
    ledger.record(
        "compaction.skipped",
        actor=asked.by,
        now=now,
        chat_id=branch.chat_id,
        data={"reason": reason, "trigger": "rerun" if asked.compaction else "manual"},
    )


def told(branch: Branch, *, outcome: str) -> None:
    """Write what the look for something to fold came to at the branch's last finished turn.

    One that is not over belongs to a worker, which holds it and may wait for this branch.
    """
    over = branch.turns.filter(finished_at__isnull=False).order_by("-accepted")
    last = over.values_list("pk", flat=True).first()
    if last is not None:
        Turn.objects.filter(pk=last).update(compaction_outcome=outcome)


def release_dead(*, branch: Branch, now: datetime) -> None:
    """Close the claim of a worker that ended: its row says so, and the place is free."""
    claims = branch.compactions.select_for_update(no_key=True)
    dead = claims.filter(status=Compaction.Status.PREPARING, lease_until__lt=Now()).first()
    if dead is None:
        return
    close(row=dead, status=Compaction.Status.FAILED, reason="worker_lost", now=now)


def in_the_way(branch: Branch, *, asked: Asked | None, now: datetime) -> str:
    """What of this branch is being written or waits already, as a reason; empty when nothing is.

    One that waits gives way to what a person asked for in particular.
    """
    making = branch.compactions.filter(status__in=IN_THE_MAKING).first()
    if making is None:
        return ""
    if asked is None or making.status == Compaction.Status.PREPARING:
        return "in_the_making"
    if asked.is_plain:
        return "waits_for_approval"
    overtake_making(branch, reason="asked_again", now=now, actor=asked.by)
    return ""


def find_summariser(values: PolicyValues, *, asked: Asked | None = None) -> ModelSpec | None:
    """The model that writes summaries; None means the extractive one, which needs no model."""
    slug = values.summarization_model
    if asked is not None and asked.model is not None:
        slug = asked.model
    return ModelSpec.objects.filter(slug=slug, enabled=True).first() if slug else None


def first_rung(
    branch: Branch, *, summariser: ModelSpec | None, asked: Asked | None, now: datetime
) -> Rung:
    """Where the ladder begins: at the model, unless it failed again and again a short time ago."""
    if summariser is None:
        return "extractive"
    is_paused = pauses.model_breaker_of(branch, model_name=summariser.name, now=now).is_open
    return "extractive" if is_paused and asked is None else "model"


def readable_by(
    summariser: ModelSpec | None, *, branch: Branch, values: PolicyValues
) -> int | None:
    """The tokens of a whole request, in our count, by the limits of the summariser and the policy.

    None: no model is asked.
    """
    if summariser is None:
        return None
    limit = request_limit(values, model_window=summariser.window)
    return in_our_count(max(limit, 1), calibration=context.calibration_of(branch, model=summariser))


def plan_for(
    branch: Branch,
    *,
    choice: answering.Choice,
    attempt: Try,
    counter: TokenCounter,
) -> CompactionPlan | NotNeeded:
    """What the engine says about the finished turns after the summary in force."""
    if attempt.asked and attempt.asked.compaction:
        return plan_rerun(branch, compaction=attempt.asked.compaction, counter=counter)
    summary, _ = context.in_force(branch.active_compaction, counter=counter)
    limit = prompt_limit(choice.values, model_window=choice.model.window)
    _, others = context.never_folded(branch, summary=summary, hidden_to=0, counter=counter)
    unfolded = finished(branch, after=summary.to_seq if summary else 0, counter=counter)
    return plan_values(
        (*others, *unfolded),
        previous=summary,
        values=choice.values,
        prompt_limit=in_our_count(
            limit, calibration=context.calibration_of(branch, model=choice.model)
        ),
        fixed_tokens=fixed_tokens(branch) + tokens_beyond(branch, unfolded),
        trigger="manual" if attempt.asked else "auto",
        source_limit=attempt.source_limit,
        counter=counter,
    )


def plan_rerun(
    branch: Branch, *, compaction: str, counter: TokenCounter
) -> CompactionPlan | NotNeeded:
    """The originals under the summary in force, to be summarised anew without it."""
    row = summary_of(branch.active_compaction)
    if row is None or str(row.pk) != compaction:
        return NotNeeded("nothing_to_fold")
    rows = history.on_path(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    originals = history.load_all(rows.order_by("seq"), counter=counter)
    return plan_again(originals, tokens_before=row.tokens_before)


def is_worth_it(branch: Branch, *, choice: answering.Choice, plan: CompactionPlan) -> bool:
    """Whether the prompt has grown enough since the last compaction by the token marks.

    Under another policy or another model (which is part of the effective policy) it is looked at
    anew. While a long chat is being caught up, each step is worth it.
    """
    last = summary_of(branch.active_compaction)
    if plan.trigger != "prepare" or last is None or not last.tokens_after:
        return True
    if last.effective_policy_id != choice.effective.pk:
        return True
    limit = in_our_count(
        prompt_limit(choice.values, model_window=choice.model.window),
        calibration=context.calibration_of(branch, model=choice.model),
    )
    return last.tokens_after > limit or has_grown(
        plan.tokens_before, tokens_after=last.tokens_after, prompt_limit=limit
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


def tokens_beyond(branch: Branch, looked_at: Sequence[engine.Message]) -> int:
    """The tokens of the messages that a plan could not look at, because there are too many."""
    if len(looked_at) < MOST_MESSAGES:
        return 0
    beyond = history.on_path(branch, after=looked_at[-1].seq, before=branch.last_seq + 1)
    return beyond.aggregate(tokens=Sum("token_count"))["tokens"] or 0


def fixed_tokens(branch: Branch) -> int:
    """What the last prompt spent on parts that are no history, in our count."""
    rows = Receipt.objects.filter(turn__branch=branch, call__gt=Receipt.FOR_STATE)
    receipt = rows.order_by("-created_at").only("budget").first()
    if receipt is None:
        return 0
    return sum(receipt.budget.get(part, 0) for part in ("system", "tools", "pins", "tail"))


def lease() -> ExpressionWrapper[Any]:
    """The end of a claim that is made or renewed now; see `running.keep_leases`."""
    length = timedelta(seconds=settings.LEASE_SECONDS)
    return ExpressionWrapper(Now() + length, output_field=DateTimeField())


def store_claim(
    branch: Branch,
    *,
    choice: answering.Choice,
    summariser: ModelSpec | None,
    plan: CompactionPlan,
    attempt: Try,
    readable: int | None,
    now: datetime,
) -> Claimed:
    """The row of an attempt that begins now."""
    token = secrets.token_urlsafe(32)
    asked = attempt.asked
    rerun = uuid.UUID(asked.compaction) if asked and asked.compaction else None
    trigger = "rerun" if rerun else plan.trigger
    told(branch, outcome="started")
    if asked:
        Branch.objects.filter(pk=branch.pk).update(asked={}, asked_at=None)
    places.settle(branch)
    row = Compaction.objects.create(
        branch=branch,
        kind=Compaction.Kind.SUMMARY,
        status=Compaction.Status.PREPARING,
        previous_id=uuid.UUID(plan.previous.id) if plan.previous else None,
        displaced=summary_of(branch.active_compaction),
        revises_id=rerun,
        from_seq=plan.from_seq,
        to_seq=plan.to_seq,
        exceptions=list(plan.exceptions),
        source_count=len(plan.sources),
        source_digest=plan.sources_digest,
        trigger=trigger,
        asked_by=asked.by if asked else "worker",
        focus=asked.focus if asked else "",
        rung=cast(str, attempt.rung),
        attempt=attempt.number,
        needs_approval=choice.values.approval != "nobody",
        context_revision=branch.context_revision,
        effective_policy=choice.effective,
        model_name=summariser.name if summariser else EXTRACTIVE,
        tokens_before=plan.tokens_before,
        worker=settings.WORKER_NAME,
        lease_token=token,
        lease_until=lease(),
        created_at=now,
    )
    ledger.record(
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
        token=token,
        plan=plan,
        values=choice.values,
        summariser=summariser,
        attempt=attempt,
        readable=readable,
    )


def sweep_dead(*, now: datetime) -> int:
    """Close the claims of workers that ended, in every chat, and ask for their summaries again.

    Returns how many there were.
    """
    dead = Compaction.objects.filter(lease_until__lt=Now())
    branches: Sequence[uuid.UUID] = list(dead.values_list("branch", flat=True)[:1000])
    for branch_id in branches:
        with transaction.atomic():
            branch = Branch.objects.select_for_update(no_key=True).filter(pk=branch_id).first()
            if branch is not None:
                release_dead(branch=branch, now=now)
                places.put_off(branch, now=now)
                queue.enqueue(queue.MAINTAIN_CHAT, chat_id=branch.chat_id)
    return len(branches)


def expire(*, worker: str) -> int:
    """Let the claims of workers whose name begins so run out now: they are known to have ended."""
    claims = Compaction.objects.filter(lease_until__isnull=False, worker__startswith=worker)
    return claims.update(lease_until=Now())

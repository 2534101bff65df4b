"""Decides what of a branch is folded next, or why nothing is; locks and writes nothing."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from django.db.models import F, Min, Sum

from chats.compaction import pauses
from chats.compaction.coverage import summary_of
from chats.compaction.window import CAP, is_makeshift
from chats.ground import leases
from chats.models import Branch, Compaction, Message, Receipt, Turn
from chats.prompt import composition, model_choice
from chats.record import history
from contextpolicy.engine import messages as engine
from contextpolicy.engine.budget import in_our_count, prompt_limit, readable_tokens
from contextpolicy.engine.claims import seqs_in
from contextpolicy.engine.compaction import CompactionPlan, NotNeeded, plan_again
from contextpolicy.engine.compaction import plan as plan_values
from contextpolicy.engine.ladder import Rung, has_grown
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

# The most messages that one plan reads: many, so that a long chat is caught up in one step, and not
# all, so that a worker's memory has a bound. Those beyond it wait for the next plan.
MOST_MESSAGES = 20_000
# A summary with more marks than this is far longer than any policy's limit.
MOST_CITED = 2_000
# So many summaries after one that came late, the next one begins early.
REMEMBERED = 3


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    """A person's request: fold what can be folded, or summarise the range of `compaction` anew.

    `model` is the slug of another summariser, "" the extractive one, None the policy's own.
    `after`: the branch's last turn when it was asked, as `Turn.accepted`.
    """

    by: str
    focus: str = ""
    model: str | None = None
    compaction: str = ""
    after: int = 0

    @property
    def is_plain(self) -> bool:
        """True if any summary of what can be folded will do."""
        return not self.focus and self.model is None and not self.compaction


@dataclass(frozen=True, slots=True)
class AttemptSpec:
    """The specification of one attempt: its rung, and what the earlier ones taught."""

    number: int = 1
    rung: Rung | None = None
    lost: tuple[str, ...] = ()
    source_limit: int | None = None
    asked: CompactionRequest | None = None


def active_branch(chat_id: uuid.UUID) -> Branch | None:
    """Return the chat's active branch with what is in force on it."""
    active = Branch.objects.filter(chat=chat_id, chat__active_branch=F("pk"))
    return active.select_related("chat__owner", "chat__model", "active_compaction__base").first()


def asked_on(branch: Branch) -> CompactionRequest | None:
    """Return what a person asked for on this branch and no worker has begun."""
    return CompactionRequest(**branch.asked) if branch.asked else None


def seen_of(branch: Branch) -> tuple[Any, ...]:
    """Return what a plan is made of, apart from the messages, which only grow."""
    return (branch.pk, branch.active_compaction_id, branch.context_revision, branch.asked)


@dataclass(frozen=True, slots=True)
class ClaimDraft:
    """A draft of a claim on a branch as it was read (`seen`), or the reason why nothing is due.

    Without a `choice` no model can reply in the chat at all.
    """

    seen: tuple[Any, ...]
    attempt: AttemptSpec
    choice: model_choice.ChosenModel | None = None
    plan: CompactionPlan | None = None
    reason: str = ""
    summariser: ModelSpec | None = None
    readable: int | None = None
    # The messages that the marks of the previous summary name.
    cited: tuple[engine.Message, ...] = ()
    zone: str = ""


def draft_for(
    chat_id: uuid.UUID, *, attempt: AttemptSpec | None, counter: TokenCounter, now: datetime
) -> ClaimDraft | None:
    """Plan the next compaction of the chat's active branch; locks and writes nothing."""
    branch = active_branch(chat_id)
    if branch is None:
        return None
    attempt = attempt or AttemptSpec(asked=asked_on(branch))
    seen = seen_of(branch)
    try:
        choice = model_choice.choose(chat=branch.chat)
    except (
        model_choice.NoModel,
        model_choice.ModelNotAllowed,
        model_choice.PolicyRefused,
    ) as refusal:
        return ClaimDraft(seen, attempt, reason=refusal.code)
    asked = attempt.asked
    if is_being_written(branch):
        return ClaimDraft(seen, attempt, choice, reason="in_the_making")
    # A ladder that has begun is tried to its end: its last rung needs no model and rarely fails.
    is_first = not attempt.rung
    if asked is None and is_first and pauses.breaker_of(branch, choice=choice, now=now).is_open:
        return ClaimDraft(seen, attempt, choice, reason="breaker_open")
    summariser = find_summariser(choice.values, asked=asked)
    rung = attempt.rung or first_rung(branch, summariser=summariser, asked=asked, now=now)
    if rung == "extractive":
        summariser = None
    attempt = replace(attempt, rung=rung)
    readable = readable_by(summariser, branch=branch, values=choice.values)
    found = plan_for(branch, choice=choice, attempt=attempt, counter=counter)
    if isinstance(found, NotNeeded):
        return ClaimDraft(seen, attempt, choice, reason=found.reason)
    zone = composition.zone_for(branch, values=choice.values)
    return ClaimDraft(
        seen,
        attempt,
        choice,
        found,
        summariser=summariser,
        readable=readable,
        cited=cited_by(found.previous, branch=branch, counter=counter, zone=zone),
        zone=zone,
    )


def cited_by(
    summary: engine.Summary | None, *, branch: Branch, counter: TokenCounter, zone: str
) -> tuple[engine.Message, ...]:
    """Return the messages that the marks of a summary name, at most `MOST_CITED`, ascending.

    They tell the authors and the days of sentences that a new summary carries over.
    """
    if summary is None:
        return ()
    rows = history.on_path(branch, after=summary.from_seq - 1, before=summary.to_seq + 1)
    seqs = (seq for seq in seqs_in(summary.text) if summary.from_seq <= seq <= summary.to_seq)
    cited = rows.filter(seq__in=list(islice(seqs, MOST_CITED)))
    return history.load_all(cited.order_by("seq"), counter=counter, zone=zone)


def is_being_written(branch: Branch) -> bool:
    """Tell whether a living worker writes a summary of this branch."""
    rows = branch.compactions.filter(status=Compaction.Status.PREPARING)
    return rows.filter(leases.held()).exists()


def find_summariser(
    values: PolicyValues, *, asked: CompactionRequest | None = None
) -> ModelSpec | None:
    """Return the model that writes summaries; None means the extractive summary."""
    slug = values.summarization_model
    if asked is not None and asked.model is not None:
        slug = asked.model
    return ModelSpec.objects.filter(slug=slug, enabled=True).first() if slug else None


def first_rung(
    branch: Branch, *, summariser: ModelSpec | None, asked: CompactionRequest | None, now: datetime
) -> Rung:
    """Return where the ladder begins: at the model, unless it failed repeatedly just now."""
    if summariser is None:
        return "extractive"
    is_paused = pauses.model_breaker_of(branch, model_name=summariser.name, now=now).is_open
    return "extractive" if is_paused and asked is None else "model"


def readable_by(
    summariser: ModelSpec | None, *, branch: Branch, values: PolicyValues
) -> int | None:
    """Return how many tokens a whole request to the summariser may have, in our count.

    The limits of the summariser and the policy count. None: no model is asked.
    """
    if summariser is None:
        return None
    calibration = composition.calibration_of(branch, model=summariser)
    return readable_tokens(values, model_window=summariser.window, calibration=calibration)


def plan_for(
    branch: Branch,
    *,
    choice: model_choice.ChosenModel,
    attempt: AttemptSpec,
    counter: TokenCounter,
) -> CompactionPlan | NotNeeded:
    """Let the engine plan with the finished turns after the summary in force."""
    if attempt.asked and attempt.asked.compaction:
        zone = composition.zone_for(branch, values=choice.values)
        return plan_rerun(branch, compaction=attempt.asked.compaction, counter=counter, zone=zone)
    summary, _ = composition.in_force(branch.active_compaction, counter=counter)
    limit = prompt_limit(choice.values, model_window=choice.model.window)
    zone = composition.zone_for(branch, values=choice.values)
    _, others = composition.never_folded(
        branch, summary=summary, hidden_to=0, counter=counter, zone=zone
    )
    after = summary.to_seq if summary else 0
    unfolded = finished(branch, after=after, counter=counter, zone=zone)
    return plan_values(
        (*others, *unfolded),
        previous=summary,
        values=choice.values,
        prompt_limit=in_our_count(
            limit, calibration=composition.calibration_of(branch, model=choice.model)
        ),
        fixed_tokens=fixed_tokens(branch) + tokens_beyond(branch, unfolded),
        trigger="manual" if attempt.asked else "auto",
        source_limit=attempt.source_limit,
        counter=counter,
        came_late=came_late(branch),
    )


def came_late(branch: Branch) -> bool:
    """Tell whether a window had to move before one of the last few summaries was ready."""
    if is_makeshift(branch.active_compaction):
        return True
    summaries = branch.compactions.filter(
        kind=Compaction.Kind.SUMMARY, published_at__isnull=False
    ).order_by("-published_at")
    last = summaries.values_list("displaced__kind", "displaced__reason")[:REMEMBERED]
    return any(kind == Compaction.Kind.WINDOW and reason != CAP for kind, reason in last)


def plan_rerun(
    branch: Branch, *, compaction: str, counter: TokenCounter, zone: str = ""
) -> CompactionPlan | NotNeeded:
    """Plan to summarise the originals under the summary in force anew, without it."""
    row = summary_of(branch.active_compaction)
    if row is None or str(row.pk) != compaction:
        return NotNeeded("nothing_to_fold")
    rows = history.on_path(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    originals = history.load_all(rows.order_by("seq"), counter=counter, zone=zone)
    return plan_again(originals, tokens_before=row.tokens_before)


def is_worth_it(branch: Branch, *, choice: model_choice.ChosenModel, plan: CompactionPlan) -> bool:
    """Tell whether the prompt has grown enough since the last compaction by the token marks.

    Under another policy or another model (which is part of the effective policy), and while a long
    chat is being caught up, a compaction is always worth it.
    """
    last = summary_of(branch.active_compaction)
    if plan.trigger != "prepare" or last is None or not last.tokens_after:
        return True
    if last.effective_policy_id != choice.effective.pk:
        return True
    limit = in_our_count(
        prompt_limit(choice.values, model_window=choice.model.window),
        calibration=composition.calibration_of(branch, model=choice.model),
    )
    return last.tokens_after > limit or has_grown(
        plan.tokens_before, tokens_after=last.tokens_after, prompt_limit=limit
    )


def finished(
    branch: Branch, *, after: int, counter: TokenCounter, zone: str = ""
) -> tuple[engine.Message, ...]:
    """Return the oldest messages after `after` that belong to no unfinished turn.

    They have their days in a `zone`.
    """
    unfinished = Turn.objects.filter(
        branch=branch, status__in=[Turn.Status.QUEUED, Turn.Status.RUNNING]
    )
    # By the turns' ids: a join would walk every message of the branch.
    ids = list(unfinished.values_list("pk", flat=True))
    taken = Message.objects.filter(turn__in=ids, seq__isnull=False)
    # A turn that replies again, or to the results of tools, has its question from an earlier one.
    firsts = (
        taken.aggregate(first=Min("seq"))["first"],
        unfinished.aggregate(first=Min("trigger__seq"))["first"],
    )
    open_from = min((seq for seq in firsts if seq is not None), default=None)
    rows = history.on_path(branch, after=after, before=open_from or branch.last_seq + 1)
    return history.load_all(rows.order_by("seq")[:MOST_MESSAGES], counter=counter, zone=zone)


def tokens_beyond(branch: Branch, looked_at: Sequence[engine.Message]) -> int:
    """Return the tokens of the messages that a plan could not read, because there are too many."""
    if len(looked_at) < MOST_MESSAGES:
        return 0
    beyond = history.on_path(branch, after=looked_at[-1].seq, before=branch.last_seq + 1)
    return beyond.aggregate(tokens=Sum("token_count"))["tokens"] or 0


def fixed_tokens(branch: Branch) -> int:
    """Return the tokens of the last prompt's parts that are not history, in our count."""
    rows = Receipt.objects.filter(
        turn__branch=branch, call__gt=Receipt.BESIDE, step__gt=Receipt.AFTERWARDS
    )
    receipt = rows.order_by("-created_at").only("budget").first()
    if receipt is None:
        return 0
    return sum(receipt.budget.get(part, 0) for part in ("system", "tools", "pins", "tail"))

"""Decides which part of a branch to summarise next. Takes no lock, writes nothing."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any

from django.db.models import Min, Sum

from chats.compaction import pauses
from chats.compaction.attempts import (
    AttemptSpec,
    CompactionRequest,
    find_attempt_branch,
    get_attempt_request,
)
from chats.compaction.coverage import get_active_summary
from chats.compaction.window import is_makeshift
from chats.files.file_models import may_get_branch
from chats.ground import leases
from chats.models import Branch, Compaction, Message, Turn
from chats.prompt import model_choice, prompt_facts
from chats.prompt.prepared_summary import CAP
from chats.record import history
from chats.record.receipts import select_reply_calls
from contextpolicy.engine.messages import messages as engine
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy.budget import (
    compute_prompt_limit,
    compute_readable_tokens,
    convert_provider_tokens,
)
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.compaction import plan_compaction as plan_values
from contextpolicy.engine.summaries.compaction import plan_recompaction
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, NotNeeded
from contextpolicy.engine.summaries.ladder import Rung, has_grown
from contextpolicy.engine.text.claims import parse_source_seqs
from contextpolicy.models import ModelSpec

# Maximum messages one plan reads. The number is large, so that a long chat catches up in one step,
# but bounds a worker's memory. The next plan reads the rest.
MOST_MESSAGES = 20_000
# A summary with more source marks is far longer than any policy's limit.
MOST_CITED = 2_000
# The number of summaries that begin early after a late one.
REMEMBERED = 3


def snapshot_branch_state(branch: Branch) -> tuple[Any, ...]:
    """Return the state that a plan depends on, apart from the messages, which are only appended."""
    return (branch.pk, branch.active_compaction_id, branch.context_revision, branch.asked)


@dataclass(frozen=True, slots=True)
class ClaimDraft:
    """A compaction to claim, or the reason why none is due.

    `seen` is the state of the branch when it was read. Without a `choice`, no model can reply in
    the chat.
    """

    seen: tuple[Any, ...]
    attempt: AttemptSpec
    choice: model_choice.ChosenModel | None = None
    plan: CompactionPlan | None = None
    reason: str = ""
    summariser: ModelSpec | None = None
    readable: int | None = None
    # The messages to which the source marks of the previous summary refer.
    cited: tuple[engine.Message, ...] = ()
    zone: str = ""


def draft_compaction(
    chat_id: uuid.UUID, *, attempt: AttemptSpec | None, counter: TokenCounter, now: datetime
) -> ClaimDraft | None:
    """Plan the next compaction of a branch. Takes no lock, writes nothing.

    None if there is no branch for it (`find_attempt_branch`).
    """
    branch = find_attempt_branch(chat_id, attempt)
    if branch is None:
        return None
    attempt = attempt or AttemptSpec()
    asked = get_attempt_request(branch, attempt)
    attempt = replace(attempt, asked=asked, branch_id=branch.pk)
    seen = snapshot_branch_state(branch)
    try:
        choice = model_choice.choose_chat_model(chat=branch.chat)
    except (
        model_choice.NoModel,
        model_choice.ModelNotAllowed,
        model_choice.PolicyRefused,
    ) as refusal:
        return ClaimDraft(seen, attempt, reason=refusal.code)
    if is_being_written(branch):
        return ClaimDraft(seen, attempt, choice, reason="in_the_making")
    # Later rungs always run: the last one needs no model and rarely fails.
    is_first = not attempt.rung
    if (
        asked is None
        and is_first
        and pauses.load_branch_breaker(branch, choice=choice, now=now).is_open
    ):
        return ClaimDraft(seen, attempt, choice, reason="breaker_open")
    if attempt.rung != "extractive" and not may_write_requested(
        asked, branch=branch, values=choice.values
    ):
        return ClaimDraft(seen, attempt, reason="unknown_summariser")
    summariser = find_branch_summariser(branch, values=choice.values, asked=asked)
    rung = attempt.rung or choose_first_rung(branch, summariser=summariser, asked=asked, now=now)
    if rung == "extractive":
        summariser = None
    attempt = replace(attempt, rung=rung)
    readable = get_summariser_limit(summariser, branch=branch, values=choice.values)
    found = plan_for(branch, choice=choice, attempt=attempt, counter=counter)
    if isinstance(found, NotNeeded):
        return ClaimDraft(seen, attempt, choice, reason=found.reason)
    zone = prompt_facts.get_prompt_zone(branch, values=choice.values)
    attempt = replace(attempt, lost=keep_current_facts(attempt.lost, plan=found))
    return ClaimDraft(
        seen,
        attempt,
        choice,
        found,
        summariser=summariser,
        readable=readable,
        cited=load_cited_messages(found.previous, branch=branch, counter=counter, zone=zone),
        zone=zone,
    )


def keep_current_facts(lost: Sequence[str], *, plan: CompactionPlan) -> tuple[str, ...]:
    """Return the facts that the sources of a plan still contain.

    The sources may have changed since the attempt that lost them.
    """
    if not lost:
        return ()
    told = [engine.extract_message_text(message) for message in plan.sources]
    read = "\n".join([plan.previous.text, *told] if plan.previous else told).casefold()
    return tuple(fact for fact in lost if fact.casefold() in read)


def load_cited_messages(
    summary: engine.Summary | None, *, branch: Branch, counter: TokenCounter, zone: str
) -> tuple[engine.Message, ...]:
    """Return the messages to which the source marks of a summary refer, ascending.

    At most `MOST_CITED` messages. They give the authors and days of sentences that a new summary
    keeps.
    """
    if summary is None:
        return ()
    rows = history.select_path_messages(
        branch, after=summary.from_seq - 1, before=summary.to_seq + 1
    )
    seqs = (
        seq for seq in parse_source_seqs(summary.text) if summary.from_seq <= seq <= summary.to_seq
    )
    cited = rows.filter(seq__in=list(islice(seqs, MOST_CITED)))
    return history.load_all(cited.order_by("seq"), counter=counter, zone=zone)


def is_being_written(branch: Branch) -> bool:
    """Return True if a worker with a valid claim is writing a summary of this branch."""
    rows = branch.compactions.filter(status=Compaction.Status.PREPARING)
    return rows.filter(leases.match_held_leases()).exists()


def find_summariser(
    values: PolicyValues, *, asked: CompactionRequest | None = None
) -> ModelSpec | None:
    """Return the model that writes summaries.

    None means the extractive summary, also if the model is disabled or no longer exists.
    """
    slug = values.summarization_model
    if asked is not None and asked.model is not None:
        slug = asked.model
    return ModelSpec.objects.filter(slug=slug, enabled=True).first() if slug else None


def may_write_requested(
    asked: CompactionRequest | None, *, branch: Branch, values: PolicyValues
) -> bool:
    """Return True unless a request names a model that may not write this branch's summaries."""
    return (
        asked is None
        or not asked.model
        or may_write_summaries(asked.model, branch=branch, values=values)
    )


def may_write_summaries(slug: str, *, branch: Branch, values: PolicyValues) -> bool:
    """Return True if a user may choose this model for the summaries of a branch.

    The model is enabled, and the policy allows it and lets it get the branch's files.
    """
    is_allowed = values.allowed_models is None or slug in values.allowed_models
    known = ModelSpec.objects.filter(slug=slug, enabled=True)
    return is_allowed and known.exists() and may_get_branch(slug, branch=branch, values=values)


def find_branch_summariser(
    branch: Branch, *, values: PolicyValues, asked: CompactionRequest | None = None
) -> ModelSpec | None:
    """Return the model that writes the summaries of a branch.

    None means the extractive summary, also if the branch has files that the policy does not let the
    summary model get.
    """
    model = find_summariser(values, asked=asked)
    if model is None or may_get_branch(model.slug, branch=branch, values=values):
        return model
    return None


def choose_first_rung(
    branch: Branch, *, summariser: ModelSpec | None, asked: CompactionRequest | None, now: datetime
) -> Rung:
    """Return the method of the first attempt: the summariser, or the extractive summary.

    The extractive summary is used if there is no summariser. It is also used while the
    summariser pauses after repeated failures, unless a user requested the summary.
    """
    if summariser is None:
        return "extractive"
    is_paused = pauses.load_model_breaker(branch, model_name=summariser.name, now=now).is_open
    return "extractive" if is_paused and asked is None else "model"


def get_summariser_limit(
    summariser: ModelSpec | None, *, branch: Branch, values: PolicyValues
) -> int | None:
    """Return the maximum size of a request to the summariser, in local tokens.

    The limits of the model and the policy apply. None: no model is called.
    """
    if summariser is None:
        return None
    calibration = prompt_facts.get_calibration_factor(branch, model=summariser)
    return compute_readable_tokens(values, model_window=summariser.window, calibration=calibration)


def plan_for(
    branch: Branch,
    *,
    choice: model_choice.ChosenModel,
    attempt: AttemptSpec,
    counter: TokenCounter,
) -> CompactionPlan | NotNeeded:
    """Plan a compaction of the finished turns after the active summary.

    Returns `NotNeeded` with the reason if none is due.
    """
    if attempt.asked and attempt.asked.compaction:
        zone = prompt_facts.get_prompt_zone(branch, values=choice.values)
        return plan_rerun(branch, compaction=attempt.asked.compaction, counter=counter, zone=zone)
    summary, _ = prompt_facts.summary_and_window(branch.active_compaction, counter=counter)
    limit = compute_prompt_limit(choice.values, model_window=choice.model.window)
    zone = prompt_facts.get_prompt_zone(branch, values=choice.values)
    _, others = prompt_facts.load_pins_and_exceptions(
        branch, summary=summary, hidden_to=0, counter=counter, zone=zone
    )
    after = summary.to_seq if summary else 0
    unfolded = load_finished_messages(branch, after=after, counter=counter, zone=zone)
    return plan_values(
        (*others, *unfolded),
        previous=summary,
        values=choice.values,
        prompt_limit=convert_provider_tokens(
            limit, calibration=prompt_facts.get_calibration_factor(branch, model=choice.model)
        ),
        fixed_tokens=count_fixed_tokens(branch) + count_tokens_beyond(branch, unfolded),
        trigger="manual" if attempt.asked else "auto",
        source_limit=attempt.source_limit,
        counter=counter,
        came_late=has_late_summaries(branch),
    )


def has_late_summaries(branch: Branch) -> bool:
    """Return True if recent summaries were ready too late, so that a window moved first.

    The window is active now, or one of the last three published summaries replaced it.
    """
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
    """Plan to regenerate a summary from its originals. `NotNeeded` if it is no longer active."""
    row = get_active_summary(branch.active_compaction)
    if row is None or str(row.pk) != compaction:
        return NotNeeded("nothing_to_fold")
    rows = history.select_path_messages(branch, after=row.from_seq - 1, before=row.to_seq + 1)
    originals = history.load_all(rows.order_by("seq"), counter=counter, zone=zone)
    return plan_recompaction(originals, tokens_before=row.tokens_before)


def is_worth_it(branch: Branch, *, choice: model_choice.ChosenModel, plan: CompactionPlan) -> bool:
    """Return True if the prompt has grown enough since the last compaction to justify another.

    Always True under another policy or model, and while a long chat catches up.
    """
    last = get_active_summary(branch.active_compaction)
    if plan.trigger != "prepare" or last is None or not last.tokens_after:
        return True
    if last.effective_policy_id != choice.effective.pk:
        return True
    limit = convert_provider_tokens(
        compute_prompt_limit(choice.values, model_window=choice.model.window),
        calibration=prompt_facts.get_calibration_factor(branch, model=choice.model),
    )
    return last.tokens_after > limit or has_grown(
        plan.tokens_before, tokens_after=last.tokens_after, prompt_limit=limit
    )


def load_finished_messages(
    branch: Branch, *, after: int, counter: TokenCounter, zone: str = ""
) -> tuple[engine.Message, ...]:
    """Return the oldest messages after seq `after` that belong to no unfinished turn.

    Their dates use the time zone `zone`.
    """
    unfinished = Turn.objects.filter(
        branch=branch, status__in=[Turn.Status.QUEUED, Turn.Status.RUNNING]
    )
    # Turn ids select the messages, because a join would scan every message of the branch.
    ids = list(unfinished.values_list("pk", flat=True))
    taken = Message.objects.filter(turn__in=ids, seq__isnull=False)
    # A regenerated turn, or one that answers tool results, has the question of an earlier turn.
    firsts = (
        taken.aggregate(first=Min("seq"))["first"],
        unfinished.aggregate(first=Min("trigger__seq"))["first"],
    )
    open_from = min((seq for seq in firsts if seq is not None), default=None)
    rows = history.select_path_messages(
        branch, after=after, before=open_from or branch.last_seq + 1
    )
    return history.load_all(rows.order_by("seq")[:MOST_MESSAGES], counter=counter, zone=zone)


def count_tokens_beyond(branch: Branch, looked_at: Sequence[engine.Message]) -> int:
    """Return the token count of the messages after those that the plan read (`looked_at`)."""
    if len(looked_at) < MOST_MESSAGES:
        return 0
    beyond = history.select_path_messages(
        branch, after=looked_at[-1].seq, before=branch.last_seq + 1
    )
    return beyond.aggregate(tokens=Sum("token_count"))["tokens"] or 0


def count_fixed_tokens(branch: Branch) -> int:
    """Return the size of the last prompt without its history, in local tokens.

    Retrieved context does not count, because it only uses space that the history leaves free.
    """
    rows = select_reply_calls().filter(turn__branch=branch)
    receipt = rows.order_by("-created_at").only("budget", "segments").first()
    if receipt is None:
        return 0
    fixed = sum(receipt.budget.get(part, 0) for part in ("system", "tools", "pins", "tail"))
    retrieved = sum(row[3] for row in receipt.segments if row[:2] == ["tail", "references"])
    return int(fixed - retrieved)

"""Runs the summariser once on a chat, under an unsaved policy.

Only the call is recorded: its tokens, outcome and duration. The text is returned to the requester
and not stored.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User
from django.utils.translation import gettext_noop

from chats.compaction import attempts, plan
from chats.compaction.perform import (
    Written,
    call_summariser,
    get_reasoning_allowance,
    measure_fact_retention,
)
from chats.ground import databases
from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat
from chats.prompt import model_choice, prompt_facts
from chats.prompt.tokenizer import O200kCounter
from chats.providers.base import ProviderError, ProviderRequest
from chats.record import passthrough_requests, quotas
from chats.simulation.estimates import find_summary_writer
from chats.simulation.proposals import PolicyProposal, choose_under
from contextpolicy.engine.policy.costs import Money, compute_call_cost, parse_reported_usage
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.summaries.acceptance import check_generated_summary, keep_sections
from contextpolicy.engine.summaries.compaction_plan import CompactionPlan, NotNeeded
from contextpolicy.engine.summaries.prompts import (
    build_summary_request,
    count_request_tokens,
    select_prompt_version,
    select_summary_headings,
)
from contextpolicy.models import ModelSpec

# Like a user's request for a summary, which ignores the compaction thresholds.
ASKED = attempts.AttemptSpec(asked=attempts.CompactionRequest(by="preview"))
# Shares of the summariser's limit to try: everything at first, then only the oldest messages that
# fit into one call.
SHARES = (None, 0.75, 0.5, 0.25)


class NoSummariser(Refusal):
    """The policy has no model or strategy that writes summaries. Choose one first."""

    code = "no_summariser"
    status = 409
    sentence = gettext_noop(
        "This policy has no summarising model. Choose one under “Summarising model”, and "
        "choose a strategy that writes summaries."
    )


class NothingToSummarise(Refusal):
    """The chat has too few messages for a summary under this policy."""

    code = "nothing_to_fold"
    status = 409
    sentence = gettext_noop(
        "This chat has too few messages for a summary under this policy. Choose a longer chat."
    )


class TooLongForOneCall(Refusal):
    """The messages do not fit into the context window of the summarising model."""

    code = "too_long_for_one_call"
    status = 409
    sentence = gettext_noop(
        "The smallest request for this summary has about {tokens:,} tokens, but a request to "
        "this model can have only {limit:,}. Choose a model with a larger context window."
    )


class TrialFailed(Refusal):
    """The model server failed or returned an invalid response."""

    code = "trial_failed"
    status = 502
    sentence = gettext_noop(
        "The summarising model failed: {reason} The audit log records the usage of the call."
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A summary that was written but not stored, with its numbers and acceptance reasons."""

    model: str
    text: str
    messages: int
    replaced: int
    tokens: int
    seconds: float
    cost: Money
    # As counted by the provider; None if it reported no usage.
    input: int | None
    output: int | None
    kept: int
    lost: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """A prepared call: the request, the model and the compaction plan."""

    request: ProviderRequest
    model: ModelSpec
    plan: CompactionPlan
    values: PolicyValues


def run_trial(
    *, user: User, chat: Chat, proposal: PolicyProposal, clock: Callable[[], datetime]
) -> Trial:
    """Call the summariser once, for the owner of the chat. Call outside transactions.

    Raises `NotFound`, `NoSummariser`, `NothingToSummarise`, `TooLongForOneCall`, `TrialUnderWay`,
    `TrialFailed`, `quotas.QuotaExceeded`, and the errors of `model_choice.choose_chat_model` and
    `model_choice.get_model_account`.
    """
    if chat.owner_id != user.pk:
        raise NotFound
    ready = prepare_trial(chat, proposal=proposal)
    account = model_choice.get_model_account(ready.model)
    # The limits of the current policy apply, not those of the proposal.
    in_force = model_choice.choose_chat_model(chat=chat)
    meter = quotas.build_quota_meter(
        owner_id=user.pk,
        values=in_force.values,
        prices=ready.model.prices,
        estimate=count_request_tokens(ready.request.messages, counter=O200kCounter()),
    )
    row = passthrough_requests.start_summary_trial(
        owner=user, model=ready.model, now=clock(), meter=meter
    )
    begun = time.monotonic()
    ended = passthrough_requests.Ended("lost", {})
    try:
        databases.give_back()
        written = asyncio.run(call_summariser(ready.request, account=account))
        ended = passthrough_requests.Ended("ok", written.usage)
    except ProviderError as error:
        ended = passthrough_requests.Ended("failed", {}, error.code)
        raise TrialFailed(reason=error.full) from error
    finally:
        passthrough_requests.finish_passthrough(row, ended, now=clock(), meter=meter)
    return check_trial_summary(ready, written, seconds=time.monotonic() - begun)


def prepare_trial(chat: Chat, *, proposal: PolicyProposal) -> Ready:
    """Plan the summary and compose its one request; nothing is written.

    Raises `NotFound`, `NoSummariser`, `NothingToSummarise`, `TooLongForOneCall`, and the errors of
    `model_choice.choose_chat_model`.
    """
    branch = attempts.find_active_branch(chat.pk)
    if branch is None:
        raise NotFound
    choice = choose_under(branch.chat, proposal=proposal)
    values = choice.values
    model = find_summary_writer(values) if values.strategy == "dynamic_summary" else None
    if model is None:
        raise NoSummariser
    counter = O200kCounter()
    limit = plan.get_summariser_limit(model, branch=branch, values=values) or 1
    for share in SHARES:
        source_limit = None if share is None else max(int(limit * share), 1)
        attempt = replace(ASKED, source_limit=source_limit)
        found = plan.plan_for(branch, choice=choice, attempt=attempt, counter=counter)
        if isinstance(found, NotNeeded):
            if share is None:
                raise NothingToSummarise
            continue
        zone = prompt_facts.get_prompt_zone(branch, values=values)
        messages = build_summary_request(
            messages=found.sources,
            previous=found.previous,
            values=values,
            version=select_prompt_version(model.window),
            cited=plan.load_cited_messages(
                found.previous, branch=branch, counter=counter, zone=zone
            ),
        )
        tokens = count_request_tokens(messages, counter=counter)
        if tokens <= limit:
            break
    else:
        raise TooLongForOneCall(tokens=tokens, limit=limit)
    most = values.summary_max_tokens
    request = ProviderRequest(
        model=model.name,
        messages=messages,
        max_output_tokens=most + get_reasoning_allowance(tokens + most, window=model.window),
        stream=not model.cannot_stream,
    )
    return Ready(request, model, found, values)


def check_trial_summary(ready: Ready, written: Written, *, seconds: float) -> Trial:
    """Check a summary with the worker's acceptance rules, and return it with its numbers."""
    counter, sources = O200kCounter(), ready.plan.sources
    written.text = keep_sections(written.text, select_summary_headings(ready.values))
    previous = ready.plan.previous
    said = check_generated_summary(
        written.text,
        sources=sources,
        previous=previous,
        finish=written.finish,
        has_tool_calls=written.has_tool_calls,
        reasoning_only=written.has_reasoning and not written.text.strip(),
        values=ready.values,
        counter=counter,
    )
    found = measure_fact_retention(sources, previous, written.text)
    used = parse_reported_usage(written.usage)
    cost = compute_call_cost(used, ready.model.prices) if used is not None else None
    return Trial(
        model=str(ready.model),
        text=written.text,
        messages=len(sources),
        replaced=sum(m.tokens for m in sources) + (previous.tokens if previous else 0),
        tokens=counter.count(written.text),
        seconds=seconds,
        cost=Money.of(cost, currency=ready.model.currency),
        input=used.input if used else None,
        output=used.output if used else None,
        kept=sum(len(each) for each in found["kept"].values()),
        lost=sum(len(each) for each in found["lost"].values()),
        reasons=said.reasons,
    )

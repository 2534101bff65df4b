"""Runs the summariser for real on a chat, under a policy that nobody saved: one call, and no more.

Nothing is stored but the account of the call: its tokens, its outcome and its time. The text goes
to who asked, and nowhere else.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User

from chats.compaction import plan
from chats.compaction.perform import Written, answer, facts, room_for_thoughts
from chats.ground import databases
from chats.ground.refusals import NotFound, Refusal
from chats.models import Chat
from chats.prompt import composition, model_choice
from chats.providers.base import ProviderError, ProviderRequest
from chats.record import passed_on
from chats.simulation.estimates import summariser_of
from chats.simulation.proposals import PolicyProposal, choose_under
from contextpolicy.engine.acceptance import keep_sections, verdict
from contextpolicy.engine.compaction import CompactionPlan, NotNeeded
from contextpolicy.engine.costs import Money, cost_of, used_of
from contextpolicy.engine.policy import PolicyValues
from contextpolicy.engine.prompts import headings_of, request_tokens, summary_request, version_for
from contextpolicy.engine.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec

# As a person asks for a summary, whatever the marks say.
ASKED = plan.AttemptSpec(asked=plan.CompactionRequest(by="preview"))
# What the summariser reads: all that would be folded, or as much of it, the oldest, as fits beside
# the instructions into one call.
SHARES = (None, 0.75, 0.5, 0.25)


class NoSummariser(Refusal):
    """No model writes summaries under the policy."""

    code = "no_summariser"
    status = 409
    sentence = (
        "No model writes summaries under this policy, so there is none to run. Choose one under"
        " “Summaries by”, with the strategy that summarises."
    )


class NothingToSummarise(Refusal):
    """The chat has nothing that would be folded."""

    code = "nothing_to_fold"
    status = 409
    sentence = (
        "Under this policy nothing of this chat would be summarised yet. Choose a longer chat."
    )


class TooLongForOneCall(Refusal):
    """The summariser cannot read all of it at once."""

    code = "too_long_for_one_call"
    status = 409
    sentence = (
        "The least that could be summarised takes about {tokens:,} tokens; the summariser reads"
        " {limit:,} in one call, and a trial makes one. Choose a model with more room."
    )


class TrialFailed(Refusal):
    """The model server did not answer as it should."""

    code = "trial_failed"
    status = 502
    sentence = "The summariser was asked and failed: {reason} What it took is in the ledger."


@dataclass(frozen=True, slots=True)
class Trial:
    """A summary that was written for real and kept nowhere, with its numbers and the verdict."""

    model: str
    text: str
    messages: int
    replaced: int
    tokens: int
    seconds: float
    cost: Money
    input: int
    output: int
    kept: int
    lost: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that can be made: its request, its model, and what it is about."""

    request: ProviderRequest
    model: ModelSpec
    plan: CompactionPlan
    values: PolicyValues


def run(
    *, user: User, chat: Chat, proposal: PolicyProposal, clock: Callable[[], datetime]
) -> Trial:
    """Ask the summariser once; the chat is the person's own. Call outside transactions.

    Raises `NotFound`, `NoSummariser`, `NothingToSummarise`, `TooLongForOneCall`, `TrialUnderWay`,
    `TrialFailed`, and what `model_choice.choose` and `model_choice.account_for` raise.
    """
    if chat.owner_id != user.pk:
        raise NotFound
    ready = prepare(chat, proposal=proposal)
    account = model_choice.account_for(ready.model)
    row = passed_on.begin_trial(owner=user, model=ready.model, now=clock())
    begun = time.monotonic()
    ended = passed_on.Ended("lost", {})
    try:
        databases.give_back()
        written = asyncio.run(answer(ready.request, account=account))
        ended = passed_on.Ended("ok", written.usage)
    except ProviderError as error:
        ended = passed_on.Ended("failed", {}, error.code)
        raise TrialFailed(reason=error.sentence) from error
    finally:
        passed_on.end(row, ended, now=clock())
    return judged(ready, written, seconds=time.monotonic() - begun)


def prepare(chat: Chat, *, proposal: PolicyProposal) -> Ready:
    """Plan what would be folded, and compose its one request; nothing is written.

    Raises `NotFound`, `NoSummariser`, `NothingToSummarise`, `TooLongForOneCall`, and what
    `model_choice.choose` raises.
    """
    branch = plan.active_branch(chat.pk)
    if branch is None:
        raise NotFound
    choice = choose_under(branch.chat, proposal=proposal)
    values = choice.values
    model = summariser_of(values) if values.strategy == "dynamic_summary" else None
    if model is None:
        raise NoSummariser
    counter = ApproximateCounter()
    limit = plan.readable_by(model, branch=branch, values=values) or 1
    for share in SHARES:
        source_limit = None if share is None else max(int(limit * share), 1)
        attempt = replace(ASKED, source_limit=source_limit)
        found = plan.plan_for(branch, choice=choice, attempt=attempt, counter=counter)
        if isinstance(found, NotNeeded):
            if share is None:
                raise NothingToSummarise
            continue
        zone = composition.zone_for(branch, values=values)
        messages = summary_request(
            messages=found.sources,
            previous=found.previous,
            values=values,
            version=version_for(model.window),
            cited=plan.cited_by(found.previous, branch=branch, counter=counter, zone=zone),
        )
        tokens = request_tokens(messages, counter=counter)
        if tokens <= limit:
            break
    else:
        raise TooLongForOneCall(tokens=tokens, limit=limit)
    most = values.summary_max_tokens
    request = ProviderRequest(
        model=model.name,
        messages=messages,
        max_output_tokens=most + room_for_thoughts(tokens + most, window=model.window),
        stream=not model.cannot_stream,
    )
    return Ready(request, model, found, values)


def judged(ready: Ready, written: Written, *, seconds: float) -> Trial:
    """Judge a summary as the run would, and return it with its numbers."""
    counter, sources = ApproximateCounter(), ready.plan.sources
    written.text = keep_sections(written.text, headings_of(ready.values))
    previous = ready.plan.previous
    said = verdict(
        written.text,
        sources=sources,
        previous=previous,
        finish=written.finish,
        has_tool_calls=written.has_tool_calls,
        reasoning_only=written.has_reasoning and not written.text.strip(),
        values=ready.values,
        counter=counter,
    )
    found = facts(sources, previous, written.text)
    used = used_of(written.usage)
    cost = cost_of(used, ready.model.prices) if used is not None else None
    return Trial(
        model=str(ready.model),
        text=written.text,
        messages=len(sources),
        replaced=sum(m.tokens for m in sources) + (previous.tokens if previous else 0),
        tokens=counter.count(written.text),
        seconds=seconds,
        cost=Money.of(cost, currency=ready.model.currency),
        input=used.input if used else 0,
        output=used.output if used else 0,
        kept=sum(len(each) for each in found["kept"].values()),
        lost=sum(len(each) for each in found["lost"].values()),
        reasons=said.reasons,
    )

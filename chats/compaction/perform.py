"""Writes a summary, with a model or extractively, and checks it, outside transactions."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any

from django.conf import settings

from chats.compaction import running_summaries
from chats.compaction.calls import CallRecord, Count, Renew, SummaryCall, SummarySources
from chats.compaction.claims import Claimed
from chats.ground.background_lock import alone
from chats.prompt import model_choice
from chats.providers import registry
from chats.providers.base import ProviderError, ProviderRequest, Timeouts
from chats.providers.collector import ReplyCollector
from chats.providers.demo import is_own_account
from chats.providers.registry import ProviderAccountValue as Account
from chats.providers.stored_options import get_learned_options
from contextpolicy.engine.messages.messages import Message, Summary, extract_message_text
from contextpolicy.engine.messages.segments import format_prompt_json
from contextpolicy.engine.messages.tokens import TokenCounter
from contextpolicy.engine.policy import costs
from contextpolicy.engine.summaries.acceptance import check_generated_summary, keep_sections
from contextpolicy.engine.summaries.chunks import map_reduce
from contextpolicy.engine.summaries.extractive import EXTRACTIVE_V9, build_extractive_summary
from contextpolicy.engine.summaries.prompts import (
    SECTIONS,
    count_request_tokens,
    count_transcript_tokens,
    select_prompt_version,
    select_summary_headings,
)
from contextpolicy.engine.text.claims import strip_summary_labels
from contextpolicy.engine.text.facts import compare_summary_facts
from contextpolicy.models import ModelSpec

# In tokens: the frame of a merged summary, and the default limit of a request.
MERGE_FRAME = 24
NO_LIMIT = 1 << 40
# In tokens: extra output for a model that reasons before it writes.
THOUGHTS = 4_000
# Maximum chunks a model reads for one summary: the newest ones. Older messages are summarised
# extractively.
MOST_CHUNKS = 8
# In characters: minimum length of a truncated message in a transcript.
SHORTEST_CUT = 100


@dataclass(slots=True)
class Written:
    """A generated summary. `usage` is the total of all its calls."""

    text: str = ""
    finish: str = "stop"
    has_tool_calls: bool = False
    has_reasoning: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    # The provider reported no usage for one of the calls, so the total cost is unknown.
    is_unreported: bool = False
    # SHA-256 of each call's request body as sent.
    bodies: list[str] = field(default_factory=list)
    prompt_version: str = EXTRACTIVE_V9

    @property
    def is_sound(self) -> bool:
        """Return True if the text is a valid part of a summary.

        The engine checks the complete summary.
        """
        return self.finish == "stop" and not self.has_tool_calls and bool(self.text.strip())


@dataclass(frozen=True, slots=True)
class Performed:
    """A summary with the result of its check. `reasons` is empty if it was accepted."""

    written: Written
    reasons: tuple[str, ...]
    tokens: int
    kept_facts: dict[str, Any]
    lost: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    duration_ms: int = 0
    cost: Decimal | None = None


def perform_compaction(
    claimed: Claimed,
    *,
    counter: TokenCounter,
    renew: Renew,
    count: Count = lambda _usage, _estimate: None,
) -> Performed:
    """Write and check a summary. Raises the errors of `Calls.ask`."""
    begun = time.monotonic()
    if claimed.summariser is None:
        with alone:
            written = write_extractive_summary(claimed, counter=counter)
    else:
        calls = Calls(claimed, spec=claimed.summariser, renew=renew, count=count, counter=counter)
        written = calls.summarise()
    with alone:
        return assess_summary(claimed, written, begun=begun, counter=counter)


def write_extractive_summary(claimed: Claimed, *, counter: TokenCounter) -> Written:
    """Build a summary from sentences of the messages, without calling a model."""
    plan, most = claimed.plan, claimed.values.summary_max_tokens
    text = extract_summary_text(
        plan.sources,
        plan.previous,
        most=most,
        counter=counter,
        sections=select_summary_headings(claimed.values),
        cited=claimed.cited,
    )
    return Written(text=text)


def extract_summary_text(
    sources: Sequence[Message],
    previous: Summary | None,
    *,
    most: int,
    counter: TokenCounter,
    sections: Sequence[str] = SECTIONS,
    cited: Sequence[Message] = (),
) -> str:
    """Build an extractive summary of at most `most` tokens.

    The demo model's descriptions of its requests are left out. `cited`: the messages to which the
    source marks of `previous` refer.
    """
    quoted = [m for m in sources if is_quoted(m.role, extract_message_text(m))]
    unquoted = sum(m.tokens for m in sources) - sum(m.tokens for m in quoted)
    return build_extractive_summary(
        quoted,
        previous,
        max_tokens=most,
        counter=counter,
        unquoted=unquoted,
        sections=sections,
        cited=cited,
    )


def is_quoted(role: str, text: str) -> bool:
    """Return True if a summary may quote the message.

    Descriptions written by the demo model are not quoted.
    """
    return role == "user" or not is_own_account(text)


def assess_summary(
    claimed: Claimed, written: Written, *, begun: float, counter: TokenCounter
) -> Performed:
    """Check a summary and return it with its measurements.

    `begun`: the `time.monotonic()` value at which it was started.
    """
    checked = check_generated_summary(
        written.text,
        sources=claimed.plan.sources,
        previous=claimed.plan.previous,
        finish=written.finish,
        has_tool_calls=written.has_tool_calls,
        reasoning_only=written.has_reasoning and not written.text.strip(),
        values=claimed.values,
        counter=counter,
        by_model=claimed.summariser is not None,
    )
    return Performed(
        written=written,
        reasons=checked.reasons,
        tokens=counter.count(written.text),
        kept_facts=measure_fact_retention(
            claimed.plan.sources, claimed.plan.previous, written.text
        ),
        lost=checked.lost,
        unknown=checked.unknown,
        duration_ms=round((time.monotonic() - begun) * 1000),
        cost=None
        if written.is_unreported
        else calculate_summary_cost(claimed.summariser, written.usage),
    )


def measure_fact_retention(
    sources: Sequence[Message], previous: Summary | None, text: str
) -> dict[str, Any]:
    """Count the facts of the sources that the summary keeps and loses.

    Facts are numbers, dates, addresses, identifiers and names.
    """
    texts = [extract_message_text(m) for m in sources if is_quoted(m.role, extract_message_text(m))]
    if previous:
        texts.insert(0, strip_summary_labels(previous.text))
    found = compare_summary_facts("\n".join(texts), text)
    return {"kept": dict(found.kept), "lost": dict(found.lost), "share": found.share}


def calculate_summary_cost(spec: ModelSpec | None, usage: dict[str, int]) -> Decimal | None:
    """Return the cost of the calls; None if a price of the model or the usage is unknown."""
    used = costs.parse_reported_usage(usage)
    return (
        costs.compute_call_cost(used, spec.prices)
        if spec is not None and used is not None
        else None
    )


class Calls:
    """The model calls of one summary: a single call, or several whose results are merged."""

    def __init__(
        self,
        claimed: Claimed,
        *,
        spec: ModelSpec,
        renew: Renew,
        count: Count,
        counter: TokenCounter,
    ) -> None:
        self.claimed = claimed
        self.counter = counter
        self.spec = spec
        self.renew = renew
        self.count = count
        self.usage: dict[str, int] = {}
        self.is_unreported = False
        self.bodies: list[str] = []
        self.sources = SummarySources(
            claimed.plan.sources,
            claimed.plan.previous,
            claimed.values,
            claimed.row.focus,
            claimed.cited,
        )
        self.record = CallRecord(
            lost=claimed.attempt.lost,
            unknown=claimed.attempt.unknown,
            version=select_prompt_version(spec.window),
            zone=claimed.zone,
        )

    def summarise(self) -> Written:
        """Return the summary. An invalid part is returned instead, and rejected later."""
        sources = self.claimed.plan.sources
        whole = SummaryCall(sources[0].seq, sources[-1].seq, is_last=True)
        return self.ask(whole) if self.excess(whole) <= 0 else self.in_chunks()

    def excess(self, call: SummaryCall) -> int:
        """Return the number of tokens by which a request exceeds its limit; negative if it fits."""
        limit = self.claimed.readable
        asked = self.sources.request(call, self.record)
        return count_request_tokens(asked, counter=self.counter) - (
            NO_LIMIT if limit is None else limit
        )

    def in_chunks(self) -> Written:
        """Summarise chunks of the messages, then merge neighbouring results until one is left."""
        plan, values = self.claimed.plan, self.claimed.values
        prior = plan.previous.tokens if plan.previous else 0
        # A merge also reads the previous summary; a chunk does not.
        room = max(-self.excess(SummaryCall()) - prior, 1)
        calls = map_reduce(
            plan.sources,
            source_limit=room,
            summary_max_tokens=values.summary_max_tokens + MERGE_FRAME,
            cost=partial(
                count_transcript_tokens,
                values=values,
                counter=self.counter,
                version=self.record.version,
            ),
            most_chunks=MOST_CHUNKS,
        )
        # Indexes of the texts in the record.
        texts: list[int] = []
        if calls.before:
            most, sections = values.summary_max_tokens, select_summary_headings(values)
            text = extract_summary_text(
                calls.before, None, most=most, counter=self.counter, sections=sections
            )
            texts.append(self.kept(text))
        for chunk in calls.chunks:
            first, last = chunk.messages[0].seq, chunk.messages[-1].seq
            call = SummaryCall(first, last, max_chars=chunk.max_chars, cuts_tools=True)
            part = self.ask(self.cut(call))
            if not part.is_sound:
                return part
            texts.append(self.kept(part.text))
        # A single chunk still has to be merged with the previous summary.
        rounds = calls.rounds or (((0, 1),),)
        for merges in rounds[:-1]:
            merged: list[int] = []
            for start, end in merges:
                part = self.ask(SummaryCall(texts=tuple(texts[start:end])))
                if not part.is_sound:
                    return part
                merged.append(self.kept(part.text))
            texts = merged
        return self.ask(SummaryCall(texts=tuple(texts), is_last=True))

    def kept(self, text: str) -> int:
        """Store an intermediate result for later requests. Return its index."""
        self.record.texts.append(text)
        return len(self.record.texts) - 1

    def cut(self, call: SummaryCall) -> SummaryCall:
        """Truncate the largest messages of a call until its request fits."""
        most = call.max_chars
        if most is None or most < SHORTEST_CUT or self.excess(call) <= 0:
            return call
        return self.cut(replace(call, max_chars=most // 2))

    def ask(self, call: SummaryCall) -> Written:
        """Record one call, renew the claim, then make the call. Its usage is added to the total.

        Raises `ProviderError`, also for a request over the limit, `ModelUnavailable`, `HandedBack`,
        and the errors of `renew`.
        """
        if self.excess(call) > 0:
            raise ProviderError("context_overflow")
        messages = self.sources.request(call, self.record)
        most = self.claimed.values.summary_max_tokens
        taken = count_request_tokens(messages, counter=self.counter) + most
        call = replace(call, room=get_reasoning_allowance(taken, window=self.spec.window))
        self.record.calls.append(call)
        self.renew(format_prompt_json(messages, ()), self.record)
        request = ProviderRequest(
            model=self.spec.name,
            messages=messages,
            max_output_tokens=most + call.room,
            stream=not self.spec.cannot_stream,
            known=get_learned_options(self.spec),
        )
        account = model_choice.get_model_account(self.spec)
        try:
            written = running_summaries.here.wait_for(
                call_summariser(request, account=account), token=self.claimed.lease.token
            )
        except (ProviderError, running_summaries.HandedBack) as error:
            # After a shutdown or a timeout, the provider may have written a part of the summary.
            if not isinstance(error, ProviderError) or error.code == "provider_timeout":
                self.count({}, taken - most)
            raise
        self.count(written.usage, taken - most)
        self.is_unreported |= costs.parse_reported_usage(written.usage) is None
        written.is_unreported = self.is_unreported
        for name, tokens in written.usage.items():
            self.usage[name] = self.usage.get(name, 0) + tokens
        written.usage = dict(self.usage)
        self.bodies += written.bodies
        written.bodies = list(self.bodies)
        written.prompt_version = self.record.version
        written.text = keep_sections(written.text, select_summary_headings(self.claimed.values))
        return written


def get_reasoning_allowance(taken: int, *, window: int | None) -> int:
    """Return the number of tokens that the model may use for reasoning, on top of the summary.

    0 if the window has no room for them. `taken`: the token count of the request and the summary.
    """
    return THOUGHTS if taken + THOUGHTS <= (window or NO_LIMIT) else 0


async def call_summariser(request: ProviderRequest, *, account: Account) -> Written:
    """Return the summarising model's response to one request. Raises `ProviderError`."""
    provider = registry.get_provider(account, timeouts=Timeouts(**settings.PROVIDER_TIMEOUTS))
    reply = ReplyCollector()
    try:
        async with asyncio.timeout(settings.SUMMARY_SECONDS):
            await reply.hear_all(provider, request)
    except TimeoutError as error:
        raise ProviderError("provider_timeout") from error
    finally:
        await registry.aclose_all()
    if reply.error is not None:
        raise reply.error
    return Written(
        text=str(reply.text),
        # A truncated response is checked like any other incomplete one.
        finish="length" if reply.is_full else reply.reason,
        has_tool_calls=bool(reply.asked),
        has_reasoning=reply.reasoning.length > 0,
        usage=reply.usage,
        bodies=[reply.body_sha256],
    )

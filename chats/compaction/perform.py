"""Write the summary and judge it: a model's or the extractive one, outside any transaction."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, cast

from django.conf import settings

from chats import context
from chats.compaction.plan import Claimed
from chats.providers import registry
from chats.providers.base import (
    Finished,
    ProviderError,
    ProviderEvent,
    ProviderRequest,
    ReasoningDelta,
    TextDelta,
    Timeouts,
    ToolCallDelta,
    UsageReport,
)
from contextpolicy.engine.acceptance import verdict
from contextpolicy.engine.extractive import extractive_summary
from contextpolicy.engine.facts import retention
from contextpolicy.engine.messages import text_of
from contextpolicy.engine.prompts import SUMMARY_V1, summary_request
from contextpolicy.engine.tokens import TokenCounter
from contextpolicy.models import ModelSpec

EXTRACTIVE_V1 = "extractive-v1"


@dataclass(slots=True)
class Written:
    """What a summariser answered."""

    text: str = ""
    finish: str = "stop"
    has_tool_calls: bool = False
    has_reasoning: bool = False
    usage: dict[str, int] = field(default_factory=dict)
    prompt_version: str = EXTRACTIVE_V1


@dataclass(frozen=True, slots=True)
class Performed:
    """A summary and the verdict on it; `reasons` is empty when it may be used."""

    written: Written
    reasons: tuple[str, ...]
    tokens: int
    kept_facts: dict[str, Any]


def perform(claimed: Claimed, *, counter: TokenCounter) -> Performed:
    """Summarise and judge. Raises `ProviderError` when the summariser cannot be reached."""
    if claimed.summariser is None:
        written = Written(
            text=extractive_summary(
                claimed.plan.sources,
                claimed.plan.previous,
                max_tokens=claimed.values.summary_max_tokens,
                counter=counter,
            )
        )
    else:
        written = asyncio.run(ask(claimed, spec=claimed.summariser))
    judged = verdict(
        written.text,
        sources=claimed.plan.sources,
        previous=claimed.plan.previous,
        finish=written.finish,
        has_tool_calls=written.has_tool_calls,
        reasoning_only=written.has_reasoning and not written.text.strip(),
        values=claimed.values,
        counter=counter,
    )
    return Performed(
        written=written,
        reasons=judged.reasons,
        tokens=counter.count(written.text),
        kept_facts=facts(claimed, written.text),
    )


def facts(claimed: Claimed, text: str) -> dict[str, Any]:
    """Which numbers, dates, addresses, identifiers and names the summary kept and lost."""
    sources = [text_of(message) for message in claimed.plan.sources]
    if claimed.plan.previous:
        sources.insert(0, claimed.plan.previous.text)
    found = retention("\n".join(sources), text)
    return {"kept": dict(found.kept), "lost": dict(found.lost), "share": found.share}


async def ask(claimed: Claimed, *, spec: ModelSpec) -> Written:
    """One call to the summarising model. Raises `ProviderError`."""
    account = await asyncio.to_thread(context.account_for, spec)
    provider = registry.provider_for(account, timeouts=Timeouts(**settings.PROVIDER_TIMEOUTS))
    request = ProviderRequest(
        model=spec.name,
        messages=summary_request(
            messages=claimed.plan.sources, previous=claimed.plan.previous, values=claimed.values
        ),
        max_output_tokens=claimed.values.summary_max_tokens,
    )
    written = Written(finish="none", prompt_version=SUMMARY_V1)
    try:
        async with asyncio.timeout(settings.SUMMARY_SECONDS):
            stream = cast(AsyncGenerator[ProviderEvent, None], provider.stream(request))
            async with aclosing(stream) as events:
                async for event in events:
                    hear(event, written)
    except TimeoutError as error:
        raise ProviderError("provider_timeout") from error
    finally:
        await registry.aclose_all()
    return written


def hear(event: ProviderEvent, written: Written) -> None:
    """One event of the summariser's answer."""
    match event:
        case TextDelta(text):
            written.text += text
        case ReasoningDelta():
            written.has_reasoning = True
        case ToolCallDelta():
            written.has_tool_calls = True
        case UsageReport():
            written.usage = {"input": event.input_tokens, "output": event.output_tokens}
        case Finished(reason):
            written.finish = reason

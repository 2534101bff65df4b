"""Helpers that call a provider in a test and inspect the events."""

import asyncio
from collections.abc import Sequence
from typing import Any

from chats.providers.anthropic import AnthropicProvider
from chats.providers.base import (
    Provider,
    ProviderEvent,
    ProviderRequest,
    TextDelta,
    Timeouts,
)
from chats.providers.openai import OpenAIProvider
from contextpolicy.engine.messages.messages import WireMessage
from tests.fakes.fake_server import FakeServer

# The first is for calls that must time out, the second for calls that must not.
QUICK = Timeouts(connect=1.0, first_token=0.5, gap=0.5, total=5.0)
ROOMY = Timeouts(connect=5.0, first_token=20.0, gap=20.0, total=40.0)


ADAPTERS: dict[str, type[OpenAIProvider] | type[AnthropicProvider]] = {
    "openai": OpenAIProvider,
    "anthropic": AnthropicProvider,
}


def asked(question: str, **changes: Any) -> ProviderRequest:
    """A request with one user message."""
    given = {"model": "fake-chat", "messages": (WireMessage("user", question),), **changes}
    return ProviderRequest(**given)


def adapter_to(
    server: FakeServer, *, timeouts: Timeouts = ROOMY, api_key: str = "sk-canary-0123456789"
) -> OpenAIProvider | AnthropicProvider:
    """An adapter that is allowed to reach a fake server."""
    return ADAPTERS[server.kind](
        base_url=server.base_url,
        api_key=api_key,
        timeouts=timeouts,
        allowed_private=[server.host],
    )


async def collect(
    provider: Provider, request: ProviderRequest, into: list[ProviderEvent] | None = None
) -> list[ProviderEvent]:
    """All events of a call. Pass `into` to keep the events that came before an error."""
    events: list[ProviderEvent] = [] if into is None else into
    async for event in provider.stream(request):
        events.append(event)
    return events


def call(
    provider: Provider, request: ProviderRequest, into: list[ProviderEvent] | None = None
) -> list[ProviderEvent]:
    """Run `collect` in a new event loop and close the provider afterwards."""

    async def run() -> list[ProviderEvent]:
        try:
            return await collect(provider, request, into)
        finally:
            await provider.aclose()

    return asyncio.run(run())


def text_in(events: Sequence[ProviderEvent]) -> str:
    """The reply's text."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))

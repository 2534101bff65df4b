"""Makes the provider of an account, one per worker process and event loop."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from typing import cast
from weakref import WeakKeyDictionary

from django.conf import settings

from chats.providers import kinds
from chats.providers.base import (
    Provider,
    ProviderError,
    ProviderEvent,
    ProviderRequest,
    Timeouts,
)
from chats.providers.demo import DemoProvider
from chats.providers.kinds import Kind

# Imported by name when the first account of the kind is used: the openai package costs 0.7 s and
# 30 MB, which the web process, that needs this module too, never spends.
_ADAPTERS = {
    "openai": ("chats.providers.openai", "OpenAIProvider"),
    "anthropic": ("chats.providers.anthropic", "AnthropicProvider"),
}


@dataclass(frozen=True, slots=True)
class ProviderAccountValue:
    """The address and key of a model server; the key is in the clear, so it is never printed."""

    slug: str
    kind: Kind
    base_url: str
    api_key: str = field(repr=False)
    name: str = ""
    # A private server that may be asked to read prompts ahead.
    warms_up: bool = False


_Key = tuple[ProviderAccountValue, Timeouts]
# Connections belong to the loop that opened them. A provider whose account changed is no longer
# found here and ends with its last reply.
_providers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, Provider]] = WeakKeyDictionary()


def provider_for(account: ProviderAccountValue, *, timeouts: Timeouts) -> Provider:
    """Return the provider of an account, the same one for equal values.

    Call it in a running loop.
    """
    kept = _providers.setdefault(asyncio.get_running_loop(), {})
    key = (account, timeouts)
    if key not in kept:
        kept[key] = _FACTORIES[account.kind](account, timeouts)
    return kept[key]


def load_adapters(used: Collection[str]) -> None:
    """Import what calls to servers of these kinds need: during that second a loop stands still."""
    for kind, (module, _) in _ADAPTERS.items():
        if kind in used and kinds.is_installed(kind):
            importlib.import_module(module)


async def aclose_all() -> None:
    """Close every provider of the running loop."""
    for provider in _providers.pop(asyncio.get_running_loop(), {}).values():
        await provider.aclose()


class Uninstalled:
    """Stands for an adapter whose package is not installed: every call fails and says so."""

    async def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Yield nothing. Raises ProviderError."""
        events: tuple[ProviderEvent, ...] = ()
        for event in events:
            yield event
        raise ProviderError("provider_rejected", sentence=kinds.PackageMissing.sentence)

    async def aclose(self) -> None:
        """Do nothing: no connection is open."""


def _server(account: ProviderAccountValue, timeouts: Timeouts) -> Provider:
    if not kinds.is_installed(account.kind):
        return Uninstalled()
    module, name = _ADAPTERS[account.kind]
    adapter = getattr(importlib.import_module(module), name)
    return cast(
        Provider,
        adapter(
            base_url=account.base_url,
            api_key=account.api_key,
            timeouts=timeouts,
            allowed_private=settings.ALLOWED_PRIVATE_PROVIDERS,
        ),
    )


def _demo(account: ProviderAccountValue, timeouts: Timeouts) -> Provider:
    del account, timeouts  # the demo model reaches nothing and waits for nobody
    return DemoProvider(token_delay=settings.DEMO_TOKEN_DELAY)


_FACTORIES: dict[Kind, Callable[[ProviderAccountValue, Timeouts], Provider]] = {
    "openai": _server,
    "anthropic": _server,
    "demo": _demo,
}

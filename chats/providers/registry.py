"""Creates the provider of an account, one per worker process and event loop."""

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

# Imported at first use: the openai package takes 0.7 s and 30 MB, and the web process imports this
# module but not the package.
_ADAPTERS = {
    "openai": ("chats.providers.openai", "OpenAIProvider"),
    "anthropic": ("chats.providers.anthropic", "AnthropicProvider"),
}


@dataclass(frozen=True, slots=True)
class ProviderAccountValue:
    """The URL and key of a model server. `repr` leaves out the key, which is plain text."""

    slug: str
    kind: Kind
    base_url: str
    api_key: str = field(repr=False)
    name: str = ""
    # A private server that accepts cache warm-ups.
    warms_up: bool = False


_Key = tuple[ProviderAccountValue, Timeouts]
# Connections belong to the loop that opened them. The provider of a changed account is not returned
# any more and ends with its last reply.
_providers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Key, Provider]] = WeakKeyDictionary()


def get_provider(account: ProviderAccountValue, *, timeouts: Timeouts) -> Provider:
    """Return the provider of an account for the running event loop.

    Returns the same provider for equal account values and timeouts.
    """
    kept = _providers.setdefault(asyncio.get_running_loop(), {})
    key = (account, timeouts)
    if key not in kept:
        kept[key] = _FACTORIES[account.kind](account, timeouts)
    return kept[key]


def load_adapters(used: Collection[str]) -> None:
    """Import the adapters for these kinds. This takes about a second and blocks the event loop."""
    for kind, (module, _) in _ADAPTERS.items():
        if kind in used and kinds.is_kind_installed(kind):
            importlib.import_module(module)


async def aclose_all() -> None:
    """Close all providers of the running loop."""
    for provider in _providers.pop(asyncio.get_running_loop(), {}).values():
        await provider.aclose()


class Uninstalled:
    """A stand-in for an adapter whose package is not installed. Each call raises ProviderError."""

    async def stream(self, request: ProviderRequest) -> AsyncIterator[ProviderEvent]:
        """Raise ProviderError, because the package of the provider is not installed."""
        events: tuple[ProviderEvent, ...] = ()
        for event in events:
            yield event
        raise ProviderError("provider_rejected", sentence=kinds.PackageMissing.sentence)

    async def aclose(self) -> None:
        """Do nothing, because there is no connection."""


def _server(account: ProviderAccountValue, timeouts: Timeouts) -> Provider:
    if not kinds.is_kind_installed(account.kind):
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
    del account, timeouts  # the demo model makes no calls and has no timeouts
    return DemoProvider(token_delay=settings.DEMO_TOKEN_DELAY)


_FACTORIES: dict[Kind, Callable[[ProviderAccountValue, Timeouts], Provider]] = {
    "openai": _server,
    "anthropic": _server,
    "demo": _demo,
}

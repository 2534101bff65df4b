"""Makes the provider of an account, one per worker process and event loop."""

import asyncio
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast
from weakref import WeakKeyDictionary

from django.conf import settings

from chats.providers.base import Provider, Timeouts
from chats.providers.demo import DemoProvider

Kind = Literal["openai", "demo"]
# Imported by name when the first account of the kind is used: the openai package costs 0.7 s and
# 30 MB, which the web process, that needs this module too, never spends.
_OPENAI = "chats.providers.openai"


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


def load_adapter() -> None:
    """Import what calls to real servers need: during that second a loop would stand still."""
    importlib.import_module(_OPENAI)


async def aclose_all() -> None:
    """Close every provider of the running loop."""
    for provider in _providers.pop(asyncio.get_running_loop(), {}).values():
        await provider.aclose()


def _openai(account: ProviderAccountValue, timeouts: Timeouts) -> Provider:
    adapter = importlib.import_module(_OPENAI)
    return cast(
        Provider,
        adapter.OpenAIProvider(
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
    "openai": _openai,
    "demo": _demo,
}

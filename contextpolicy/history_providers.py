"""Finds history providers of other packages by entry point.

A history provider chooses the messages of a branch that a prompt starts from. A package offers one
under the entry point group `palimpsest.history_providers`: a class without arguments, or an object,
with a `name` and `get_history`. The example is in `docs/examples/history_provider`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, runtime_checkable

from contextpolicy.engine.messages import Message
from contextpolicy.engine.policy import Problem

logger = logging.getLogger(__name__)

GROUP = "palimpsest.history_providers"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """The question to a history provider.

    Messages have a seq above `after` and below `before`. A prompt holds about `tokens` tokens of
    history, and at most `most` messages (None: no limit). `newest()` yields the messages from the
    newest to the oldest and reads them page by page.
    """

    chat_id: str
    after: int
    before: int
    tokens: int
    most: int | None
    newest: Callable[[], Iterator[Message]]


@runtime_checkable
class HistoryProvider(Protocol):
    """Chooses the messages that a prompt starts from."""

    @property
    def name(self) -> str:
        """The name a policy uses."""

    def get_history(self, query: HistoryQuery) -> Iterable[Message]:
        """Return messages of `query.newest()`, unchanged, oldest first."""


@dataclass(frozen=True, slots=True)
class InstalledProvider:
    """A provider, and the package with its version."""

    provider: HistoryProvider
    package: str


@dataclass(frozen=True, slots=True)
class InstalledProviders:
    """The providers by name; for each that cannot be loaded, a sentence with the reason."""

    providers: Mapping[str, InstalledProvider]
    faults: Mapping[str, str]


class ProviderRefused(Exception):
    """An entry point does not lead to a history provider, or a provider broke its contract."""

    code = "history_provider_refused"


@cache
def installed() -> InstalledProviders:
    """Load the providers of installed packages, once per process (`installed.cache_clear()`)."""
    providers: dict[str, InstalledProvider] = {}
    faults: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        try:
            found = _load(point)
            if point.name in providers:
                raise ProviderRefused("two packages offer it")
        except Exception as error:  # noqa: BLE001 - importing a package may fail in any way
            reason = str(error) if isinstance(error, ProviderRefused) else type(error).__name__
            faults[point.name] = f"The history provider {point.name!r} cannot be used: {reason}."
            logger.warning("%s (%s)", faults[point.name], point.value)
        else:
            providers[point.name] = found
    return InstalledProviders(providers, faults)


def find_provider(name: str) -> HistoryProvider | None:
    """Return the installed provider of that name; None if there is none."""
    found = installed().providers.get(name)
    return found.provider if found else None


def provider_problems(name: str) -> list[Problem]:
    """List the reasons why a policy cannot name this provider; empty means the built-in one."""
    if not name or find_provider(name) is not None:
        return []
    reason = installed().faults.get(name, f"The history provider {name!r} does not exist.")
    known = ", ".join(installed().providers) or "none is installed"
    sentence = f"{reason} Leave it empty for the built-in one, or choose an installed one: {known}."
    return [Problem("unknown_history_provider", ("history_provider",), sentence)]


def _load(point: EntryPoint) -> InstalledProvider:
    loaded = point.load()
    provider = loaded() if isinstance(loaded, type) else loaded
    if getattr(provider, "name", None) != point.name:
        raise ProviderRefused("it is called differently from its entry point")
    if not isinstance(provider, HistoryProvider):
        raise ProviderRefused("it has no get_history")
    package = f"{point.dist.name} {point.dist.version}" if point.dist else ""
    return InstalledProvider(provider, package)

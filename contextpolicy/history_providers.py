"""Finds history providers in other packages by entry point.

A history provider selects the messages of a branch that a prompt starts from. A package registers
one under the entry point group `palimpsest.history_providers`: a class without arguments, or an
object, with a `name` and `get_history`. See the example in `docs/examples/history_provider`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

from django.utils.translation import gettext

from contextpolicy.engine.messages.messages import Message
from contextpolicy.engine.policy.policy import Problem
from contextpolicy.engine.text.phrases import Phrase, gettext_noop
from contextpolicy.packages import OfferRefused, Offers, load_offers
from contextpolicy.wording import join_items, translate_phrase

GROUP = "palimpsest.history_providers"
UNUSABLE = gettext_noop("The history provider {name!r} cannot be used: {reason}.")
NO_METHOD = Phrase(gettext_noop("it has no get_history method"))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """The input of a history provider.

    Messages have a seq above `after` and below `before`. A prompt has room for about `tokens`
    tokens of history, and for at most `most` messages (None: no limit). `newest()` yields the
    messages from newest to oldest and loads them page by page.
    """

    chat_id: str
    after: int
    before: int
    tokens: int
    most: int | None
    newest: Callable[[], Iterator[Message]]


@runtime_checkable
class HistoryProvider(Protocol):
    """Protocol of history providers: selects the earlier messages from which a strategy chooses."""

    @property
    def name(self) -> str:
        """The name by which policies select the provider."""

    def get_history(self, query: HistoryQuery) -> Iterable[Message]:
        """Return messages of `query.newest()`, unchanged, oldest first."""


@dataclass(frozen=True, slots=True)
class InstalledProvider:
    """An installed history provider, and the name and version of its package."""

    provider: HistoryProvider
    package: str


class ProviderRefused(Exception):
    """A history provider violated its contract."""

    code = "history_provider_refused"


@cache
def load_history_providers() -> Offers[InstalledProvider]:
    """Load the providers of installed packages, once per process.

    `load_history_providers.cache_clear()` makes the next call load them again.
    """
    return load_offers(entry_points(group=GROUP), unusable=UNUSABLE, check=validate_provider)


def find_provider(name: str) -> HistoryProvider | None:
    """Return the installed provider with that name; None if there is none."""
    found = load_history_providers().found.get(name)
    return found.provider if found else None


def find_provider_problems(name: str) -> list[Problem]:
    """Return the problems of a policy that names this provider; empty if it can be saved.

    An empty name means the built-in provider.
    """
    if not name or find_provider(name) is not None:
        return []
    known = join_items(load_history_providers().found) or gettext("none is installed")
    if fault := load_history_providers().faults.get(name):
        sentence = gettext(
            "{fault} Leave the field empty for the built-in provider, or choose an installed "
            "provider: {names}."
        ).format(fault=translate_phrase(fault), names=known)
    else:
        sentence = gettext(
            "The history provider {name!r} does not exist. Leave the field empty for the "
            "built-in provider, or choose an installed provider: {names}."
        ).format(name=name, names=known)
    return [Problem("unknown_history_provider", ("history_provider",), sentence)]


def validate_provider(provider: Any, package: str) -> InstalledProvider:
    """Validate the object of an entry point. Raises `OfferRefused` if it is not a provider."""
    if not isinstance(provider, HistoryProvider):
        raise OfferRefused(NO_METHOD)
    return InstalledProvider(provider, package)

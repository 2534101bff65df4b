"""The money that calls take and compactions save, in tokens as providers count them.

One convention for cached tokens: those read from a cache and written to it are input, and told
beside it. Where something was used that has no price, the sum is not known: None, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

MILLION = 1_000_000
# No call takes as many tokens: a larger count is an error of the server, such as one below zero.
MOST_TOKENS = 10**9
NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a model per million tokens; None: not set. The currency is a plain text."""

    input: Decimal | None = None
    output: Decimal | None = None
    cached: Decimal | None = None
    written: Decimal | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class UsedTokens:
    """The tokens of a call; `cached` and `written` are parts of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0

    @property
    def read_anew(self) -> int:
        """The input that came from no cache."""
        return self.input - self.cached


@dataclass(frozen=True, slots=True)
class PricedCall:
    """A call that was answered: its use, its model's prices, and the prompt in our own count."""

    used: UsedTokens
    prices: Prices
    model: str = ""
    estimate: int = 0


@dataclass(frozen=True, slots=True)
class Money:
    """Sums by currency, and of how many more things the worth is not known.

    Currencies are never added up: nobody here knows what one is in another.
    """

    amounts: Mapping[str, Decimal] = field(default_factory=dict)
    unknown: int = 0

    @classmethod
    def of(cls, worth: Decimal | None, *, currency: str = "") -> "Money":
        """Return one worth as money."""
        return cls({}, 1) if worth is None else cls({currency: worth})

    def __add__(self, other: "Money") -> "Money":
        names = {**self.amounts, **other.amounts}
        return Money(
            {n: self.amounts.get(n, NOTHING) + other.amounts.get(n, NOTHING) for n in names},
            self.unknown + other.unknown,
        )

    def __sub__(self, other: "Money") -> "Money":
        return self + Money({n: -worth for n, worth in other.amounts.items()}, other.unknown)


@dataclass(frozen=True, slots=True)
class Effect:
    """A number of tokens and their worth; None: not known."""

    tokens: int = 0
    worth: Decimal | None = NOTHING


def is_count(value: object) -> bool:
    """Return True if a value can be a number of tokens: an integer from 0 to `MOST_TOKENS`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def used_of(reported: Mapping[str, int]) -> UsedTokens | None:
    """Return the use that a provider reported; None where it reported none, or an impossible one.

    No more can have come from a cache, or gone there, than was sent.
    """
    sent, said = (reported.get(name, 0) for name in ("input", "output"))
    if not (is_count(sent) and is_count(said)) or not (sent or said):
        return None
    cached, written = (reported.get(name, 0) for name in ("cached", "written"))
    cached = min(cached, sent) if is_count(cached) else 0
    written = min(written, sent - cached) if is_count(written) else 0
    return UsedTokens(input=sent, output=said, cached=cached, written=written)


def cost_of(used: UsedTokens, prices: Prices) -> Decimal | None:
    """Return what a call cost; None where it used something that has no price."""
    plain = used.read_anew - used.written
    return total(
        priced(plain, prices.input),
        priced(used.cached, prices.cached),
        priced(used.written, prices.written),
        priced(used.output, prices.output),
    )


def priced(tokens: int, price: Decimal | None) -> Decimal | None:
    """Return the price of tokens; None where they have none, and 0 for none of them."""
    if not tokens:
        return NOTHING
    return None if price is None else tokens * price / MILLION


def total(*worths: Decimal | None) -> Decimal | None:
    """Add up; None if any part is not known."""
    known = [worth for worth in worths if worth is not None]
    return sum(known, NOTHING) if len(known) == len(worths) else None


def saved(call: PricedCall, *, freed: int, before: PricedCall | None = None) -> Effect:
    """Return what a compaction kept out of a prompt that it governed.

    `freed`: its tokens in our own count, which the call's prompt translates into the provider's.
    They would have stood at the prompt's beginning, so they are worth the price of cached tokens
    where the cache was warm, and of fresh input where it was not. `before`: the last call before
    the compaction, for the first one after it, whose own cache is cold because of it.
    """
    tokens = freed
    if call.estimate:
        tokens = round(freed * call.used.input / call.estimate)
    warm = before if before is not None and before.model == call.model else call
    price = call.prices.cached if warm.used.cached else call.prices.input
    return Effect(tokens, priced(tokens, price))


def broken(first: PricedCall, *, before: PricedCall | None) -> Effect:
    """Return what the cache lost because a compaction changed the prompt's beginning.

    That is what the first call after it read anew beyond what the call before it did, at the price
    of reading it less the price of finding it in the cache. Nothing was lost where nothing was
    kept: no call before, one of another model, or one that found nothing in its cache.
    """
    if before is None or before.model != first.model or not before.used.cached:
        return Effect()
    tokens = max(first.used.read_anew - before.used.read_anew, 0)
    if not tokens:
        return Effect()
    # What was read anew has one price or, in part, that of being written to the cache.
    anew = UsedTokens(input=first.used.read_anew, written=first.used.written)
    paid, found = cost_of(anew, first.prices), priced(tokens, first.prices.cached)
    if paid is None or found is None:
        return Effect(tokens, None)
    return Effect(tokens, paid * tokens / first.used.read_anew - found)

"""The cost of calls and the savings of compactions, in tokens as providers count them.

Convention for cached tokens: tokens read from a cache and written to it are part of the input, and
are also reported separately. If a used token type has no price, the sum is None, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

MILLION = 1_000_000
# A larger count is a server error, as is a negative one. Real calls stay far below it.
MOST_TOKENS = 10**9
NOTHING = Decimal(0)


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a model per million tokens; None: not set. The currency is free text."""

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
        """Number of input tokens that were not read from a cache."""
        return self.input - self.cached


@dataclass(frozen=True, slots=True)
class PricedCall:
    """A completed model call: its usage, the model's prices, and the prompt's local tokens."""

    used: UsedTokens
    prices: Prices
    model: str = ""
    estimate: int = 0


@dataclass(frozen=True, slots=True)
class Money:
    """Sums by currency, and the number of items with unknown cost.

    Amounts in different currencies are never added, because no exchange rates are known.
    """

    amounts: Mapping[str, Decimal] = field(default_factory=dict)
    unknown: int = 0

    @classmethod
    def of(cls, worth: Decimal | None, *, currency: str = "") -> "Money":
        """Return one amount as money. None counts as one item of unknown cost."""
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
    """A number of tokens and their cost; a cost of None means that no price is known."""

    tokens: int = 0
    worth: Decimal | None = NOTHING


def is_count(value: object) -> bool:
    """Return True if a value is an integer from 0 to `MOST_TOKENS`."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS


def parse_reported_usage(reported: Mapping[str, int]) -> UsedTokens | None:
    """Return the usage that a provider reported; None if it reported none or impossible numbers.

    Impossible counts of cached or written tokens are 0. Together they cannot exceed the input.
    """
    sent, said = (reported.get(name, 0) for name in ("input", "output"))
    if not (is_count(sent) and is_count(said)) or not (sent or said):
        return None
    cached, written = (reported.get(name, 0) for name in ("cached", "written"))
    cached = min(cached, sent) if is_count(cached) else 0
    written = min(written, sent - cached) if is_count(written) else 0
    return UsedTokens(input=sent, output=said, cached=cached, written=written)


def compute_call_cost(used: UsedTokens, prices: Prices) -> Decimal | None:
    """Return the cost of a call; None if it used a token type without a price."""
    plain = used.read_anew - used.written
    return sum_known_costs(
        compute_token_cost(plain, prices.input),
        compute_token_cost(used.cached, prices.cached),
        compute_token_cost(used.written, prices.written),
        compute_token_cost(used.output, prices.output),
    )


def compute_token_cost(tokens: int, price: Decimal | None) -> Decimal | None:
    """Return the cost of tokens: 0 for no tokens, None if they have no price."""
    if not tokens:
        return NOTHING
    return None if price is None else tokens * price / MILLION


def sum_known_costs(*worths: Decimal | None) -> Decimal | None:
    """Add up the amounts; None if any of them is unknown."""
    known = [worth for worth in worths if worth is not None]
    return sum(known, NOTHING) if len(known) == len(worths) else None


def compute_compaction_savings(
    call: PricedCall, *, freed: int, before: PricedCall | None = None
) -> Effect:
    """Return the number of tokens that an active compaction saved in one call, and their cost.

    `freed`: the saved local tokens; the call's prompt gives the ratio to the provider's
    tokens. The saved tokens would have been in the prefix. They are therefore priced as
    cached tokens if the cache was warm, else as uncached input. `before`: the last call
    before the compaction. Pass it for the first call after the compaction, whose cache is
    cold because of it.
    """
    tokens = freed
    if call.estimate:
        tokens = round(freed * call.used.input / call.estimate)
    warm = before if before is not None and before.model == call.model else call
    price = call.prices.cached if warm.used.cached else call.prices.input
    return Effect(tokens, compute_token_cost(tokens, price))


def compute_cache_loss(first: PricedCall, *, before: PricedCall | None) -> Effect:
    """Return the cache loss of a compaction that changed the prefix.

    The loss is the uncached input of the first call after the compaction, minus that of the
    previous call. It costs the average price of that input, minus the cached price; None if a
    price is missing. The loss is zero if there is no previous call, or if that call used another
    model, read nothing from the cache, or had as much uncached input.
    """
    if before is None or before.model != first.model or not before.used.cached:
        return Effect()
    tokens = max(first.used.read_anew - before.used.read_anew, 0)
    if not tokens:
        return Effect()
    # Uncached input has one price, or in part the price of cache writes.
    anew = UsedTokens(input=first.used.read_anew, written=first.used.written)
    paid, found = (
        compute_call_cost(anew, first.prices),
        compute_token_cost(tokens, first.prices.cached),
    )
    if paid is None or found is None:
        return Effect(tokens, None)
    return Effect(tokens, paid * tokens / first.used.read_anew - found)

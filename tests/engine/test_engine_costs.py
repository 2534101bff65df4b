"""Cost of calls, savings of compactions, and cache losses caused by them."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from contextpolicy.engine.policy.costs import (
    Effect,
    Money,
    PricedCall,
    Prices,
    UsedTokens,
    compute_cache_loss,
    compute_call_cost,
    compute_compaction_savings,
    parse_reported_usage,
    sum_known_costs,
)

D = Decimal
PRICES = Prices(input=D(10), output=D(30), cached=D(1), written=D("12.5"), currency="USD")


def call(
    used: UsedTokens, *, prices: Prices = PRICES, model: str = "m", estimate: int = 0
) -> PricedCall:
    return PricedCall(used, prices, model=model, estimate=estimate)


def test_a_report_is_read_by_one_convention() -> None:
    reported = {"input": 1_000, "output": 50, "cached": 800, "written": 100}
    assert parse_reported_usage(reported) == UsedTokens(
        input=1_000, output=50, cached=800, written=100
    )
    assert parse_reported_usage({"input": 1_000, "output": 50}) == UsedTokens(
        input=1_000, output=50
    )
    # Cached tokens cannot exceed the sent tokens, whatever a server reports.
    assert parse_reported_usage({"input": 10, "cached": 90, "written": 5}) == UsedTokens(
        input=10, cached=10
    )
    assert parse_reported_usage({"input": 10, "cached": 4, "written": 90}) == UsedTokens(
        10, cached=4, written=6
    )
    # A negative or impossible number counts as missing.
    assert parse_reported_usage({"input": -5, "output": 1}) is None


@pytest.mark.parametrize("reported", [{}, {"input": 0, "output": 0}, {"cached": 7}])
def test_no_report_is_not_a_use_of_nothing(reported: dict[str, int]) -> None:
    assert parse_reported_usage(reported) is None


@pytest.mark.policy_case(13)
def test_cached_tokens_are_priced_once_and_not_in_full() -> None:
    used = UsedTokens(input=1_000_000, output=100_000, cached=900_000, written=50_000)
    # 50,000 fresh, 900,000 read, 50,000 written, 100,000 output.
    assert compute_call_cost(used, PRICES) == D("0.5") + D("0.9") + D("0.625") + D(3)
    assert used.read_anew == 100_000


@pytest.mark.policy_case(13)
@pytest.mark.parametrize("missing", ["input", "output", "cached", "written"])
def test_what_was_used_without_a_price_makes_the_cost_unknown(missing: str) -> None:
    unset: dict[str, Any] = {missing: None}
    prices = replace(Prices(D(1), D(1), D(1), D(1)), **unset)
    assert compute_call_cost(UsedTokens(input=4, output=1, cached=1, written=1), prices) is None
    unused = {"input": {"input": 2, "cached": 1, "written": 1, "output": 1}, "output": {"input": 1}}
    rest = unused.get(missing, {"input": 1, "output": 1})
    assert compute_call_cost(UsedTokens(**rest), prices) is not None


def test_a_price_of_nothing_is_known() -> None:
    assert compute_call_cost(UsedTokens(input=5, output=5), Prices(input=D(0), output=D(0))) == 0
    assert sum_known_costs() == 0
    assert sum_known_costs(D(1), None) is None


def test_a_warm_cache_makes_what_is_kept_out_worth_the_price_of_cached_tokens() -> None:
    warm = call(UsedTokens(input=2_000, cached=1_500), estimate=1_000)
    # 10,000 tokens of our count are 20,000 of this provider's.
    assert compute_compaction_savings(warm, freed=10_000) == Effect(20_000, D("0.02"))
    cold = call(UsedTokens(input=2_000), estimate=1_000)
    assert compute_compaction_savings(cold, freed=10_000) == Effect(20_000, D("0.2"))
    assert compute_compaction_savings(call(UsedTokens(input=2_000)), freed=10_000).tokens == 10_000


def test_the_first_call_is_weighed_by_the_cache_as_it_was_before() -> None:
    first = call(UsedTokens(input=2_000), estimate=2_000)
    before = call(UsedTokens(input=9_000, cached=8_000))
    assert compute_compaction_savings(first, freed=1_000, before=before) == Effect(
        1_000, D("0.001")
    )
    other = call(UsedTokens(input=9_000, cached=8_000), model="another")
    assert compute_compaction_savings(first, freed=1_000, before=other) == Effect(1_000, D("0.01"))


def test_a_summary_that_is_longer_than_its_messages_saves_less_than_nothing() -> None:
    assert compute_compaction_savings(call(UsedTokens(input=100)), freed=-1_000) == Effect(
        -1_000, D("-0.01")
    )


def test_without_a_price_the_saving_is_unknown_and_the_tokens_are_not() -> None:
    found = compute_compaction_savings(
        call(UsedTokens(input=100, cached=50), prices=Prices(input=D(1))), freed=10
    )
    assert found == Effect(10, None)


def test_the_break_is_what_was_read_anew_beyond_the_call_before() -> None:
    before = call(UsedTokens(input=9_000, cached=8_900))
    first = call(UsedTokens(input=2_000, cached=500))
    # 1,500 instead of 100 uncached: 1,400 at 10 instead of 1.
    assert compute_cache_loss(first, before=before) == Effect(1_400, D("0.0126"))
    written = call(UsedTokens(input=2_000, cached=500, written=1_500))
    assert compute_cache_loss(written, before=before) == Effect(1_400, D("0.0161"))


@pytest.mark.parametrize(
    ("first", "before"),
    [
        (call(UsedTokens(input=2_000)), None),
        (call(UsedTokens(input=2_000)), call(UsedTokens(input=9_000))),
        (
            call(UsedTokens(input=2_000)),
            call(UsedTokens(input=9_000, cached=8_000), model="another"),
        ),
        (call(UsedTokens(input=2_000, cached=1_900)), call(UsedTokens(input=9_000, cached=8_000))),
    ],
    ids=["no call before", "nothing was kept", "another model", "no more than usual"],
)
def test_nothing_is_lost_where_nothing_was_kept(
    first: PricedCall, before: PricedCall | None
) -> None:
    assert compute_cache_loss(first, before=before) == Effect()


@pytest.mark.parametrize("missing", ["input", "cached"])
def test_a_break_without_a_price_is_unknown(missing: str) -> None:
    prices = Prices(input=D(1)) if missing == "cached" else Prices(cached=D(1))
    first = call(UsedTokens(input=2_000), prices=prices)
    before = call(UsedTokens(input=9_000, cached=8_900), prices=prices)
    assert compute_cache_loss(first, before=before) == Effect(1_900, None)


def test_currencies_are_never_added_up() -> None:
    money = Money.of(D(2), currency="USD") + Money.of(D(3), currency="EUR") + Money.of(None)
    assert money == Money({"USD": D(2), "EUR": D(3)}, 1)
    left = money - Money.of(D(5), currency="USD") - Money.of(None)
    assert left == Money({"USD": D(-3), "EUR": D(3)}, 2)

"""Learning from bills: which count, and how fast the factor follows."""

from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.calibration import (
    HIGHEST,
    LARGEST_STEP,
    LOWEST,
    Usage,
    calibrate,
    why_not_counted,
)


def usage(**fields: Any) -> Usage:
    return Usage(**{"model": "gpt", "estimate": 1_000, "uncached": 1_200, **fields})


def test_inv_20_each_input_token_counts_once_whatever_it_cost() -> None:
    assert usage(uncached=100, cache_read=800, cache_write=300).input_tokens == 1_200


@pytest.mark.parametrize(
    ("billed", "why"),
    [
        (usage(), ""),
        (usage(model="other"), "other_model"),
        (usage(completed=False), "not_completed"),
        (usage(uncached=0), "no_numbers"),
        (usage(estimate=0), "no_numbers"),
    ],
    ids=["counts", "other", "stopped", "unbilled", "uncounted"],
)
def test_inv_19_only_completed_calls_of_the_same_model_teach(billed: Usage, why: str) -> None:
    assert why_not_counted(billed, model="gpt") == why


def test_the_factor_goes_a_fifth_of_the_way_and_never_a_large_step() -> None:
    assert calibrate(1.0, estimate=1_000, actual=1_200) == pytest.approx(1.04)
    assert calibrate(1.0, estimate=1_000, actual=9_000) == pytest.approx(1.0 + LARGEST_STEP)
    assert calibrate(1.9, estimate=10, actual=1) == pytest.approx(1.75)
    assert calibrate(1.3, estimate=0, actual=5) == 1.3
    assert calibrate(1.3, estimate=5, actual=0) == 1.3


@forall(
    st.floats(LOWEST, HIGHEST),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30),
)
def test_the_factor_stays_within_its_bounds(factor: float, bills: list[tuple[int, int]]) -> None:
    for estimate, actual in bills:
        following = calibrate(factor, estimate=estimate, actual=actual)
        assert LOWEST <= following <= HIGHEST
        assert abs(following - factor) <= LARGEST_STEP + 1e-9
        factor = following


def test_the_factor_arrives_where_the_bills_are() -> None:
    factor = 1.0
    for _ in range(40):
        factor = calibrate(factor, estimate=1_000, actual=1_360)
    assert factor == pytest.approx(1.36, abs=0.01)

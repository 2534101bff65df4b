"""Learning token factors from billed usage: which counts are used, and how fast it adapts."""

from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.policy.calibration import (
    FEW_SAMPLES,
    HIGHEST,
    LARGEST_STEP,
    LOWEST,
    BilledUsage,
    Factors,
    compute_calibration_factor,
    explain_calibration_skip,
)
from contextpolicy.engine.text import scripts


def usage(**fields: Any) -> BilledUsage:
    return BilledUsage(**{"model": "gpt", "estimate": 1_000, "uncached": 1_200, **fields})


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
def test_inv_19_only_completed_calls_of_the_same_model_teach(billed: BilledUsage, why: str) -> None:
    assert explain_calibration_skip(billed, model="gpt") == why


def test_the_factor_goes_a_fifth_of_the_way_and_never_a_large_step() -> None:
    assert compute_calibration_factor(1.0, estimate=1_000, actual=1_200) == pytest.approx(1.04)
    assert compute_calibration_factor(1.0, estimate=1_000, actual=9_000) == pytest.approx(
        1.0 + LARGEST_STEP
    )
    assert compute_calibration_factor(1.9, estimate=10, actual=1) == pytest.approx(1.75)
    assert compute_calibration_factor(1.3, estimate=0, actual=5) == 1.3
    assert compute_calibration_factor(1.3, estimate=5, actual=0) == 1.3


@forall(
    st.floats(LOWEST, HIGHEST),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=30),
)
def test_the_factor_stays_within_its_bounds(factor: float, bills: list[tuple[int, int]]) -> None:
    for estimate, actual in bills:
        following = compute_calibration_factor(factor, estimate=estimate, actual=actual)
        assert LOWEST <= following <= HIGHEST
        assert abs(following - factor) <= LARGEST_STEP + 1e-9
        factor = following


def test_the_factor_arrives_where_the_bills_are() -> None:
    factor = 1.0
    for _ in range(40):
        factor = compute_calibration_factor(factor, estimate=1_000, actual=1_360)
    assert factor == pytest.approx(1.36, abs=0.01)


ENGLISH, CHINESE, MIXED = {"latin": 1.0}, {"han": 0.97, "latin": 0.03}, {"han": 0.6, "latin": 0.4}


def test_each_script_has_its_own_factor() -> None:
    known = Factors().taught(CHINESE, estimate=1_000, actual=600)
    assert known.by_script == {"han": pytest.approx(0.92)}
    assert known.overall == pytest.approx(0.92)
    assert known.of(CHINESE) == pytest.approx(0.92)
    # English has no data yet, and the limit must hold.
    assert known.of(ENGLISH) == known.of(MIXED) == known.of({}) == 1.0
    assert known.lowest == pytest.approx(0.92)


def test_a_mixture_takes_the_largest_factor_and_teaches_no_script() -> None:
    known = Factors(0.9, {"han": 0.7, "latin": 1.1}, 40)
    assert (known.of(MIXED), known.lowest) == (1.1, 0.7)
    assert (Factors(1.2).lowest, Factors(1.2, {"han": 1.5}).lowest) == (1.2, 1.2)
    taught = known.taught(MIXED, estimate=1_000, actual=500)
    assert taught.by_script == known.by_script
    assert taught.overall == pytest.approx(0.82)


def test_a_script_begins_where_it_was_taken_to_be() -> None:
    known = Factors(1.5, {"han": 1.5}, 40)
    assert known.of(ENGLISH) == 1.5
    assert known.taught(ENGLISH, estimate=1_000, actual=1_500).by_script["latin"] == 1.5


def test_without_scripts_the_one_factor_holds() -> None:
    assert Factors(0.8).of(ENGLISH) == Factors(0.8).of({}) == 0.8


@pytest.mark.parametrize("actual", [1, 200, 2_500, 10**6])
def test_the_first_five_samples_change_an_estimate_by_at_most_15_percent(actual: int) -> None:
    known = Factors()
    for _ in range(FEW_SAMPLES):
        known = known.taught(ENGLISH, estimate=1_000, actual=actual)
        for factor in (known.overall, known.of(ENGLISH), known.of(CHINESE), known.lowest):
            assert 0.85 - 1e-9 <= factor <= 1.15 + 1e-9
    assert (known.samples, known.samples_by_script) == (5, {"latin": 5})
    later = known.taught(ENGLISH, estimate=1_000, actual=actual)
    assert abs(later.of(ENGLISH) - 1.0) > 0.15


def test_each_script_counts_its_own_samples() -> None:
    known = Factors(1.5, {"latin": 1.5}, 100, {"latin": 100})
    for _ in range(FEW_SAMPLES):
        known = known.taught(CHINESE, estimate=1_000, actual=100)
        assert known.by_script["han"] >= known.unknown * 0.85
        known = known.taught(ENGLISH, estimate=1_000, actual=1_500)
    assert known.samples_by_script == {"latin": 105, "han": 5}
    assert known.samples == 110


def test_a_factor_from_before_the_counts_keeps_learning() -> None:
    known = Factors(1.5, {"latin": 1.5}, 40)
    taught = known.taught(ENGLISH, estimate=1_000, actual=1_600)
    assert taught.by_script == {"latin": pytest.approx(1.52)}
    assert taught.samples_by_script == {"latin": 41}


def test_scripts_share_a_text_by_tokens() -> None:
    assert scripts.compute_script_shares([]) == scripts.compute_script_shares([""]) == {}
    assert scripts.compute_script_shares(["Tomorrow in Oslo", "Übung"]) == {"latin": 1.0}
    found = scripts.compute_script_shares(["会议在三月", "abcdefghijklmnopqrst"])
    assert found == {"han": 0.5, "latin": 0.5}
    assert scripts.find_dominant_script(found) == ""
    assert scripts.find_dominant_script(scripts.compute_script_shares(["Привет"])) == "cyrillic"
    found = scripts.compute_script_shares(["Привет ありがとう 안녕"])
    assert scripts.select_present_scripts(found) == ["cyrillic", "hangul", "kana", "latin"]

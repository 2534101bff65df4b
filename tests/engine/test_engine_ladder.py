"""After an attempt: the next rung, the breaker, and the wait for growth."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from contextpolicy.engine.summaries.ladder import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    RUNGS,
    WORKER_LOST,
    Attempt,
    Breaker,
    classify_attempt,
    compute_model_breaker,
    compute_scope_breaker,
    has_grown,
    select_next_rung,
)

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def rejected(rung: Any, *reasons: str) -> Attempt:
    return Attempt(rung, "rejected", reasons)


@pytest.mark.parametrize(
    ("attempts", "following"),
    [
        ([], "model"),
        ([rejected("model", "lost_facts")], "model_again"),
        ([rejected("model", "lost_facts", "too_long")], "smaller_source"),
        ([rejected("model", "not_smaller")], "smaller_source"),
        ([rejected("model", "refusal")], "extractive"),
        ([Attempt("model", "failed", ("provider_timeout",))], "extractive"),
        ([Attempt("model", "failed", ("context_overflow",))], "smaller_source"),
        ([rejected("model_again", "lost_facts")], "extractive"),
        ([rejected("smaller_source", "too_long")], "extractive"),
        ([Attempt("smaller_source", "insufficient")], "extractive"),
        ([Attempt("model", "insufficient")], "smaller_source"),
        ([rejected("extractive", "not_smaller")], "window"),
        ([Attempt("window", "insufficient")], None),
        ([Attempt("model", "published")], None),
        ([Attempt("model", "overtaken")], None),
        ([Attempt("model", "stopped")], None),
    ],
    ids=range(16),
)
def test_the_next_rung_answers_what_went_wrong(
    attempts: list[Attempt], following: str | None
) -> None:
    assert select_next_rung(attempts) == following


outcomes = st.sampled_from(["insufficient", "rejected", "failed"])
reasons = st.lists(
    st.sampled_from(["lost_facts", "refusal", "too_long", "error_text", "wrong_language"]),
    max_size=3,
).map(tuple)


@forall(st.lists(st.tuples(outcomes, reasons), min_size=6, max_size=6))
def test_inv_25_whatever_fails_the_ladder_ends_and_tries_no_rung_twice(
    answers: list[tuple[Any, tuple[str, ...]]],
) -> None:
    attempts: list[Attempt] = []
    for outcome, why in answers:
        rung = select_next_rung(attempts)
        if rung is None:
            break
        attempts.append(Attempt(rung, outcome, why))
    tried = [attempt.rung for attempt in attempts]
    assert select_next_rung(attempts) is None
    assert tried == sorted(set(tried), key=RUNGS.index)
    assert tried[-1] == "window"


def test_inv_25_a_compaction_that_misses_the_low_mark_is_called_insufficient() -> None:
    assert classify_attempt(9_000, 4_000, low=4_000) == "published"
    assert classify_attempt(9_000, 4_001, low=4_000) == "insufficient"
    assert classify_attempt(3_000, 3_000, low=4_000) == "insufficient"


def test_inv_24_the_next_compaction_waits_until_the_prompt_has_grown() -> None:
    assert not has_grown(4_599, tokens_after=4_000, prompt_limit=12_000)
    assert has_grown(4_600, tokens_after=4_000, prompt_limit=12_000)


def failed(minutes: int) -> Attempt:
    return Attempt("model", "failed", at=NOON + timedelta(minutes=minutes))


def test_inv_26_failures_in_a_row_open_a_breaker_that_closes_again() -> None:
    attempts = [failed(0), failed(1), failed(2)]
    opened = compute_scope_breaker(attempts, now=NOON + timedelta(minutes=3))
    assert opened == Breaker(True, FAILURES_TO_OPEN, NOON + timedelta(minutes=2) + FIRST_PAUSE)
    assert not compute_scope_breaker(attempts, now=NOON + timedelta(minutes=18)).is_open
    again = [*attempts, failed(18)]
    assert compute_scope_breaker(again, now=NOON + timedelta(minutes=47)).is_open
    assert not compute_scope_breaker(again, now=NOON + timedelta(minutes=49)).is_open


def test_a_ladder_in_which_the_model_failed_counts_as_three_failures() -> None:
    again = Attempt("model_again", "rejected", ("lost_facts",), NOON + timedelta(minutes=1))
    opened = compute_model_breaker([failed(0), again], now=NOON + timedelta(minutes=2))
    assert opened == Breaker(True, FAILURES_TO_OPEN, NOON + timedelta(minutes=1) + FIRST_PAUSE)
    twice = compute_model_breaker([failed(0), again, failed(20)], now=NOON)
    assert (twice.failures, twice.retry_at) == (4, NOON + timedelta(minutes=20) + 2 * FIRST_PAUSE)


def test_a_ladder_that_the_model_mended_counts_as_none() -> None:
    mended = Attempt("model_again", "published", (), NOON)
    assert compute_model_breaker([failed(0), mended], now=NOON) == Breaker(False, 0)
    assert compute_model_breaker([], now=NOON) == Breaker(False, 0)


def test_a_worker_that_ended_is_one_failure_and_not_the_models() -> None:
    lost = Attempt("model", "failed", WORKER_LOST, NOON)
    assert compute_model_breaker([lost, lost], now=NOON) == Breaker(False, 2)
    assert compute_model_breaker([lost, lost, lost], now=NOON).is_open


def test_a_ladder_whose_worker_ended_is_one_failure_of_its_chat() -> None:
    ladder = [
        Attempt("model", "failed", ("context_overflow",), NOON),
        Attempt("smaller_source", "failed", ("context_overflow",), NOON),
    ]
    broken_off = [*ladder, Attempt("extractive", "failed", WORKER_LOST, NOON)]
    assert compute_scope_breaker(broken_off, now=NOON) == Breaker(False, 1)
    assert compute_scope_breaker(broken_off * 2, now=NOON) == Breaker(False, 2)
    assert compute_scope_breaker(broken_off * 3, now=NOON).is_open
    exhausted = [*ladder, Attempt("extractive", "rejected", ("not_smaller",), NOON)]
    assert compute_scope_breaker(exhausted, now=NOON).is_open


def test_inv_26_any_other_outcome_closes_the_breaker() -> None:
    attempts = [failed(0), failed(1), Attempt("extractive", "published", at=NOON), failed(2)]
    assert compute_scope_breaker(attempts, now=NOON) == Breaker(False, 1)
    assert compute_scope_breaker([], now=NOON) == Breaker(False, 0)
    assert compute_scope_breaker([Attempt("model", "failed")] * 3, now=NOON) == Breaker(False, 3)


def test_inv_26_a_pause_has_an_end() -> None:
    attempts = [failed(0)] * 50
    assert compute_scope_breaker(attempts, now=NOON).retry_at == NOON + LONGEST_PAUSE

"""Decides how to continue after a failed compaction: a fallback, a pause, or waiting for messages.

The fallbacks are the rungs of a ladder, from a model's summary down to the window. These are pure
decisions over facts about past attempts. The window needs no model, so a chat stays usable even if
every summariser fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise, takewhile
from typing import Literal

from contextpolicy.engine.summaries.compaction_sums import SMALLEST_GAIN

Rung = Literal["model", "model_again", "smaller_source", "extractive", "window"]
AttemptOutcome = Literal["published", "insufficient", "rejected", "failed", "overtaken", "stopped"]

RUNGS: tuple[Rung, ...] = ("model", "model_again", "smaller_source", "extractive", "window")
FAILURES_TO_OPEN = 3
FIRST_PAUSE = timedelta(minutes=15)
LONGEST_PAUSE = timedelta(hours=6)
# Faults that a model can fix if the request names them.
_MENDABLE = frozenset(
    {
        "lost_facts",
        "missing_sections",
        "wrong_language",
        "role_headers",
        "no_content",
        "echo",
        "unknown_url",
    }
)
# Faults that come from too much input or output.
_TOO_MUCH = frozenset({"cut_by_length", "too_long", "not_smaller", "context_overflow"})
_FAILURES = frozenset({"rejected", "failed"})
# The reason of an attempt whose worker ended before it finished.
WORKER_LOST = ("worker_lost",)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt to summarise: its rung, outcome, reason codes and end time."""

    rung: Rung
    outcome: AttemptOutcome
    reasons: tuple[str, ...] = ()
    at: datetime | None = None


def select_next_rung(attempts: Sequence[Attempt]) -> Rung | None:
    """Return the next rung after the attempts of one compaction.

    None if it succeeded or none is left. After a fault that a model can fix, the model is asked
    once more, and the prompt names the fault. If the input or the summary was too large, or the
    compaction freed too little, there is one attempt with fewer sources. Every other fault leads
    directly to the extractive summary. No rung is tried twice.
    """
    if not attempts:
        return "model"
    last = attempts[-1]
    if last.outcome in ("published", "overtaken", "stopped"):
        return None
    left = RUNGS[RUNGS.index(last.rung) + 1 :]
    reasons = set(last.reasons)
    wanted: Rung = "extractive"
    if last.rung == "model" and reasons and reasons <= _MENDABLE:
        wanted = "model_again"
    elif reasons & _TOO_MUCH or last.outcome == "insufficient":
        wanted = "smaller_source"
    return next((rung for rung in left if RUNGS.index(rung) >= RUNGS.index(wanted)), None)


def classify_attempt(tokens_before: int, tokens_after: int, *, low: int) -> AttemptOutcome:
    """Return the outcome of a compaction that reduced the prompt to `tokens_after` tokens.

    `insufficient`: the prompt exceeds the low mark or did not shrink, so the next rung continues
    from there.
    """
    return "published" if tokens_after <= low and tokens_after < tokens_before else "insufficient"


def has_grown(tokens: int, *, tokens_after: int, prompt_limit: int) -> bool:
    """Return True if the prompt grew enough since the last compaction for the next one."""
    return tokens >= tokens_after + int(SMALLEST_GAIN * prompt_limit)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The state of a circuit breaker: open or not, consecutive failures, end of the pause."""

    is_open: bool
    failures: int
    retry_at: datetime | None = None


def compute_scope_breaker(attempts: Sequence[Attempt], *, now: datetime) -> Breaker:
    """Return the state of a scope's breaker after its attempts, oldest first.

    After three consecutive failures, attempts pause. Each further failure doubles the pause, up to
    six hours. Any other outcome closes the breaker. Attempts without a time do not count. A ladder
    that ended with its worker counts as one failure, whatever rungs it tried, because the
    extractive summary, which needs no model, was not reached.
    """
    failures = 0
    for ladder in _ladders(_list_last_failures(attempts)):
        failures += 1 if ladder[0].reasons == WORKER_LOST else len(ladder)
    return _breaker(failures, attempts, now=now)


def compute_model_breaker(attempts: Sequence[Attempt], *, now: datetime) -> Breaker:
    """Return the state of a summarising model's breaker after its attempts, oldest first.

    Each ladder that failed since the last success counts as one failure. If the model failed in any
    of them, two more are added: such a ladder includes a second try, so one is enough to open the
    breaker. A ladder that only ended with its worker adds none.
    """
    ends = [
        attempt
        for attempt, following in pairwise([*attempts, Attempt("model", "stopped")])
        if following.rung == "model"
    ]
    failed = _list_last_failures(ends)
    by_model = any(attempt.reasons != WORKER_LOST for attempt in failed)
    return _breaker(len(failed) + (FAILURES_TO_OPEN - 1) * by_model, attempts, now=now)


def _list_last_failures(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the failures at the end of the attempts, newest first."""
    return list(takewhile(lambda attempt: attempt.outcome in _FAILURES, reversed(attempts)))


def _ladders(attempts: Sequence[Attempt]) -> list[list[Attempt]]:
    """Group attempts, newest first, into ladders. Within a ladder, rungs only descend."""
    ladders: list[list[Attempt]] = []
    for attempt in attempts:
        if ladders and RUNGS.index(attempt.rung) < RUNGS.index(ladders[-1][-1].rung):
            ladders[-1].append(attempt)
        else:
            ladders.append([attempt])
    return ladders


def _breaker(failures: int, attempts: Sequence[Attempt], *, now: datetime) -> Breaker:
    last = attempts[-1].at if attempts else None
    if failures < FAILURES_TO_OPEN or last is None:
        return Breaker(is_open=False, failures=failures)
    doubled = FIRST_PAUSE * 2 ** min(failures - FAILURES_TO_OPEN, 10)
    retry_at = last + min(doubled, LONGEST_PAUSE)
    return Breaker(is_open=now < retry_at, failures=failures, retry_at=retry_at)

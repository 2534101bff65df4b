"""Results of a shadow evaluation: its coverage, and the comparison by day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Abs, TruncDate
from django.db.models.lookups import Exact

from contextpolicy.models import EvaluatedTurn, Evaluation

WORST = 10
Outcome = EvaluatedTurn.Outcome


@dataclass(frozen=True, slots=True)
class Day:
    """The turns of one day: counts, and tokens of the turns that could be compared."""

    day: date
    turns: int
    judged: int
    changed: int
    would_refuse: int
    compactions_now: int
    compactions_then: int
    tokens_now: int
    tokens_then: int


@dataclass(frozen=True, slots=True)
class EvaluationResults:
    """The results of an evaluation: coverage with reasons, days, and the most changed turns."""

    row: Evaluation
    # Percentage of turns that could be compared; None if there are no turns.
    coverage: int | None
    unknown: Sequence[tuple[str, int]]
    days: Sequence[Day]
    worst: Sequence[EvaluatedTurn]


def load_evaluation_results(row: Evaluation) -> EvaluationResults:
    """Return the results of an evaluation. Old rows that were deleted count only in its totals."""
    rows = EvaluatedTurn.objects.filter(evaluation=row)
    unknown = rows.filter(outcome=Outcome.UNKNOWN).values_list("reason").annotate(n=Count("pk"))
    known = rows.exclude(outcome=Outcome.UNKNOWN)
    changed = known.exclude(outcome=Outcome.EQUAL)
    worst = changed.annotate(
        refuses=Exact(F("outcome"), Outcome.REFUSED), more=Abs(F("tokens_then") - F("tokens_now"))
    )
    return EvaluationResults(
        row=row,
        coverage=100 * row.judged // row.turns if row.turns else None,
        unknown=sorted(unknown, key=lambda each: (-each[1], each[0])),
        days=sum_evaluation_days(row),
        worst=list(worst.order_by("-refuses", "-more", "pk")[:WORST]),
    )


def sum_evaluation_days(row: Evaluation) -> list[Day]:
    """Return the sums of each day, newest first."""
    is_known = ~Q(outcome=Outcome.UNKNOWN)
    sums: dict[str, Any] = {
        "turns": Count("pk"),
        "judged": Count("pk", filter=is_known),
        "changed": Count("pk", filter=is_known & ~Q(outcome=Outcome.EQUAL)),
        "would_refuse": Count("pk", filter=Q(outcome=Outcome.REFUSED)),
        "compactions_now": Count("pk", filter=is_known & Q(compacts_now=True)),
        "compactions_then": Count("pk", filter=is_known & Q(compacts_then=True)),
    }
    tokens = {
        f"sum_{side}": Sum(f"tokens_{side}", filter=is_known, default=0) for side in ("now", "then")
    }
    rows = EvaluatedTurn.objects.filter(evaluation=row).annotate(day=TruncDate("at"))
    found: Any = rows.values("day").annotate(**sums, **tokens).order_by("-day")
    return [
        Day(tokens_now=each.pop("sum_now"), tokens_then=each.pop("sum_then"), **each)
        for each in found
    ]

"""Tells what an evaluation found: how much it could judge, then how it compares over days."""

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
    """The turns of one day: counts, and tokens of those that could be judged."""

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
class EvaluationFindings:
    """The findings of an evaluation: its coverage with reasons, its days, and the worst turns."""

    row: Evaluation
    # In percent of the turns; None: there were none yet.
    coverage: int | None
    unknown: Sequence[tuple[str, int]]
    days: Sequence[Day]
    worst: Sequence[EvaluatedTurn]


def found_by(row: Evaluation) -> EvaluationFindings:
    """Read what an evaluation found; old judgements count in its totals alone."""
    rows = EvaluatedTurn.objects.filter(evaluation=row)
    unknown = rows.filter(outcome=Outcome.UNKNOWN).values_list("reason").annotate(n=Count("pk"))
    known = rows.exclude(outcome=Outcome.UNKNOWN)
    changed = known.exclude(outcome=Outcome.EQUAL)
    worst = changed.annotate(
        refuses=Exact(F("outcome"), Outcome.REFUSED), more=Abs(F("tokens_then") - F("tokens_now"))
    )
    return EvaluationFindings(
        row=row,
        coverage=100 * row.judged // row.turns if row.turns else None,
        unknown=sorted(unknown, key=lambda each: (-each[1], each[0])),
        days=days_of(row),
        worst=list(worst.order_by("-refuses", "-more", "pk")[:WORST]),
    )


def days_of(row: Evaluation) -> list[Day]:
    """Add up the judgements of each day, the newest first."""
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

"""Accumulates changes to daily rows and compaction balances from events."""

import uuid
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any

from django.db import models
from django.db.models import F

from chats.models import CompactionBalance, DailyCount
from contextpolicy.engine.policy.costs import Effect
from contextpolicy.models import EffectivePolicy, ModelSpec

# Upper bounds of the first-token histogram in ms. Slower replies fall in `MORE`.
BUCKETS = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000)
MORE = "more"
# JSON columns with counters by name.
NAMED = ("failures", "first_tokens", "compactions")

Number = int | Decimal


@dataclass(frozen=True, slots=True)
class DayGroup:
    day: date
    model: str = ""
    policy: str = ""
    version: int = 0
    currency: str = ""


@dataclass(slots=True)
class Additions:
    """Changes to one row: numbers by column, and counters by name within a column."""

    numbers: dict[str, Number] = field(default_factory=dict)
    named: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, column: str, number: Number = 1) -> None:
        if number:
            self.numbers[column] = self.numbers.get(column, 0) + number

    def count(self, column: str, name: str) -> None:
        inside = self.named.setdefault(column, {})
        inside[name] = inside.get(name, 0) + 1

    def add_worth(self, column: str, worth: Decimal | None, *, unpriced: str) -> None:
        """Add an amount, or increment the `unpriced` column if the amount is None."""
        if worth is None:
            self.add(unpriced)
        else:
            self.add(column, worth)

    def add_effect(self, kind: str, effect: Effect) -> None:
        """Add tokens and their price to the `saved` or `lost` columns."""
        self.add(f"{kind}_tokens", effect.tokens)
        self.add_worth(kind, effect.worth, unpriced=f"{kind}_unpriced")


@dataclass(slots=True)
class Sums:
    """The changes that a batch of events makes to daily counts and compaction savings, by row."""

    days: dict[DayGroup, Additions] = field(default_factory=lambda: defaultdict(Additions))
    balances: dict[tuple[uuid.UUID, str], Additions] = field(
        default_factory=lambda: defaultdict(Additions)
    )

    def knows(self, compaction: uuid.UUID) -> bool:
        """Return True if the sums contain changes to the balance of the compaction."""
        return any(pk == compaction for pk, _ in self.balances)

    def store(self) -> None:
        """Write all changes. Call this in the transaction that stores the reader's position."""
        for group, added in self.days.items():
            row, _ = DailyCount.objects.get_or_create(
                day=group.day,
                model=group.model,
                policy=group.policy,
                version=group.version,
                currency=group.currency,
            )
            named = {
                name: sum_named_counters(getattr(row, name), added.named.get(name, {}))
                for name in NAMED
            }
            add_to_columns(DailyCount.objects.filter(pk=row.pk), added.numbers, **named)
        for (compaction, currency), added in self.balances.items():
            balance, _ = CompactionBalance.objects.get_or_create(
                compaction_id=compaction, currency=currency
            )
            add_to_columns(CompactionBalance.objects.filter(pk=balance.pk), added.numbers)


def add_to_columns(
    rows: "models.QuerySet[Any]", numbers: Mapping[str, Number], **values: Any
) -> None:
    """Add numbers to a row's columns. The columns in `values` are set instead."""
    sums = {column: F(column) + number for column, number in numbers.items()}
    if sums or values:
        rows.update(**sums, **values)


def sum_named_counters(stored: Mapping[str, int], added: Mapping[str, int]) -> dict[str, int]:
    names = {**stored, **added}
    return {name: stored.get(name, 0) + added.get(name, 0) for name in names}


def build_day_group(
    day: date, *, model: ModelSpec | None, policy: EffectivePolicy | None
) -> DayGroup:
    """Return the daily row of a model and the policy that chose the strategy."""
    _, slug, version, _ = (policy.sources.get("strategy") if policy else None) or ("", "", 0, False)
    return DayGroup(
        day=day,
        model=model.slug if model else "",
        policy=slug,
        version=version,
        currency=model.currency if model else "",
    )


def find_histogram_bucket(milliseconds: float) -> str:
    """Return the histogram bucket of a time to the first token."""
    return next((str(border) for border in BUCKETS if milliseconds <= border), MORE)

"""Sums daily totals by day, model or policy within a date range."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext

from chats.counts.sums import BUCKETS, MORE, NAMED
from chats.models import DailyCount
from contextpolicy.engine.policy.costs import Money

BY = ("day", "model", "policy")
# Counters, and each amount with the counter of its unknown prices.
PLAIN = (
    "replies",
    "stopped",
    "failed",
    "calls",
    "unreported",
    "input",
    "cached",
    "written",
    "output",
    "summaries",
    "governed",
    "saved_tokens",
    "lost_tokens",
)
WORTH = {
    "cost": "unpriced",
    "summary_cost": "summaries_unpriced",
    "saved": "saved_unpriced",
    "lost": "lost_unpriced",
}
COLUMNS = ("day", "model", "policy", "currency", *PLAIN, *WORTH, *WORTH.values(), *NAMED)


@dataclass(slots=True)
class Totals:
    numbers: Counter[str] = field(default_factory=Counter)
    amounts: dict[str, dict[str, Decimal]] = field(default_factory=dict)
    named: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in NAMED}
    )

    def add(self, row: Mapping[str, Any]) -> None:
        for name in (*PLAIN, *WORTH.values()):
            if row[name]:
                self.numbers[name] += row[name]
        for name in WORTH:
            if row[name]:
                sums = self.amounts.setdefault(name, {})
                sums[row["currency"]] = sums.get(row["currency"], Decimal(0)) + row[name]
        for name in NAMED:
            if row[name]:
                self.named[name].update(row[name])

    def merge(self, other: "Totals") -> None:
        """Add the counts and named counters of another group, but not its amounts of money."""
        self.numbers.update(other.numbers)
        for name in NAMED:
            self.named[name].update(other.named[name])

    def money(self, name: str) -> Money:
        """Return a total amount. Calls without reported usage count as unknown cost."""
        unknown = self.numbers[WORTH[name]]
        if name == "cost":
            unknown += self.numbers["unreported"]
        return Money(self.amounts.get(name, {}), unknown)

    @property
    def net(self) -> Money:
        """Net savings of compactions: savings minus their cost and the cost of cache breaks."""
        return self.money("saved") - self.money("summary_cost") - self.money("lost")

    @property
    def cache_share(self) -> float | None:
        """Share of the input served from provider caches; None if there was no input."""
        return self.numbers["cached"] / self.numbers["input"] if self.numbers["input"] else None

    def first_token(self, share: float) -> str:
        """Return the upper bound, in ms, of the time to the first token for this share of replies.

        `MORE` if it exceeds the last bucket; empty if there are no replies.
        """
        counted = self.named["first_tokens"]
        wanted, seen = share * counted.total(), 0
        for border in map(str, BUCKETS):
            seen += counted[border]
            if seen and seen >= wanted:
                return border
        return MORE if counted.total() else ""


@dataclass(frozen=True, slots=True)
class Range:
    """The requested days, both ends included, and optional filters by model and policy."""

    since: date
    until: date
    model: str = ""
    policy: str = ""

    @property
    def days(self) -> list[date]:
        return [self.since + timedelta(days=n) for n in range((self.until - self.since).days + 1)]


def sum_daily_counts(wanted: Range, *, by: str) -> tuple[dict[str, Totals], Totals]:
    """Return the totals grouped by one of `BY`, in order, and the grand totals."""
    rows = DailyCount.objects.filter(day__gte=wanted.since, day__lte=wanted.until)
    for name in ("model", "policy"):
        if chosen := getattr(wanted, name):
            rows = rows.filter(**{name: chosen})
    groups: dict[str, Totals] = {}
    whole = Totals()
    for row in rows.order_by(by).values(*COLUMNS):
        groups.setdefault(str(row[by]), Totals()).add(row)
        whole.add(row)
    return groups, whole


def list_counted_rows(
    *, since: date | None = None, before: date | None = None
) -> Iterator[Mapping[str, Any]]:
    """Yield the daily rows from `since` to the day before `before`, for `Totals.add`."""
    rows = DailyCount.objects.all()
    if since is not None:
        rows = rows.filter(day__gte=since)
    if before is not None:
        rows = rows.filter(day__lt=before)
    yield from rows.values(*COLUMNS).iterator()


def list_counted_names(column: str) -> Iterable[str]:
    """Return the names of models or policies in the daily counts, as choices for a filter."""
    rows = DailyCount.objects.exclude(**{column: ""}).order_by(column)
    return rows.values_list(column, flat=True).distinct()


def format_bucket_seconds(milliseconds: str) -> str:
    """Format a time-to-first-token bucket in seconds."""
    if not milliseconds:
        return "–"
    if milliseconds == MORE:
        return gettext("over {seconds} s").format(seconds=BUCKETS[-1] // 1000)
    return gettext("≤ {seconds:g} s").format(seconds=int(milliseconds) / 1000)

"""Sums up a user's calls: tokens as reported by the providers, and summaries."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.db.models import (
    BigIntegerField,
    Case,
    Count,
    Expression,
    F,
    Max,
    Q,
    QuerySet,
    Sum,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Concat, TruncDate

from chats.models import Compaction, PassedOn, Receipt
from chats.record.access import get_visible_chats
from contextpolicy.engine.policy.costs import MOST_TOKENS

FAILED = (Receipt.Outcome.FAILED, Receipt.Outcome.LOST)
ANSWERED = (Receipt.Outcome.OK, Receipt.Outcome.STOPPED)
# Calls without reported tokens or cost.
UNREPORTED = Q(usage={}) | Q(usage__input=0, usage__output=0)
# Group keys for a receipt, for a summary (which has no API key), and for a pass-through request.
Grouping = Callable[[], Expression | F]
GROUPS: dict[str, tuple[Grouping, Grouping, Grouping]] = {
    "day": (
        lambda: TruncDate("created_at", tzinfo=UTC),
        lambda: TruncDate("created_at", tzinfo=UTC),
        lambda: TruncDate("created_at", tzinfo=UTC),
    ),
    "model": (lambda: F("model_name"), lambda: F("model_name"), lambda: F("model_name")),
    "purpose": (
        lambda: Case(
            When(step=Receipt.AFTERWARDS, call__gte=Receipt.INFERRING, then=Value("preferences")),
            When(step=Receipt.AFTERWARDS, call=Receipt.BESIDE, then=Value("title")),
            When(step=Receipt.AFTERWARDS, then=Value("warm_up")),
            When(call=Receipt.BESIDE, then=Value("state")),
            default=Value("reply"),
        ),
        lambda: Value("summary"),
        lambda: Concat(Value("passed_on_"), F("kind")),
    ),
    "key": (
        lambda: Coalesce("turn__api_key__name", Value("")),
        lambda: Value(""),
        lambda: Coalesce("api_key__name", Value("")),
    ),
}


@dataclass(slots=True)
class GroupUsage:
    """The calls of one group.

    `unreported` and `summaries_unreported` count calls without reported usage. `summary_cost` is
    None if a summary's cost is unknown, or if there are several currencies.
    """

    group: str
    calls: int = 0
    failed: int = 0
    unreported: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    summaries: int = 0
    summaries_unreported: int = 0
    summary_input: int = 0
    summary_output: int = 0
    summary_cost: Decimal | None = Decimal()
    currency: str = ""

    @property
    def summary_tokens(self) -> int:
        """Number of input and output tokens of the summaries."""
        return self.summary_input + self.summary_output


def sum_person_usage(
    *, owner: AbstractBaseUser, since: datetime, until: datetime, by: str
) -> list[GroupUsage]:
    """Sum up a user's calls between two times, grouped by one of `GROUPS`, in order.

    Counts calls for replies, titles, states, preferences and warm-ups, and pass-through requests.
    Summaries are counted separately. Tokens are those reported by providers: a call without a
    report adds none and is counted as unreported. Erased data is not included.
    """
    of_receipt, of_summary, of_passed_on = GROUPS[by]
    between = {"created_at__gte": since, "created_at__lt": until}
    chats = get_visible_chats(user=owner)
    calls = Receipt.objects.filter(turn__branch__chat__in=chats, **between)
    found: dict[str, GroupUsage] = {}
    add_calls(found, aggregate_usage(calls, of_receipt()))
    passed_on = PassedOn.objects.filter(owner=owner.pk, **between)
    add_calls(found, aggregate_usage(passed_on, of_passed_on()))
    # Summaries without reported usage count only if a model wrote them.
    asked = ~Q(usage={}) | (~Q(calls=[]) & ~Q(summary_tokens=None))
    summaries = Compaction.objects.filter(asked, branch__chat__in=chats, **between)
    costs = {
        "silent": Count("pk", UNREPORTED),
        "price": Sum("cost"),
        "unknown": Count("pk", Q(cost=None)),
        "currencies": Count("currency", distinct=True),
        "currency": Max("currency"),
    }
    # Without grouping keys there is one group, even if it is empty.
    for row in aggregate_usage(summaries, of_summary()).annotate(**costs).filter(number__gt=0):
        one = get_usage_group(found, row)
        one.summaries, one.summary_input = row["number"], row["sent"]
        one.summary_output, one.summaries_unreported = row["got"], row["silent"]
        is_known = not row["unknown"] and row["currencies"] == 1
        one.summary_cost = row["price"] if is_known else None
        one.currency = row["currency"] if is_known else ""
    return [found[name] for name in sorted(found)]


def add_calls(found: dict[str, GroupUsage], rows: Any) -> None:
    counts = {
        "failed": Count("pk", Q(outcome__in=FAILED)),
        "silent": Count("pk", UNREPORTED & Q(outcome__in=ANSWERED)),
    }
    for row in rows.annotate(**counts):
        one = get_usage_group(found, row)
        one.calls += row["number"]
        one.failed += row["failed"]
        one.unreported += row["silent"]
        one.input += row["sent"]
        one.cached += row["cached"]
        one.output += row["got"]


def aggregate_usage(rows: QuerySet[Any], grouped_by: Expression | F) -> Any:
    return (
        rows.annotate(told=grouped_by)
        .values("told")
        .annotate(
            number=Count("pk"),
            sent=sum_token_field("input"),
            cached=sum_token_field("cached"),
            got=sum_token_field("output"),
        )
        .order_by("told")
    )


def sum_token_field(kind: str) -> Coalesce:
    """Return the SQL sum of a reported number. Impossible values count as not reported."""
    possible = {f"usage__{kind}__gte": 0, f"usage__{kind}__lte": MOST_TOKENS}
    number = Case(When(**possible, then=Cast(KT(f"usage__{kind}"), BigIntegerField())))
    return Coalesce(Sum(number), Value(0))


def get_usage_group(found: dict[str, GroupUsage], row: dict[str, Any]) -> GroupUsage:
    """Return the group of a row, created if needed."""
    name = str(row["told"])
    return found.setdefault(name, GroupUsage(group=name))

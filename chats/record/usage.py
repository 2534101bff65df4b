"""Adds up the calls for one person: tokens as the providers reported them, and summaries."""

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
from chats.record.access import chats_visible_to
from contextpolicy.engine.costs import MOST_TOKENS

FAILED = (Receipt.Outcome.FAILED, Receipt.Outcome.LOST)
# In what the calls are told apart: of a receipt, of a summary, which no key asked for, of a call
# that was passed on.
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

    `summary_cost` is None where a summary's price is not known, or several currencies meet.
    """

    group: str
    calls: int = 0
    failed: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    summaries: int = 0
    summary_input: int = 0
    summary_output: int = 0
    summary_cost: Decimal | None = Decimal()
    currency: str = ""


def used(*, owner: AbstractBaseUser, since: datetime, until: datetime, by: str) -> list[GroupUsage]:
    """Add up the calls for a person between two moments, by one of `GROUPS`, in its order.

    Calls for replies, titles, states, preferences and warm-ups count as calls, and those of their
    programs that were passed on without a chat; summaries are apart. Tokens are those that
    providers reported: a call without a report adds none. What was erased is gone from
    here too.
    """
    of_receipt, of_summary, of_passed_on = GROUPS[by]
    between = {"created_at__gte": since, "created_at__lt": until}
    chats = chats_visible_to(user=owner)
    calls = Receipt.objects.filter(turn__branch__chat__in=chats, **between)
    found: dict[str, GroupUsage] = {}
    add_calls(found, summed(calls, of_receipt()))
    passed_on = PassedOn.objects.filter(owner=owner.pk, **between)
    add_calls(found, summed(passed_on, of_passed_on()))
    summaries = Compaction.objects.filter(branch__chat__in=chats, **between).exclude(usage={})
    costs = {
        "price": Sum("cost"),
        "unknown": Count("pk", Q(cost=None)),
        "currencies": Count("currency", distinct=True),
        "currency": Max("currency"),
    }
    # One group for all is told even where it is empty.
    for row in summed(summaries, of_summary()).annotate(**costs).filter(number__gt=0):
        one = group(found, row)
        one.summaries, one.summary_input = row["number"], row["sent"]
        one.summary_output = row["got"]
        is_known = not row["unknown"] and row["currencies"] == 1
        one.summary_cost = row["price"] if is_known else None
        one.currency = row["currency"] if is_known else ""
    return [found[name] for name in sorted(found)]


def add_calls(found: dict[str, GroupUsage], rows: Any) -> None:
    """Add what calls in groups took."""
    for row in rows.annotate(failed=Count("pk", Q(outcome__in=FAILED))):
        one = group(found, row)
        one.calls += row["number"]
        one.failed += row["failed"]
        one.input += row["sent"]
        one.cached += row["cached"]
        one.output += row["got"]


def summed(rows: QuerySet[Any], grouped_by: Expression | F) -> Any:
    """Return the rows in groups, as a query set of them with their number and tokens."""
    return (
        rows.annotate(told=grouped_by)
        .values("told")
        .annotate(
            number=Count("pk"), sent=tokens("input"), cached=tokens("cached"), got=tokens("output")
        )
        .order_by("told")
    )


def tokens(kind: str) -> Coalesce:
    """Return the sum of one number of the reports; an impossible one counts as not reported."""
    possible = {f"usage__{kind}__gte": 0, f"usage__{kind}__lte": MOST_TOKENS}
    number = Case(When(**possible, then=Cast(KT(f"usage__{kind}"), BigIntegerField())))
    return Coalesce(Sum(number), Value(0))


def group(found: dict[str, GroupUsage], row: dict[str, Any]) -> GroupUsage:
    """Return the group of a row, made when it is the first."""
    name = str(row["told"])
    return found.setdefault(name, GroupUsage(group=name))

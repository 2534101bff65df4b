"""Quotas of policies: the tokens and the cost of a user's model calls per UTC day and month.

Only calls under a policy with a quota are counted, when they end. Until then, a call counts as its
prompt, and each unfinished turn, summary or pass-through request as at least one token. Checks run
under the owner's lock, so concurrent requests cannot use the same rest of a quota.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Subquery, Sum
from django.utils.translation import gettext_noop

from chats.ground.refusals import Refusal
from chats.models import Chat, Compaction, PassedOn, QuotaUsage, Receipt, Turn
from chats.models.turns import UNFINISHED
from contextpolicy.engine.policy import costs
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.resolution import load_policy_values

NOTHING = Decimal(0)
# Older rows are not needed for any quota.
KEPT = timedelta(days=62)


class QuotaExceeded(Refusal):
    """A quota of your policy is used up: tokens per day or month, or cost per month."""

    code = "quota_exceeded"
    status = 402
    sentence = gettext_noop(
        "You have reached your limit of {limit:,} tokens per day. It is reset on {date} at 00:00 "
        "UTC. If you need more, ask an administrator."
    )


class MonthlyQuotaExceeded(QuotaExceeded):
    """The tokens per month are used up."""

    sentence = gettext_noop(
        "You have reached your limit of {limit:,} tokens per month. It is reset on {date} at 00:00 "
        "UTC. If you need more, ask an administrator."
    )


class CostQuotaExceeded(QuotaExceeded):
    """The cost per month is used up."""

    sentence = gettext_noop(
        "You have reached your limit of {limit:,} {currency} per month. It is reset on {date} at "
        "00:00 UTC. If you need more, ask an administrator."
    )


class PlainCostQuotaExceeded(QuotaExceeded):
    """The cost per month is used up, and the model's price has no currency."""

    sentence = gettext_noop(
        "You have reached your limit of {limit:,} per month for the cost of model calls. It is "
        "reset on {date} at 00:00 UTC. If you need more, ask an administrator."
    )


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of a policy; None: not set."""

    tokens_per_day: int | None = None
    tokens_per_month: int | None = None
    cost_per_month: int | None = None

    @classmethod
    def of(cls, values: PolicyValues) -> "Quotas":
        """Return the quotas of a policy."""
        return cls(values.tokens_per_day, values.tokens_per_month, values.cost_per_month)

    def __bool__(self) -> bool:
        return self != Quotas()


@dataclass(frozen=True, slots=True)
class QuotaMeter:
    """How a call is counted: its user, the quotas, the model's prices, and its prompt.

    `estimate`: the prompt in local tokens, counted if the provider reports no usage.
    """

    owner_id: int
    quotas: Quotas
    prices: costs.Prices
    estimate: int = 0


@dataclass(frozen=True, slots=True)
class UsedQuota:
    """The usage of a user: tokens today and this month, and cost this month by currency."""

    today: int = 0
    month: int = 0
    costs: Mapping[str, Decimal] = field(default_factory=dict)


def build_quota_meter(
    *, owner_id: int, values: PolicyValues, prices: costs.Prices, estimate: int = 0
) -> QuotaMeter | None:
    """Return the meter of a call; None if its policy sets no quota."""
    quotas = Quotas.of(values)
    return QuotaMeter(owner_id, quotas, prices, estimate) if quotas else None


def check_usage_quota(
    meter: QuotaMeter, *, now: datetime, own: Turn | Compaction | None = None
) -> None:
    """Raise `QuotaExceeded` if a quota is used up.

    Concurrent checks count each other only if the caller holds the owner's lock. `own`: the turn or
    summary that makes the call. Its calls in progress are not counted.
    """
    quotas, currency = meter.quotas, meter.prices.currency
    used = load_used_quota(meter.owner_id, now=now)
    tokens, cost = load_open_calls(meter.owner_id, own=own, currency=currency)
    today = now.astimezone(UTC).date()
    if is_used_up(used.today + tokens, quotas.tokens_per_day):
        until = today + timedelta(days=1)
        raise QuotaExceeded(limit=quotas.tokens_per_day, date=until.isoformat())
    until = find_next_month(today)
    if is_used_up(used.month + tokens, quotas.tokens_per_month):
        raise MonthlyQuotaExceeded(limit=quotas.tokens_per_month, date=until.isoformat())
    if is_used_up(used.costs.get(currency, NOTHING) + cost, quotas.cost_per_month):
        limit, day = quotas.cost_per_month, until.isoformat()
        if currency:
            raise CostQuotaExceeded(limit=limit, date=day, currency=currency)
        raise PlainCostQuotaExceeded(limit=limit, date=day)


def is_quota_left(meter: QuotaMeter | None, *, now: datetime) -> bool:
    """Return True if no quota is used up. Also True without a meter."""
    if meter is None:
        return True
    try:
        check_usage_quota(meter, now=now)
    except QuotaExceeded:
        return False
    return True


def check_policy_quota(
    *,
    owner_id: int,
    values: PolicyValues,
    prices: costs.Prices,
    now: datetime,
    own: Turn | Compaction | None = None,
) -> None:
    """Raise `QuotaExceeded` if a quota of a policy is used up, see `check_usage_quota`."""
    meter = build_quota_meter(owner_id=owner_id, values=values, prices=prices)
    if meter:
        check_usage_quota(meter, now=now, own=own)


def is_used_up(used: Decimal | int, limit: int | None) -> bool:
    return limit is not None and used >= limit


def find_next_month(day: date) -> date:
    """Return the first day of the month after a day."""
    return (day.replace(day=1) + timedelta(days=32)).replace(day=1)


def load_used_quota(owner_id: int, *, now: datetime) -> UsedQuota:
    """Return the usage of today and of this month (UTC), in ended calls."""
    today = now.astimezone(UTC).date()
    rows = (
        QuotaUsage.objects.filter(owner=owner_id, day__gte=today.replace(day=1), day__lte=today)
        .values_list("currency")
        .annotate(
            today=Sum("tokens", filter=Q(day=today), default=0),
            month=Sum("tokens"),
            amount=Sum("cost"),
        )
    )
    found = list(rows)
    return UsedQuota(
        today=sum(row[1] for row in found),
        month=sum(row[2] for row in found),
        costs={row[0]: row[3] for row in found},
    )


def load_open_calls(
    owner_id: int, *, own: Turn | Compaction | None, currency: str
) -> tuple[int, Decimal]:
    """Return the tokens of a user's calls in progress, and the cost of those in one currency.

    Those of `own` are left out.
    """
    prompts = (
        Receipt.objects.filter(turn=OuterRef("pk"), outcome=Receipt.Outcome.OPEN)
        .order_by()
        .values("turn")
        .annotate(sent=Sum("prompt_tokens"))
        .values("sent")
    )
    turns = Turn.objects.filter(status__in=UNFINISHED)
    summaries = Compaction.objects.filter(
        branch__chat__owner=owner_id, status=Compaction.Status.PREPARING
    )
    if isinstance(own, Turn):
        turns = turns.exclude(pk=own.pk)
    elif own is not None:
        summaries = summaries.exclude(pk=own.pk)
    calls = (
        turns.filter(Exists(Chat.objects.filter(branches=OuterRef("branch"), owner=owner_id)))
        .annotate(sent=Subquery(prompts))
        .values_list("sent", "model__input_price", "model__currency")
    )
    tokens, cost = 0, NOTHING
    passed_on = PassedOn.objects.filter(owner=owner_id, outcome="open")
    for sent in passed_on.values_list("prompt_tokens", flat=True):
        tokens += max(sent or 0, 1)
    # The size of a summary's request is not stored.
    tokens += summaries.count()
    for sent, price, priced_in in calls:
        tokens += max(sent or 0, 1)
        if priced_in == currency:
            cost += costs.compute_token_cost(sent or 0, price) or NOTHING
    return tokens, cost


@transaction.atomic(savepoint=False)
def add_usage(
    meter: QuotaMeter,
    *,
    usage: Mapping[str, int],
    is_answered: bool,
    now: datetime,
    received: int = 0,
) -> None:
    """Count an ended call.

    Without reported usage, an answered call counts as its prompt and `received`, the local tokens
    of the received text, and a failed one as nothing.
    """
    used = costs.parse_reported_usage(usage)
    if used is None:
        sent = meter.estimate if is_answered or received else 0
        used = costs.UsedTokens(input=sent, output=received)
    tokens = used.input + used.output
    if not tokens:
        return
    place = {
        "owner_id": meter.owner_id,
        "day": now.astimezone(UTC).date(),
        "currency": meter.prices.currency,
    }
    cost = compute_known_cost(used, meter.prices)
    rows = QuotaUsage.objects.filter(**place)
    more = {"tokens": F("tokens") + tokens, "cost": F("cost") + cost}
    if not rows.update(**more):
        # Another call may create the row at the same time.
        QuotaUsage.objects.bulk_create([QuotaUsage(**place)], ignore_conflicts=True)
        rows.update(**more)


def compute_known_cost(used: costs.UsedTokens, prices: costs.Prices) -> Decimal:
    """Return the cost of the tokens that have a price.

    Without a price for the cache, its tokens cost as much as others.
    """
    anew = used.read_anew - used.written
    cached = prices.input if prices.cached is None else prices.cached
    written = prices.input if prices.written is None else prices.written
    parts = (
        (anew, prices.input),
        (used.cached, cached),
        (used.written, written),
        (used.output, prices.output),
    )
    found = (costs.compute_token_cost(tokens, price) for tokens, price in parts)
    return sum((part for part in found if part is not None), NOTHING)


@transaction.atomic(savepoint=False)
def close_lost_receipts(rows: QuerySet[Receipt], *, now: datetime) -> int:
    """Mark the open calls of dead workers as lost, and return the count.

    Counts their prompts towards the quotas, because the provider may have answered.
    """
    lost = rows.filter(outcome=Receipt.Outcome.OPEN)
    related = ("effective_policy", "turn__branch__chat", "turn__model")
    # Locked, so that a call that ends at this moment is counted once.
    for receipt in lost.select_related(*related).select_for_update(of=("self",), no_key=True):
        model = receipt.turn.model
        meter = build_quota_meter(
            owner_id=receipt.turn.branch.chat.owner_id,
            values=load_policy_values(receipt.effective_policy),
            prices=model.prices if model else costs.Prices(),
            estimate=receipt.prompt_tokens,
        )
        if meter:
            add_usage(meter, usage={}, is_answered=True, now=now)
    return lost.update(outcome=Receipt.Outcome.LOST, finished_at=now)


def delete_old_usage(*, now: datetime) -> int:
    """Delete the rows that no quota needs any more. Return the count."""
    old = QuotaUsage.objects.filter(day__lt=now.astimezone(UTC).date() - KEPT)
    return old.delete()[0]

"""Balances of compactions: their cost, their savings and their cache losses."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, Q, Sum
from django.utils.translation import gettext

from chats.models import Chat, Compaction, CompactionBalance, DailyCount
from contextpolicy.engine.policy.costs import Money
from contextpolicy.wording import join_items

# Number of newest compactions listed per chat.
LISTED = 100
COUNTED = ("calls", "unreported", "saved_tokens", "lost_tokens")
EFFECTS = (*COUNTED, "saved", "saved_unpriced", "lost", "lost_unpriced")
# Summaries requested from a model. The built-in extractor and windows are free.
ASKED = ~Q(calls=[]) | Q(cost__isnull=False)


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of one or more compactions.

    `calls`: calls whose prompt used the compaction. The savings of `unreported` calls are unknown:
    the provider reported no usage, or the model is not configured. `cost`: the compaction's own
    calls. `saved`: savings in `calls`. `lost`: cost of cache breaks.
    """

    calls: int = 0
    unreported: int = 0
    saved_tokens: int = 0
    lost_tokens: int = 0
    cost: Money = field(default_factory=Money)
    saved: Money = field(default_factory=Money)
    lost: Money = field(default_factory=Money)

    @property
    def net(self) -> Money:
        """Net savings: savings minus the compaction's cost and the cost of cache breaks."""
        return self.saved - self.cost - self.lost

    def __add__(self, other: "Balance") -> "Balance":
        counted = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        return Balance(
            **counted,
            cost=self.cost + other.cost,
            saved=self.saved + other.saved,
            lost=self.lost + other.lost,
        )


def load_compaction_balance(row: Compaction) -> Balance:
    """Return the balance of one compaction, including all calls counted so far."""
    return load_compaction_balances([row])[row.pk]


def load_compaction_balances(rows: Sequence[Compaction]) -> dict[uuid.UUID, Balance]:
    """Return the balances of compactions by primary key, in one query."""
    found = {row.pk: Balance(cost=calculate_compaction_cost(row)) for row in rows}
    for effect in CompactionBalance.objects.filter(compaction__in=found).values(
        "compaction_id", "currency", *EFFECTS
    ):
        found[effect["compaction_id"]] += build_effect_balance(effect)
    return found


def load_chat_balance(chat: Chat) -> Balance:
    """Return the total balance of a chat's compactions, including failed attempts."""
    effects = CompactionBalance.objects.filter(compaction__branch__chat=chat)
    rows = effects.values("currency").annotate(**{name: Sum(name) for name in EFFECTS}).order_by()
    asked = Compaction.objects.filter(ASKED, branch__chat=chat).values("currency")
    costs = asked.annotate(worth=Sum("cost"), unknown=Count("pk", Q(cost=None))).order_by()
    money = (
        build_money(cost["currency"], cost["worth"], unknown=cost["unknown"]) for cost in costs
    )
    return sum(map(build_effect_balance, rows), Balance(cost=sum(money, Money())))


def list_newest_balances(chat: Chat) -> list[tuple[Compaction, Balance]]:
    rows = Compaction.objects.filter(branch__chat=chat).order_by("-created_at", "-attempt")
    found = list(rows.defer("text", "sections", "retention")[:LISTED])
    balances = load_compaction_balances(found)
    return [(row, balances[row.pk]) for row in found]


def list_policy_balances(slug: str) -> list[tuple[int, Balance]]:
    """Return the balance per version of a policy, newest first, from the daily counts.

    These count no `unreported` calls.
    """
    counted = {
        "calls": Sum("governed"),
        **{name: Sum(name) for name in EFFECTS if name not in {"calls", "unreported"}},
        "worth": Sum("summary_cost"),
        "unknown": Sum("summaries_unpriced"),
    }
    grouped = DailyCount.objects.filter(policy=slug).values("version", "currency")
    rows: Any = grouped.annotate(**counted).order_by("-version")
    found: dict[int, Balance] = {}
    for row in rows:
        balance = build_effect_balance({**row, "unreported": 0})
        balance += Balance(cost=build_money(row["currency"], row["worth"], unknown=row["unknown"]))
        found[row["version"]] = found.get(row["version"], Balance()) + balance
    return list(found.items())


def build_effect_balance(row: Mapping[str, Any]) -> Balance:
    return Balance(
        **{name: row[name] for name in COUNTED},
        saved=build_money(row["currency"], row["saved"], unknown=row["saved_unpriced"]),
        lost=build_money(row["currency"], row["lost"], unknown=row["lost_unpriced"]),
    )


def calculate_compaction_cost(row: Compaction) -> Money:
    """Return the cost of a compaction's own calls; zero if no model was called."""
    is_asked = bool(row.calls) or row.cost is not None
    return Money.of(row.cost, currency=row.currency) if is_asked else Money()


def build_money(currency: str, worth: Any, *, unknown: int) -> Money:
    """Return an amount in one currency, plus the number of items without a known price."""
    return Money({currency: worth} if worth else {}, unknown)


def sum_balances(balances: Iterable[Balance]) -> Balance:
    return sum(balances, Balance())


def format_money(money: Money) -> str:
    """Format an amount for display. An amount with unknown parts is "unknown", never 0."""
    nameless = gettext("(no currency)") if len(money.amounts) > 1 else ""
    known = join_items(
        f"{worth:,.4f} {currency or nameless}".strip()
        for currency, worth in sorted(money.amounts.items())
    )
    if not money.unknown:
        return known or "0"
    return gettext("unknown")


def format_known_money(money: Money) -> str:
    """Format the known part of a partly unknown amount; otherwise return an empty string."""
    return format_money(Money(money.amounts)) if money.unknown and money.amounts else ""

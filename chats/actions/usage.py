"""A user's usage of models, and the quotas of their policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from django.contrib.auth.models import AbstractBaseUser

from chats.ground.refusals import Refusal
from chats.models import Chat
from chats.prompt import model_choice
from chats.record import quotas
from chats.record.usage import GroupUsage, sum_person_usage


@dataclass(frozen=True, slots=True)
class QuotaState:
    """A quota of a user's new chats: the policy field, the amounts, and the day of its reset (UTC).

    `used` contains only ended calls. `currency`: of a cost; empty for tokens.
    """

    name: str
    used: Decimal
    limit: int
    resets_on: date
    currency: str = ""

    @property
    def shown(self) -> Decimal:
        """The used amount, at most the limit."""
        return min(self.used, Decimal(self.limit))


@dataclass(frozen=True, slots=True)
class UsageOverview:
    """A user's usage in a time range, and the quotas of their new chats."""

    rows: Sequence[GroupUsage]
    quotas: Sequence[QuotaState]


def load_usage_overview(
    *, user: AbstractBaseUser, since: datetime, until: datetime, by: str, now: datetime
) -> UsageOverview:
    """Return the usage between two times, grouped by a key of `record.usage.GROUPS`."""
    rows = sum_person_usage(owner=user, since=since, until=until, by=by)
    return UsageOverview(rows, load_quota_states(user=user, now=now))


def load_quota_states(*, user: AbstractBaseUser, now: datetime) -> list[QuotaState]:
    """Return the quotas of a user's new chats with the default model.

    Empty without quotas, and if no model can be used.
    """
    try:
        choice = model_choice.choose_chat_model(chat=Chat(owner_id=user.pk))
    except Refusal:
        return []
    found = quotas.Quotas.of(choice.values)
    if not found:
        return []
    used = quotas.load_used_quota(user.pk, now=now)
    today = now.astimezone(UTC).date()
    tomorrow, next_month = today + timedelta(days=1), quotas.find_next_month(today)
    currency = choice.model.currency
    states = (
        ("tokens_per_day", Decimal(used.today), found.tokens_per_day, tomorrow, ""),
        ("tokens_per_month", Decimal(used.month), found.tokens_per_month, next_month, ""),
        (
            "cost_per_month",
            used.costs.get(currency, quotas.NOTHING),
            found.cost_per_month,
            next_month,
            currency,
        ),
    )
    return [
        QuotaState(name, amount, limit, resets_on, unit)
        for name, amount, limit, resets_on, unit in states
        if limit is not None
    ]

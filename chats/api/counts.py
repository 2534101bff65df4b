"""Balances of chats and policies, and the daily counts of everybody."""

import uuid
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.errors import InvalidField
from chats.api.inputs import Strict
from chats.api.money import MoneyOut, money_json
from chats.api.outputs import items
from chats.api.policy_access import SEE, policy_for, require
from chats.api.schema import READ_ERRORS, answers
from chats.counts import balances
from chats.counts.balances import COUNTED, Balance
from chats.counts.dashboard import BY, PLAIN, WORTH, Range, Totals, totals
from chats.counts.keeping import counted_to
from chats.record import access

SEE_COUNTS = "view_dailycount"
# Without a beginning, and at most.
USUAL_DAYS, MOST_DAYS = 30, 366


class EffectOut(serializers.Serializer[object]):
    """The cost of compactions, and what they saved in the calls that they governed."""

    calls = serializers.IntegerField(help_text="Whose prompt was governed, as far as counted.")
    unreported = serializers.IntegerField(
        help_text="Of these, those of which the provider told no tokens; nothing else counts them."
    )
    saved_tokens = serializers.IntegerField(help_text="Kept out of these prompts, estimated.")
    lost_tokens = serializers.IntegerField(
        help_text="Read anew by the first prompt after it, beyond what the one before read anew."
    )
    cost = MoneyOut(help_text="Of its own calls.")
    saved = MoneyOut(help_text="At the price of cached input where the cache was warm.")
    lost = MoneyOut(help_text="By the break of the provider's cache.")
    net = MoneyOut(help_text="`saved` less `cost` and `lost`.")


class CompactionEffectOut(EffectOut):
    """The balance of one compaction."""

    compaction = serializers.UUIDField()


class ChatBalanceOut(serializers.Serializer[object]):
    """The balance of a chat, and of each of its newest compactions."""

    whole = EffectOut()
    data = CompactionEffectOut(many=True)  # type: ignore[assignment]  # the base has another


class VersionEffectOut(EffectOut):
    """The balance of one version of a policy."""

    version = serializers.IntegerField()


class PolicyBalanceOut(serializers.Serializer[object]):
    """The balance of each version of a policy, the newest first; of chats of everybody."""

    data = VersionEffectOut(many=True)  # type: ignore[assignment]  # the base has another


class CountsQuery(Strict):
    """The days, and in what the numbers are told apart."""

    since = serializers.DateField(
        required=False, help_text="The first day; without it 30 days end with `until`."
    )
    until = serializers.DateField(required=False, help_text="The last day; absent: today (UTC).")
    by = serializers.ChoiceField(choices=list(BY), default="day")
    model = serializers.CharField(required=False, default="", max_length=120, help_text="A slug.")
    policy = serializers.CharField(required=False, default="", max_length=60, help_text="A slug.")


class CountedOut(serializers.Serializer[object]):
    """The counts of one day, model or policy."""

    group = serializers.CharField()
    replies = serializers.IntegerField()
    stopped = serializers.IntegerField()
    failed = serializers.IntegerField()
    failures = serializers.DictField(
        child=serializers.IntegerField(), help_text="How many, by code."
    )
    first_tokens = serializers.DictField(
        child=serializers.IntegerField(),
        help_text="Replies by the milliseconds within which they began, each in one bucket.",
    )
    compactions = serializers.DictField(
        child=serializers.IntegerField(), help_text="How many, by what became of them."
    )
    calls = serializers.IntegerField()
    unreported = serializers.IntegerField(help_text="Calls that told nothing of their tokens.")
    input = serializers.IntegerField(help_text="Tokens; `cached` and `written` are a part of it.")
    cached = serializers.IntegerField()
    written = serializers.IntegerField()
    output = serializers.IntegerField()
    summaries = serializers.IntegerField(help_text="For which a model was asked.")
    governed = serializers.IntegerField(help_text="Calls whose prompt a compaction governed.")
    saved_tokens = serializers.IntegerField()
    lost_tokens = serializers.IntegerField()
    cost = MoneyOut()
    summary_cost = MoneyOut()
    saved = MoneyOut()
    lost = MoneyOut()
    net = MoneyOut()


class CountsOut(serializers.Serializer[object]):
    """The daily counts of everybody. What was erased since stays counted."""

    since = serializers.DateField()
    until = serializers.DateField()
    counted_to = serializers.DateTimeField(allow_null=True, help_text="Null: nothing was counted.")
    data = CountedOut(many=True)  # type: ignore[assignment]  # the base has another


def effect_json(balance: Balance, **more: Any) -> dict[str, Any]:
    """Return a balance."""
    sums = {name: money_json(getattr(balance, name)) for name in ("cost", "saved", "lost", "net")}
    return {**{name: getattr(balance, name) for name in COUNTED}, **sums, **more}


def counted_json(name: str, total: Totals) -> dict[str, Any]:
    """Return the sums of one group."""
    return {
        "group": name,
        **{column: total.numbers[column] for column in PLAIN},
        **{column: money_json(total.money(column)) for column in WORTH},
        **{column: dict(counted) for column, counted in total.named.items()},
        "net": money_json(total.net),
    }


class ChatBalance(Endpoint):
    """The balance of a chat's compactions."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_balance",
        responses=answers({200: ChatBalanceOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read what the chat's compactions cost and saved: all together, and the newest hundred."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        rows = [
            effect_json(balance, compaction=row.pk) for row, balance in balances.newest_of(chat)
        ]
        told = {"whole": effect_json(balances.of_chat(chat)), "data": rows}
        return Response(ChatBalanceOut(told).data)


class PolicyBalance(Endpoint):
    """The balance of a policy."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="policies_balance",
        responses=answers({200: PolicyBalanceOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, slug: str) -> Response:
        """Read what compactions under each version of the policy cost and saved."""
        policy = policy_for(person(request), SEE, slug=slug)
        rows = [
            effect_json(balance, version=number)
            for number, balance in balances.of_policy(policy.slug)
        ]
        return Response(PolicyBalanceOut({"data": rows}).data)


class EverybodysCounts(Endpoint):
    """The daily counts of everybody."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="counts",
        parameters=[CountsQuery],
        responses=answers({200: CountsOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """Read replies, failures, tokens and balances by day, model or policy.

        For those who may see the dashboard. Raises `InvalidField`.
        """
        require(person(request), SEE_COUNTS, app="chats")
        query = CountsQuery.read(request.query_params.dict())
        wanted = range_of(query, today=timezone.now().date())
        groups, _ = totals(wanted, by=query["by"])
        rows = [counted_json(name, total) for name, total in groups.items()]
        told = {"since": wanted.since, "until": wanted.until, "counted_to": counted_to()}
        return Response({**told, "data": items(CountedOut, rows)})


def range_of(query: Mapping[str, Any], *, today: date) -> Range:
    """Return the days that were asked for. Raises `InvalidField`."""
    until = query.get("until") or today
    since = query.get("since") or until - timedelta(days=USUAL_DAYS - 1)
    if not 0 <= (until - since).days < MOST_DAYS:
        problem = "It has to be `until` or before it, by 365 days at most."
        raise InvalidField(code="invalid_value", param="since", problem=problem)
    return Range(since, until, query["model"], query["policy"])

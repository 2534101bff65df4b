"""Compaction savings of chats and policies, and the daily counts of the instance."""

import uuid
from datetime import timedelta
from typing import Any, ClassVar

from django.utils import timezone
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import Strict, subtract_from_end
from chats.api.core.money import MoneyOut, serialize_money
from chats.api.core.outputs import serialize_rows
from chats.api.policies.policy_access import SEE, find_policy
from chats.counts import balances
from chats.counts.balances import COUNTED, Balance
from chats.counts.dashboard import BY, PLAIN, WORTH, Range, Totals, sum_daily_counts
from chats.counts.keeping import get_statistics_time
from chats.record import access

SEE_COUNTS = "chats.view_dailycount"
# Number of days without `since`, and the maximum.
USUAL_DAYS, MOST_DAYS = 30, 366


class EffectOut(serializers.Serializer[object]):
    """The cost of compactions, and the tokens and costs that they saved in later calls."""

    calls = serializers.IntegerField(
        help_text=(
            "Number of successful or stopped model calls for replies whose prompt used an active "
            "compaction."
        )
    )
    unreported = serializers.IntegerField(
        help_text=(
            "Number of these calls for which the provider reported no token usage. The token "
            "counts and amounts exclude them."
        )
    )
    saved_tokens = serializers.IntegerField(
        help_text="Estimated number of tokens that compactions kept out of these prompts."
    )
    lost_tokens = serializers.IntegerField(
        help_text=(
            "Number of prompt tokens that were not read from the provider's cache, because a "
            "compaction, an undo or a redo had changed the prompt. Only the first prompt after "
            "each counts."
        )
    )
    cost = MoneyOut(help_text="Cost of the calls that wrote the summaries.")
    saved = MoneyOut(
        help_text=(
            "Amount saved: the input price of `saved_tokens`. Tokens that the cache would have "
            "provided count at the cached price."
        )
    )
    lost = MoneyOut(
        help_text=(
            "Additional cost of `lost_tokens`, which were billed at the full price instead of "
            "the cached price."
        )
    )
    net = MoneyOut(help_text="Net savings: `saved` minus `cost` and `lost`.")


class CompactionEffectOut(EffectOut):
    """Savings of one compaction in the calls that used it."""

    compaction = serializers.UUIDField(help_text="Id of the compaction.")


class ChatBalanceOut(serializers.Serializer[object]):
    """Compaction savings of a chat, in total and for each of its newest compactions."""

    whole = EffectOut(help_text="Savings of the whole chat.")
    data = CompactionEffectOut(
        many=True, help_text="Savings of the 100 newest compactions, newest first."
    )  # type: ignore[assignment]  # overrides `Serializer.data`


class VersionEffectOut(EffectOut):
    """Compaction savings in the calls under one version of a policy."""

    unreported = serializers.IntegerField(
        help_text="Always 0, because `calls` excludes calls without reported token usage."
    )
    version = serializers.IntegerField(help_text="Version number.")


class PolicyBalanceOut(serializers.Serializer[object]):
    """Compaction savings by policy version, newest first, for the chats of all users."""

    data = VersionEffectOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class CountsQuery(Strict):
    """The range of days, the grouping of the rows, and the filters."""

    since = serializers.DateField(
        required=False,
        help_text=(
            "First day of the range (UTC), inclusive. Default: 29 days before `until`. The range "
            "has at most "
            "366 days."
        ),
    )
    until = serializers.DateField(
        required=False, help_text="Last day of the range (UTC), inclusive. Default: today."
    )
    by = serializers.ChoiceField(
        choices=list(BY), default="day", help_text="Grouping: `day` (UTC), `model` or `policy`."
    )
    model = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=120,
        help_text="Only counts of the model with this slug. Empty: all models.",
    )
    policy = serializers.CharField(
        required=False,
        default="",
        allow_blank=True,
        max_length=60,
        help_text=(
            "Only counts of chats whose strategy was set by the policy with this slug. Empty: all "
            "policies."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values with both days of the range. Raises ValidationError."""
        until = attrs.get("until") or timezone.now().date()
        since = attrs.get("since") or subtract_from_end(until, timedelta(days=USUAL_DAYS - 1))
        if not 0 <= (until - since).days < MOST_DAYS:
            text = gettext("`since` must be at most 365 days before `until`, and not after it.")
            raise serializers.ValidationError({"since": [text]})
        return {**attrs, "since": since, "until": until}


class CountRowOut(serializers.Serializer[object]):
    """Counts for one day, model or policy, identified by `group`."""

    group = serializers.CharField(
        help_text=(
            "Day (UTC), slug of the model, or slug of the policy that set the strategy, as "
            "requested with `by`. Empty: the model is no longer configured, or no policy applied."
        )
    )
    replies = serializers.IntegerField(help_text="Number of completed replies.")
    stopped = serializers.IntegerField(help_text="Number of replies that users stopped.")
    failed = serializers.IntegerField(help_text="Number of failed replies.")
    failures = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=(
            "Number of failures by error code. Includes failed pass-through requests and trial "
            "summaries, which `failed` does not count."
        ),
    )
    first_tokens = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=(
            "Number of replies by time from the request to the first token, including stopped and "
            "failed replies. Keys are upper bounds in milliseconds: `250`, `500`, `1000`, … "
            "`64000`, and `more`."
        ),
    )
    compactions = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=(
            "Number of compactions by outcome: `published`, `window` (published without a "
            "summary), `revised`, `rejected`, `failed`, `overtaken`, `undone` and `redone`."
        ),
    )
    calls = serializers.IntegerField(
        help_text=(
            "Number of model calls for replies, states, titles, pass-through requests and trial "
            "summaries. Calls for preferences and cache warm-ups are not counted."
        )
    )
    unreported = serializers.IntegerField(
        help_text=(
            "Number of successful or stopped calls for which the provider reported no token "
            "usage. The token sums exclude them."
        )
    )
    input = serializers.IntegerField(
        help_text="Number of input tokens, including `cached` and `written`."
    )
    cached = serializers.IntegerField(
        help_text="Number of input tokens read from the provider's cache."
    )
    written = serializers.IntegerField(
        help_text="Number of input tokens written to the provider's cache."
    )
    output = serializers.IntegerField(help_text="Number of output tokens.")
    summaries = serializers.IntegerField(
        help_text="Number of summaries for which a model was called."
    )
    governed = serializers.IntegerField(
        help_text=(
            "Number of successful or stopped calls for replies whose prompt used an active "
            "compaction and whose token usage the provider reported."
        )
    )
    saved_tokens = serializers.IntegerField(
        help_text="Estimated number of tokens that compactions kept out of prompts."
    )
    lost_tokens = serializers.IntegerField(
        help_text=(
            "Number of prompt tokens that were not read from the provider's cache, because a "
            "compaction, an undo or a redo had changed the prompt. Only the first prompt after "
            "each counts."
        )
    )
    cost = MoneyOut(help_text="Cost of the calls, without summaries.")
    summary_cost = MoneyOut(help_text="Cost of the calls that wrote summaries.")
    saved = MoneyOut(
        help_text=(
            "Amount saved: the input price of `saved_tokens`. Tokens that the cache would have "
            "provided count at the cached price."
        )
    )
    lost = MoneyOut(
        help_text=(
            "Additional cost of `lost_tokens`, which were billed at the full price "
            "instead of the cached price."
        )
    )
    net = MoneyOut(help_text="Net savings: `saved` minus `summary_cost` and `lost`.")


class CountsOut(serializers.Serializer[object]):
    """The daily counts of the instance, including counts of data that was erased later."""

    since = serializers.DateField(help_text="First day of the range (UTC), inclusive.")
    until = serializers.DateField(help_text="Last day of the range (UTC), inclusive.")
    counted_to = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time of the last update of the counts; later events are not counted yet. Null: "
            "nothing has been counted yet."
        ),
    )
    data = CountRowOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


def serialize_balance(balance: Balance, **more: Any) -> dict[str, Any]:
    sums = {
        name: serialize_money(getattr(balance, name)) for name in ("cost", "saved", "lost", "net")
    }
    return {**{name: getattr(balance, name) for name in COUNTED}, **sums, **more}


def serialize_totals(name: str, total: Totals) -> dict[str, Any]:
    """Return the totals of one group as JSON: counts as integers, amounts by currency."""
    return {
        "group": name,
        **{column: total.numbers[column] for column in PLAIN},
        **{column: serialize_money(total.money(column)) for column in WORTH},
        **{column: dict(counted) for column, counted in total.named.items()},
        "net": serialize_money(total.net),
    }


class ChatBalanceViewSet(Endpoint):
    serializer_class = ChatBalanceOut

    @extend_schema(operation_id="chats_balance", summary="Get the compaction savings of a chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the compaction savings of a chat, in total and for its 100 newest compactions."""
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        rows = [
            serialize_balance(balance, compaction=row.pk)
            for row, balance in balances.list_newest_balances(chat)
        ]
        told = {"whole": serialize_balance(balances.load_chat_balance(chat)), "data": rows}
        return Response(ChatBalanceOut(told).data)


class PolicyBalanceViewSet(Endpoint):
    serializer_class = PolicyBalanceOut
    read_scope = "policy:read"
    permissions: ClassVar = {"retrieve": [SEE]}

    @extend_schema(
        operation_id="policies_balance", summary="Get the compaction savings of a policy"
    )
    def retrieve(self, request: Request, slug: str) -> Response:
        """Get the cost and the savings of compactions, for each version of a policy.

        The savings occur in later model calls. The chats of all users are included.
        """
        policy = find_policy(slug)
        rows = [
            serialize_balance(balance, version=number)
            for number, balance in balances.list_policy_balances(policy.slug)
        ]
        return Response(PolicyBalanceOut({"data": rows}).data)


class CountViewSet(Endpoint):
    serializer_class = CountsOut
    read_scope = "policy:read"
    permissions: ClassVar = {"retrieve": [SEE_COUNTS]}

    @extend_schema(
        operation_id="counts", summary="Get daily counts of the instance", parameters=[CountsQuery]
    )
    def retrieve(self, request: Request) -> Response:
        """Get the daily counts of the instance: replies, failures, tokens and compaction savings.

        Raises `ValidationError` for more than 366 days, or if the range ends before it starts.
        """
        query = CountsQuery.read(request.query_params.dict())
        wanted = Range(query["since"], query["until"], query["model"], query["policy"])
        groups, _ = sum_daily_counts(wanted, by=query["by"])
        rows = [serialize_totals(name, total) for name, total in groups.items()]
        told = {"since": wanted.since, "until": wanted.until, "counted_to": get_statistics_time()}
        return Response({**told, "data": serialize_rows(CountRowOut, rows)})

"""Usage of models in a user's chats, by day, model, purpose or API key."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions.usage import load_usage_overview
from chats.api.core.base import Endpoint
from chats.api.core.inputs import Strict, subtract_from_end
from chats.api.core.outputs import serialize_rows
from chats.record.usage import GROUPS

# Default and maximum length of the range.
USUAL, LONGEST = timedelta(days=30), timedelta(days=366)


class UsageQuery(Strict):
    """The time range of the usage, and the grouping of its rows."""

    since = serializers.DateTimeField(
        required=False,
        help_text=(
            "Start of the range, inclusive. Default: 30 days before `until`. The range has at "
            "most 366 days."
        ),
    )
    until = serializers.DateTimeField(
        required=False, help_text="End of the range, exclusive. Default: now."
    )
    by = serializers.ChoiceField(
        choices=list(GROUPS),
        default="day",
        help_text=(
            "Grouping: `day` (UTC), `model`, `purpose`, or `key` (name of the API key; empty for "
            "summaries and for calls without a key)."
        ),
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return the values with both ends of the range. Raises ValidationError."""
        until = attrs.get("until") or timezone.now()
        since = attrs.get("since") or subtract_from_end(until, USUAL)
        if not timedelta() < until - since <= LONGEST:
            text = gettext("`since` must be earlier than `until`, by at most 366 days.")
            raise serializers.ValidationError({"since": [text]})
        return {**attrs, "since": since, "until": until}


class UsageRowOut(serializers.Serializer[object]):
    """The calls for one day, model, purpose or API key. Token counts are as reported by the
    providers.
    """

    group = serializers.CharField(
        help_text=(
            "Day (UTC), name of the model at its provider, purpose, or name of the API key, as "
            "requested with `by`. Purposes: `reply`, `state`, `title`, `preferences`, `warm_up`, "
            "`summary`, and `passed_on_…` for pass-through requests."
        )
    )
    calls = serializers.IntegerField(
        help_text=(
            "Number of calls for replies, titles, states, preferences and cache warm-ups, and of "
            "pass-through requests from clients."
        )
    )
    failed = serializers.IntegerField(
        help_text="Number of calls that failed, or whose worker was lost."
    )
    unreported = serializers.IntegerField(
        help_text=(
            "Number of successful or stopped calls for which the provider reported no usage. The "
            "token sums exclude them."
        )
    )
    input_tokens = serializers.IntegerField(
        source="input", help_text="Number of input tokens in the calls, including cached ones."
    )
    cached_tokens = serializers.IntegerField(
        source="cached",
        help_text=(
            "Number of input tokens read from the provider's cache, which `input_tokens` includes."
        ),
    )
    output_tokens = serializers.IntegerField(
        source="output", help_text="Number of output tokens in the calls."
    )
    summaries = serializers.IntegerField(
        help_text="Number of summaries written by a model, which `calls` excludes."
    )
    summaries_unreported = serializers.IntegerField(
        help_text=(
            "Number of summaries whose provider reported no usage. The token sums exclude them."
        )
    )
    summary_input_tokens = serializers.IntegerField(
        source="summary_input", help_text="Number of input tokens in the summary calls."
    )
    summary_output_tokens = serializers.IntegerField(
        source="summary_output", help_text="Number of output tokens in the summary calls."
    )
    summary_cost = serializers.DecimalField(
        max_digits=20,
        decimal_places=8,
        allow_null=True,
        help_text=(
            "Cost of the summaries. Null: a model has no price, a provider reported no "
            "usage, or the prices use several currencies."
        ),
    )
    summary_currency = serializers.CharField(
        source="currency",
        help_text=(
            "Currency of `summary_cost`. Empty if `summary_cost` is null or the price has no "
            "currency."
        ),
    )


class QuotaOut(serializers.Serializer[object]):
    """A limit of the policy for your new chats. At the limit, new messages are refused with 402
    `quota_exceeded`.
    """

    name = serializers.CharField(
        help_text="Policy field: `tokens_per_day`, `tokens_per_month` or `cost_per_month`."
    )
    used = serializers.DecimalField(
        max_digits=24,
        decimal_places=10,
        help_text=(
            "Tokens or cost that count towards the limit. Calls in progress are not included. "
            "Calls of erased chats are."
        ),
    )
    limit = serializers.IntegerField(help_text="The limit, in tokens or in `currency`.")
    currency = serializers.CharField(help_text="Currency of a cost. Empty for tokens.")
    resets_on = serializers.DateField(help_text="Day on which `used` becomes 0, at 00:00 UTC.")


class UsageOut(serializers.Serializer[object]):
    """Usage in a time range, with one row per group, ordered by group.

    Deleted and erased chats are not counted in the rows.
    """

    since = serializers.DateTimeField(help_text="Start of the range, inclusive.")
    until = serializers.DateTimeField(help_text="End of the range, exclusive.")
    quotas = QuotaOut(many=True, help_text="The limits of your policy. Empty: none.")
    data = UsageRowOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class UsageViewSet(Endpoint):
    """The usage of models in the user's chats."""

    serializer_class = UsageOut

    @extend_schema(operation_id="usage", summary="Get your usage", parameters=[UsageQuery])
    def retrieve(self, request: Request) -> Response:
        """Get your calls, tokens and summaries, by day, model, purpose or API key.

        Raises `ValidationError` if the range is longer than 366 days or ends before it starts.
        """
        query = UsageQuery.read(request.query_params.dict())
        since, until = query["since"], query["until"]
        overview = load_usage_overview(
            user=self.user, since=since, until=until, by=query["by"], now=timezone.now()
        )
        return Response(
            {
                "since": since,
                "until": until,
                "quotas": serialize_rows(QuotaOut, overview.quotas),
                "data": serialize_rows(UsageRowOut, overview.rows),
            }
        )

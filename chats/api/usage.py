"""The usage of models in one's own chats, by day, model, purpose or key."""

from datetime import timedelta
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.errors import InvalidField
from chats.api.inputs import Strict
from chats.api.outputs import items
from chats.api.schema import READ_ERRORS, answers
from chats.record.usage import GROUPS, used

# Without a beginning, and at most.
USUAL, LONGEST = timedelta(days=30), timedelta(days=366)


class UsageQuery(Strict):
    """The time, and in what the calls are told apart."""

    since = serializers.DateTimeField(
        required=False, help_text="From this moment on; without it the 30 days before `until`."
    )
    until = serializers.DateTimeField(required=False, help_text="Before this moment; absent: now.")
    by = serializers.ChoiceField(
        choices=list(GROUPS),
        default="day",
        help_text="`day` of UTC, `model`, `purpose`, or the name of the `key`; empty for calls "
        "without one.",
    )


class UsedOut(serializers.Serializer[object]):
    """The calls of one day, model, purpose or key. Tokens are those that providers reported."""

    group = serializers.CharField()
    calls = serializers.IntegerField(
        help_text="For replies, titles, states, preferences and warm-ups, and those that programs "
        "had passed on."
    )
    failed = serializers.IntegerField(help_text="Of these calls.")
    input_tokens = serializers.IntegerField(source="input")
    cached_tokens = serializers.IntegerField(source="cached", help_text="Of the input.")
    output_tokens = serializers.IntegerField(source="output")
    summaries = serializers.IntegerField(help_text="Written by a model, and no `calls`.")
    summary_input_tokens = serializers.IntegerField(source="summary_input")
    summary_output_tokens = serializers.IntegerField(source="summary_output")
    summary_cost = serializers.DecimalField(
        max_digits=20,
        decimal_places=8,
        allow_null=True,
        help_text="Null where one of the models has no price, or they have several currencies.",
    )
    summary_currency = serializers.CharField(
        source="currency", help_text="Of `summary_cost`; empty where no price names one."
    )


class UsageOut(serializers.Serializer[object]):
    """The calls of a time; those in chats that were erased or deleted have left it."""

    since = serializers.DateTimeField()
    until = serializers.DateTimeField()
    data = UsedOut(many=True)  # type: ignore[assignment]  # the base has another


class UsageByGroup(Endpoint):
    """The calls in one's own chats."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="usage",
        parameters=[UsageQuery],
        responses=answers({200: UsageOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """Add up tokens and summaries by day, model or key. Raises `InvalidField`."""
        query = UsageQuery.read(request.query_params.dict())
        until = query.get("until") or timezone.now()
        since = query.get("since") or until - USUAL
        if not timedelta() < until - since <= LONGEST:
            problem = "It has to be before `until`, by 366 days at most."
            raise InvalidField(code="invalid_value", param="since", problem=problem)
        rows = used(owner=person(request), since=since, until=until, by=query["by"])
        return Response({"since": since, "until": until, "data": items(UsedOut, rows)})

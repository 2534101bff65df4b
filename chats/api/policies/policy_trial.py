"""Trial summaries under an unsaved policy, written by the real model."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint, get_request_key, get_request_user
from chats.api.core.inputs import PreviewRequest
from chats.api.core.money import MoneyOut, serialize_money
from chats.api.core.outputs import ErrorBody, serialize_row
from chats.api.core.schema import add_error_responses
from chats.api.policies.policy_access import CHANGE, PolicyNotChanged, require_permissions
from chats.api.policies.policy_inputs import validate_storable_texts
from chats.api.policies.policy_preview import parse_proposal
from chats.people import keys
from chats.record import access
from chats.simulation import trial
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.publish import PolicyProblems


class TrialOut(serializers.Serializer[Any]):
    """A trial summary with its cost. It is not stored."""

    model = serializers.CharField()
    text = serializers.CharField()
    reasons = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Codes of the reasons for which the summary would be rejected. Empty: it would be "
            "accepted."
        ),
    )
    messages = serializers.IntegerField(help_text="Number of messages that the summary covers.")
    replaced = serializers.IntegerField(
        help_text="Number of tokens of the covered messages, by the local tokenizer."
    )
    tokens = serializers.IntegerField(
        help_text="Number of tokens of the summary, by the local tokenizer."
    )
    input = serializers.IntegerField(
        allow_null=True,
        help_text="Input tokens of the call, as the provider counts them. Null: not reported.",
    )
    output = serializers.IntegerField(
        allow_null=True, help_text="Output tokens of the call. Null: not reported."
    )
    kept = serializers.IntegerField(
        help_text=(
            "Number of facts (numbers, dates, names and others) of the messages that the "
            "summary contains."
        )
    )
    lost = serializers.IntegerField(
        help_text="Number of facts of the messages that the summary does not contain."
    )
    seconds = serializers.FloatField()
    cost = MoneyOut()


class PolicyTrial(Endpoint):
    scopes: ClassVar = {"POST": "policy:write"}
    # Responses are not stored, and the model is called outside of transactions.
    knows_repetitions = True

    @extend_schema(
        operation_id="policies_trial",
        summary="Try a policy's summary",
        request=PreviewRequest,
        responses=add_error_responses({200: TrialOut, 502: ErrorBody}),
    )
    def post(self, request: Request) -> Response:
        """Write a trial summary of one of your chats under an unsaved policy.

        Makes one model call, which is billed. The audit log records the call but not the text. An
        API key needs the scope `chats:read` too. Raises `Forbidden`, `NotFound`,
        `InsufficientScope`, `PolicyNotChanged` for invalid values, and what `trial.run_trial`
        raises.
        """
        user = get_request_user(request)
        require_permissions(user, CHANGE)
        key = get_request_key(request)
        if key is not None:
            keys.require_scope(key=key, scope="chats:read")
        asked = validate_storable_texts(PreviewRequest.read(request.data))
        chat = access.get_chat(user=user, chat_id=asked["chat"])
        if problems := find_policy_errors(asked["values"], locks=asked["locks"]):
            raise PolicyNotChanged(PolicyProblems(problems))
        made = trial.run_trial(
            user=user, chat=chat, proposal=parse_proposal(asked), clock=timezone.now
        )
        return Response(serialize_row(TrialOut, serialize_trial(made)))


def serialize_trial(made: trial.Trial) -> dict[str, Any]:
    said = {name: getattr(made, name) for name in made.__slots__}
    return {**said, "cost": serialize_money(made.cost)}

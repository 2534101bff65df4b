"""Trial summaries under an unsaved policy, written by the real model."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint, get_request_key
from chats.api.core.money import MoneyOut, serialize_money
from chats.api.core.outputs import ErrorBody
from chats.api.policies.policy_access import CHANGE, PolicyNotChanged
from chats.api.policies.policy_inputs import PreviewRequest, validate_storable_texts
from chats.api.policies.policy_preview import parse_proposal
from chats.people import keys
from chats.record import access
from chats.simulation import trial
from contextpolicy.linter.errors import find_policy_errors
from contextpolicy.policy_refusals import PolicyProblems


class TrialOut(serializers.Serializer[Any]):
    """A trial summary, which is not stored, and its cost."""

    model = serializers.CharField(help_text="Display name of the model that wrote the summary.")
    text = serializers.CharField(help_text="Text of the summary.")
    reasons = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "Codes of the reasons why the summary would be rejected. Empty: it would be accepted."
        ),
    )
    messages = serializers.IntegerField(
        help_text=(
            "Number of messages that the summary covers, excluding messages of the earlier "
            "summary that it continues."
        )
    )
    replaced = serializers.IntegerField(
        help_text=(
            "Number of tokens in these messages and in the earlier summary, as counted by the "
            "local tokenizer."
        )
    )
    tokens = serializers.IntegerField(
        help_text="Number of tokens in the summary, as counted by the local tokenizer."
    )
    input = serializers.IntegerField(
        allow_null=True,
        help_text=(
            "Number of input tokens in the call, as reported by the provider. Null: not reported."
        ),
    )
    output = serializers.IntegerField(
        allow_null=True, help_text="Number of output tokens in the call. Null: not reported."
    )
    kept = serializers.IntegerField(
        help_text=(
            "Number of facts in the messages, such as numbers, dates and names, that also "
            "appear in the summary."
        )
    )
    lost = serializers.IntegerField(
        help_text="Number of facts in the messages that do not appear in the summary."
    )
    seconds = serializers.FloatField(help_text="Duration of the call in seconds.")
    cost = MoneyOut(help_text="Cost of the call.")


class TrialViewSet(Endpoint):
    serializer_class = TrialOut
    write_scope = "policy:write"
    permissions: ClassVar = {"trial": [CHANGE]}
    # Responses are not stored, and the model is called outside of transactions.
    repeatable = ("trial",)

    @extend_schema(
        operation_id="policies_trial",
        summary="Try a summary under a policy",
        request=PreviewRequest,
        responses={200: TrialOut, 502: ErrorBody},
    )
    @action(detail=False, methods=["post"])
    def trial(self, request: Request) -> Response:
        """Write a trial summary of one of your chats under an unsaved policy.

        The request makes one billed model call. If the messages do not fit into one call, only the
        oldest are summarised. The audit log records the call but not the text. An API key needs the
        scope `chats:read` too. Raises `Forbidden`, `NotFound`, `InsufficientScope`,
        `PolicyNotChanged` for invalid values, and the errors of `trial.run_trial`.
        """
        key = get_request_key(request)
        if key is not None:
            keys.require_scope(key=key, scope="chats:read")
        asked = validate_storable_texts(PreviewRequest.read(request.data))
        chat = access.get_chat(user=self.user, chat_id=asked["chat"])
        if problems := find_policy_errors(asked["values"], locks=asked["locks"]):
            raise PolicyNotChanged(PolicyProblems(problems))
        made = trial.run_trial(
            user=self.user, chat=chat, proposal=parse_proposal(asked), clock=timezone.now
        )
        return self.respond(serialize_trial(made))


def serialize_trial(made: trial.Trial) -> dict[str, Any]:
    said = {name: getattr(made, name) for name in made.__slots__}
    return {**said, "cost": serialize_money(made.cost)}

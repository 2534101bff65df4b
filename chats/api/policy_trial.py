"""One summary written for real, under a policy that nobody saved."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, key_of, person
from chats.api.inputs import PreviewRequest
from chats.api.money import MoneyOut, money_json
from chats.api.outputs import ErrorBody, one
from chats.api.policy_access import CHANGE, PolicyNotChanged, require
from chats.api.policy_inputs import storable
from chats.api.policy_preview import proposal_of
from chats.api.schema import answers
from chats.people import keys
from chats.record import access
from chats.simulation import trial
from contextpolicy.linter.errors import check
from contextpolicy.publish import PolicyProblems


class TrialOut(serializers.Serializer[Any]):
    """A summary that was written for real and is kept nowhere."""

    model = serializers.CharField()
    text = serializers.CharField()
    reasons = serializers.ListField(
        child=serializers.CharField(), help_text="Why it would be rejected. Empty: it would not."
    )
    messages = serializers.IntegerField(help_text="That it stands for.")
    replaced = serializers.IntegerField(help_text="Their tokens, in our count.")
    tokens = serializers.IntegerField(help_text="Its own.")
    input = serializers.IntegerField(help_text="Of the call, as the provider counts.")
    output = serializers.IntegerField()
    kept = serializers.IntegerField(help_text="Facts of the messages that it has.")
    lost = serializers.IntegerField(help_text="Facts that it has not.")
    seconds = serializers.FloatField()
    cost = MoneyOut()


class PolicyTrial(Endpoint):
    """The summariser, run once for real."""

    scopes: ClassVar = {"POST": "policy:write"}
    # No answer of it is kept, and the call is made outside of transactions.
    knows_repetitions = True

    @extend_schema(
        operation_id="policies_trial",
        request=PreviewRequest,
        responses=answers({200: TrialOut, 502: ErrorBody}),
    )
    def post(self, request: Request) -> Response:
        """Have one summary of a chat of one's own written, under a policy as it is written.

        One call is made and paid for; its account is in the ledger, its text nowhere but here. A
        key needs the scope `chats:read` too. Raises `Forbidden`, `NotFound`, `InsufficientScope`,
        `PolicyNotChanged` for values that cannot work, and what `trial.run` raises.
        """
        user = person(request)
        require(user, CHANGE)
        key = key_of(request)
        if key is not None:
            keys.require_scope(key=key, scope="chats:read")
        asked = storable(PreviewRequest.read(request.data))
        chat = access.chat_for(user=user, chat_id=asked["chat"])
        if problems := check(asked["values"], locks=asked["locks"]):
            raise PolicyNotChanged(PolicyProblems(problems))
        made = trial.run(user=user, chat=chat, proposal=proposal_of(asked), clock=timezone.now)
        return Response(one(TrialOut, told(made)))


def told(made: trial.Trial) -> dict[str, Any]:
    """Return a trial as it is written down."""
    said = {name: getattr(made, name) for name in made.__slots__}
    return {**said, "cost": money_json(made.cost)}

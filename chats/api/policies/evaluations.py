"""Shadow evaluations: compare a draft with the active version on real replies."""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery, PlainText, Strict, WholeNumber
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.policies.policy_access import CHANGE, find_policy, translate_policy_errors
from chats.api.policies.policy_inputs import Activation, validate_storable_texts
from chats.ground.refusals import NotFound
from chats.simulation import evaluating
from chats.simulation.evaluated import EvaluationResults, load_evaluation_results
from chats.simulation.evaluating import DAYS, MOST_DAYS
from contextpolicy.models import BlastRadius, EvaluatedTurn, Evaluation

SEE = "contextpolicy.view_evaluation"
ROWS = Evaluation.objects.select_related("policy", "version")


class NewEvaluation(Strict):
    """The draft to evaluate, the chats to include, and the duration."""

    policy = PlainText(help_text="Slug of the policy.")
    version = WholeNumber(
        help_text="Version number of the draft, which must be the policy's newest version."
    )
    place = serializers.ChoiceField(
        choices=BlastRadius.APPLIED,
        default="assigned",
        help_text=(
            "`instance`: as if the policy applied to everyone. `assigned`: only where it is "
            "assigned now."
        ),
    )
    days = WholeNumber(
        min_value=1,
        max_value=MOST_DAYS,
        default=DAYS,
        help_text="Duration in days, 1 to 30. Default: 7.",
    )
    share = WholeNumber(
        min_value=1,
        max_value=100,
        default=100,
        help_text="Percentage of branches whose replies are evaluated, 1 to 100. Default: 100.",
    )


class EvaluationCountsOut(serializers.Serializer[Any]):
    """The effect of a draft on replies, counted over an evaluation or a day of it."""

    judged = serializers.IntegerField(
        help_text="Number of replies whose prompt was compared with the prompt under the draft."
    )
    changed = serializers.IntegerField(
        help_text=(
            "Number of replies that the draft would change: those with a different prompt, and "
            "those that it would refuse."
        )
    )
    would_refuse = serializers.IntegerField(
        help_text="Number of replies that the draft would refuse."
    )
    compactions_now = serializers.IntegerField(
        help_text="Number of compactions under the active version."
    )
    compactions_then = serializers.IntegerField(
        help_text="Estimated number of compactions under the draft."
    )
    tokens_now = serializers.IntegerField(
        help_text=(
            "Number of prompt tokens under the active version, as counted by the local tokenizer."
        )
    )
    tokens_then = serializers.IntegerField(
        help_text=(
            "Estimated number of prompt tokens under the draft, as counted by the local tokenizer."
        )
    )


class EvaluationOut(EvaluationCountsOut):
    """A shadow evaluation with its totals so far."""

    id = serializers.UUIDField()
    policy = serializers.CharField(source="policy.slug", help_text="Slug of the policy.")
    version = serializers.IntegerField(
        source="version.number", help_text="Version number of the evaluated draft."
    )
    base = serializers.IntegerField(
        help_text="Active version number of the policy at the start. 0: none."
    )
    place = serializers.ChoiceField(
        choices=BlastRadius.APPLIED,
        help_text=(
            "`instance`: as if the policy applied to everyone. `assigned`: only where it is "
            "assigned."
        ),
    )
    share = serializers.IntegerField(
        help_text="Percentage of branches whose replies are evaluated."
    )
    state = serializers.ChoiceField(
        choices=Evaluation.State.choices,
        help_text="`open` (running), `ended` or `promoted` (the draft was published).",
    )
    reason = serializers.CharField(
        allow_blank=True,
        help_text=(
            "`time` (completed), `person` (ended by a user), `promoted` (published) or "
            "`other_version` (another draft is evaluated, or another version was published). "
            "Empty: still open."
        ),
    )
    started_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField(
        help_text="Time at which the evaluation is scheduled to end."
    )
    ended_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the evaluation ended. Null: still open."
    )
    turns = serializers.IntegerField(
        help_text="Number of replies on the evaluated branches so far."
    )
    unknown = serializers.IntegerField(help_text="Number of replies that could not be evaluated.")


class UnknownOut(serializers.Serializer[Mapping[str, Any]]):
    """A reason why replies could not be evaluated, such as `team` or `erased`."""

    reason = serializers.CharField(help_text="Code of the reason.")
    turns = serializers.IntegerField(help_text="Number of replies.")


class EvaluationDayOut(EvaluationCountsOut):
    """The totals of a shadow evaluation for one day (UTC)."""

    day = serializers.DateField(help_text="Day (UTC).")
    turns = serializers.IntegerField(help_text="Number of replies on that day.")


class EvaluatedTurnOut(serializers.Serializer[EvaluatedTurn]):
    """A reply whose prompt would change under the draft, or that the draft would refuse."""

    turn = serializers.UUIDField(source="turn_id", help_text="Id of the turn.")
    outcome = serializers.ChoiceField(
        choices=EvaluatedTurn.Outcome.choices,
        help_text=(
            "`changed` (the prompt would differ) or `refused` (the draft would refuse the reply)."
        ),
    )
    reason = serializers.CharField(
        allow_blank=True,
        help_text="Code of the error under the draft. Empty: no error.",
    )
    tokens_now = serializers.IntegerField(
        help_text=(
            "Number of prompt tokens under the active version, as counted by the local tokenizer."
        )
    )
    tokens_then = serializers.IntegerField(
        help_text="Number of prompt tokens under the draft, as counted by the local tokenizer."
    )
    full_now = serializers.IntegerField(
        help_text="Number of messages sent in full under the active version."
    )
    full_then = serializers.IntegerField(
        help_text="Number of messages that the draft would send in full."
    )


class EvaluationDetailOut(EvaluationOut):
    """A shadow evaluation with reasons, daily totals, and the replies that would change most."""

    reasons = UnknownOut(
        many=True,
        help_text="Reasons why replies could not be evaluated, each with the number of replies.",
    )
    days = EvaluationDayOut(many=True, help_text="Totals by day.")
    worst = EvaluatedTurnOut(
        many=True,
        help_text=(
            "Up to 10 replies: first replies that the draft would refuse, then replies whose "
            "prompts would change most."
        ),
    )


class EvaluationViewSet(Endpoint):
    serializer_class = EvaluationDetailOut
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {
        "list": [SEE],
        "create": [CHANGE],
        "retrieve": [SEE],
        "end": [CHANGE],
        "promote": [CHANGE],
    }
    # If the draft is already being evaluated, POST returns that evaluation.
    repeatable = ("create",)
    lookup_url_kwarg = "evaluation_id"

    @extend_schema(
        summary="List shadow evaluations",
        parameters=[PageQuery],
        responses=build_page_serializer(EvaluationOut),
    )
    def list(self, request: Request) -> Response:
        """List the shadow evaluations, newest first, including ended ones."""
        return self.respond_page(
            ROWS.all(), order=("-started_at", "-id"), name="evaluations", kind=EvaluationOut
        )

    @extend_schema(
        operation_id="evaluations_begin",
        summary="Start a shadow evaluation",
        request=NewEvaluation,
        responses={202: EvaluationOut},
    )
    def create(self, request: Request) -> Response:
        """Evaluate a draft on each reply for several days, in the background.

        Prompts do not change. If the draft is already being evaluated, that evaluation is returned
        unchanged; an open evaluation of an earlier draft of the policy ends. Returns 409
        `nothing_to_evaluate` unless the version is a draft and the newest version, and 409
        `too_many_evaluations` while three other evaluations are running.
        """
        asked = validate_storable_texts(NewEvaluation.read(request.data))
        policy = find_policy(asked["policy"])
        with translate_policy_errors():
            row = evaluating.start_evaluation(
                policy=policy,
                number=asked["version"],
                place=asked["place"],
                days=asked["days"],
                share=asked["share"],
                actor=self.actor,
                now=timezone.now(),
            )
        return Response(serialize_row(EvaluationOut, row), status=202)

    @extend_schema(summary="Get a shadow evaluation")
    def retrieve(self, request: Request, evaluation_id: uuid.UUID) -> Response:
        """Get a shadow evaluation with its results by day and reason. Raises `NotFound`."""
        return Response(retrieve_evaluation(evaluation_id))

    @extend_schema(summary="End a shadow evaluation")
    @action(detail=True, methods=["post"])
    def end(self, request: Request, evaluation_id: uuid.UUID) -> Response:
        """End a shadow evaluation early. Its results stay available."""
        EmptyBody.read(request.data)
        evaluating.end_evaluation_early(
            evaluation_id=evaluation_id, actor=self.actor, now=timezone.now()
        )
        return Response(retrieve_evaluation(evaluation_id))

    @extend_schema(summary="Publish the evaluated version", request=Activation)
    @action(detail=True, methods=["post"])
    def promote(self, request: Request, evaluation_id: uuid.UUID) -> Response:
        """Publish the evaluated version, and end its evaluation.

        The checks of the operation `policies_versions_activate` apply.
        """
        asked = validate_storable_texts(Activation.read(request.data))
        with translate_policy_errors():
            evaluating.promote_evaluation(
                evaluation_id=evaluation_id,
                actor=self.actor,
                now=timezone.now(),
                emergency=asked["emergency"],
            )
        return Response(retrieve_evaluation(evaluation_id))


def retrieve_evaluation(evaluation_id: uuid.UUID) -> dict[str, Any]:
    """Return an evaluation with its results. Raises `NotFound`."""
    row = ROWS.filter(pk=evaluation_id).first()
    if row is None:
        raise NotFound
    found: EvaluationResults = load_evaluation_results(row)
    reasons = [{"reason": reason, "turns": count} for reason, count in found.unknown]
    more = {
        "reasons": serialize_rows(UnknownOut, reasons),
        "days": serialize_rows(EvaluationDayOut, found.days),
        "worst": serialize_rows(EvaluatedTurnOut, found.worst),
    }
    return {**serialize_row(EvaluationOut, row), **more}

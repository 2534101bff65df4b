"""Evaluations: drafts that judge replies beside the version in force."""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Nothing, PageQuery, PlainText, Strict, WholeNumber
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import CHANGE, policy_for, require, told
from chats.api.policy_inputs import Activation, storable
from chats.api.schema import READ_ERRORS, answers
from chats.ground.refusals import NotFound
from chats.simulation import evaluating
from chats.simulation.evaluated import Day, EvaluationFindings, found_by
from chats.simulation.evaluating import DAYS, MOST_DAYS
from contextpolicy.models import BlastRadius, EvaluatedTurn, Evaluation

SEE = "view_evaluation"
ROWS = Evaluation.objects.select_related("policy", "version")


class NewEvaluation(Strict):
    """The draft that is to judge replies."""

    policy = PlainText(help_text="Its slug.")
    version = WholeNumber(help_text="The number of its newest version, a draft.")
    place = serializers.ChoiceField(
        choices=BlastRadius.Place.choices,
        default="assigned",
        help_text="As if everybody had it, or only where the policy is assigned.",
    )
    days = serializers.IntegerField(min_value=1, max_value=MOST_DAYS, default=DAYS)
    share = serializers.IntegerField(
        min_value=1, max_value=100, default=100, help_text="In percent of the branches."
    )


class EvaluationOut(serializers.Serializer[Evaluation]):
    """An evaluation with its totals; tokens and compactions of the draft are estimates."""

    id = serializers.UUIDField()
    policy = serializers.CharField(source="policy.slug")
    version = serializers.IntegerField(source="version.number")
    base = serializers.IntegerField(help_text="The version in force when it began; 0: none.")
    place = serializers.ChoiceField(choices=BlastRadius.Place.choices)
    share = serializers.IntegerField()
    state = serializers.ChoiceField(choices=Evaluation.State.choices)
    reason = serializers.CharField(allow_blank=True, help_text="Why it is over.")
    started_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    turns = serializers.IntegerField(help_text="Replies that it looked at.")
    judged = serializers.IntegerField(help_text="Of these, those that it could judge.")
    unknown = serializers.IntegerField()
    changed = serializers.IntegerField(help_text="Prompts with other content, or refused.")
    would_refuse = serializers.IntegerField()
    compactions_now = serializers.IntegerField()
    compactions_then = serializers.IntegerField()
    tokens_now = serializers.IntegerField()
    tokens_then = serializers.IntegerField()


class UnknownOut(serializers.Serializer[Mapping[str, Any]]):
    """A reason why replies could not be judged, and their number."""

    reason = serializers.CharField()
    turns = serializers.IntegerField()


class EvaluationDayOut(serializers.Serializer[Day]):
    """The replies of one day."""

    day = serializers.DateField()
    turns = serializers.IntegerField()
    judged = serializers.IntegerField()
    changed = serializers.IntegerField()
    would_refuse = serializers.IntegerField()
    compactions_now = serializers.IntegerField()
    compactions_then = serializers.IntegerField()
    tokens_now = serializers.IntegerField()
    tokens_then = serializers.IntegerField()


class EvaluatedTurnOut(serializers.Serializer[EvaluatedTurn]):
    """A reply that would change."""

    turn = serializers.UUIDField(source="turn_id")
    outcome = serializers.ChoiceField(choices=EvaluatedTurn.Outcome.choices)
    reason = serializers.CharField(allow_blank=True, help_text="The code of a refusal.")
    tokens_now = serializers.IntegerField()
    tokens_then = serializers.IntegerField()
    full_now = serializers.IntegerField()
    full_then = serializers.IntegerField()


class OneEvaluationOut(EvaluationOut):
    """An evaluation with its reasons, its days, and the replies that change most."""

    reasons = UnknownOut(many=True)
    days = EvaluationDayOut(many=True)
    worst = EvaluatedTurnOut(many=True)


class Evaluations(Endpoint):
    """The evaluations."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}
    # While a draft is evaluated, a repetition gets that evaluation.
    knows_repetitions = True

    @extend_schema(
        operation_id="evaluations_list",
        parameters=[PageQuery],
        responses=answers({200: listed(EvaluationOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the evaluations, newest first."""
        require(person(request), SEE)
        query = PageQuery.read(request.query_params.dict())
        page = page_of(ROWS.all(), order=("-started_at", "-id"), name="evaluations", **query)
        data = items(EvaluationOut, page.rows)
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="evaluations_begin",
        request=NewEvaluation,
        responses=answers({202: EvaluationOut}),
    )
    def post(self, request: Request) -> Response:
        """Have a draft judge each reply for some days, in the background; no prompt changes.

        409 `nothing_to_evaluate` for what is no newest draft, `too_many_evaluations` while three
        others are under way.
        """
        user = person(request)
        asked = storable(NewEvaluation.read(request.data))
        policy = policy_for(user, CHANGE, slug=asked["policy"])
        with told():
            row = evaluating.begin(
                policy=policy,
                number=asked["version"],
                place=asked["place"],
                days=asked["days"],
                share=asked["share"],
                actor=f"user:{user.pk}",
                now=timezone.now(),
            )
        return Response(one(EvaluationOut, row), status=202)


class OneEvaluation(Endpoint):
    """One evaluation."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="evaluations_get",
        responses=answers({200: OneEvaluationOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, evaluation_id: uuid.UUID) -> Response:
        """Read how much it could judge, and how both versions compare. Raises `NotFound`."""
        require(person(request), SEE)
        return Response(shown(evaluation_id))


class EndEvaluation(Endpoint):
    """The end of an evaluation."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(
        operation_id="evaluations_end", request=None, responses=answers({200: OneEvaluationOut})
    )
    def post(self, request: Request, evaluation_id: uuid.UUID) -> Response:
        """End it before its time. 409 `evaluation_over`."""
        user = person(request)
        require(user, CHANGE)
        Nothing.read(request.data)
        evaluating.end(evaluation_id=evaluation_id, actor=f"user:{user.pk}", now=timezone.now())
        return Response(shown(evaluation_id))


class PromoteEvaluation(Endpoint):
    """The way of an evaluated version into force."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(
        operation_id="evaluations_promote",
        request=Activation,
        responses=answers({200: OneEvaluationOut}),
    )
    def post(self, request: Request, evaluation_id: uuid.UUID) -> Response:
        """Put the evaluated version in force, as an activation does, and end its evaluation."""
        user = person(request)
        require(user, CHANGE)
        asked = storable(Activation.read(request.data))
        with told():
            evaluating.promote(
                evaluation_id=evaluation_id,
                actor=f"user:{user.pk}",
                now=timezone.now(),
                emergency=asked["emergency"],
            )
        return Response(shown(evaluation_id))


def shown(evaluation_id: uuid.UUID) -> dict[str, Any]:
    """Return an evaluation with what it found. Raises `NotFound`."""
    row = ROWS.filter(pk=evaluation_id).first()
    if row is None:
        raise NotFound
    found: EvaluationFindings = found_by(row)
    reasons = [{"reason": reason, "turns": count} for reason, count in found.unknown]
    more = {
        "reasons": items(UnknownOut, reasons),
        "days": items(EvaluationDayOut, found.days),
        "worst": items(EvaluatedTurnOut, found.worst),
    }
    return {**one(EvaluationOut, row), **more}

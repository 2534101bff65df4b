"""Blast radii: counts of the chats that a policy as it is written would change."""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.auth.models import Group
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Nothing, PageQuery, PlainText, Strict
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import CHANGE, policy_for, require, told
from chats.api.policy_assignments import unfit
from chats.api.policy_inputs import MOST_LOCKS, storable
from chats.api.schema import READ_ERRORS, answers
from chats.ground.refusals import NotFound
from chats.simulation import radius
from contextpolicy.models import BlastRadius

SEE = "view_blastradius"
ROWS = BlastRadius.objects.select_related("policy", "group")


class NewRadius(Strict):
    """The content of a policy whose chats are to be counted."""

    policy = PlainText(help_text="The slug of the policy that it would be the next version of.")
    values = serializers.DictField(default=dict, help_text="The fields that it sets, by name.")
    locks = serializers.ListField(child=PlainText(), default=list, max_length=MOST_LOCKS)
    place = serializers.ChoiceField(
        choices=BlastRadius.Place.choices,
        required=False,
        help_text="To everybody, or (by default) only where it is assigned today.",
    )
    group = PlainText(
        default="",
        help_text="A name: the chats of its members are counted, as if the policy were assigned to"
        " this group. Leave `place` out then.",
    )


class WorstChatOut(serializers.Serializer[Mapping[str, Any]]):
    """A chat that would change most: numbers, as the provider counts tokens."""

    chat = serializers.UUIDField()
    refuses = serializers.BooleanField()
    code = serializers.CharField(allow_blank=True, help_text="Of the refusal.")
    now = serializers.IntegerField(help_text="Tokens of the next prompt under the policy in force.")
    proposed = serializers.IntegerField()
    full_now = serializers.IntegerField(help_text="Messages that are sent in full.")
    full_proposed = serializers.IntegerField()


class RadiusOut(serializers.Serializer[BlastRadius]):
    """A count: how far it is, and what it found so far."""

    id = serializers.UUIDField()
    policy = serializers.CharField(source="policy.slug")
    digest = serializers.CharField(help_text="Names the content that is counted.")
    base = serializers.IntegerField(help_text="The version in force when it began; 0: none.")
    place = serializers.ChoiceField(choices=BlastRadius.Place.choices)
    group = serializers.CharField(
        source="group.name",
        default=None,
        allow_null=True,
        help_text="Null: not of a group alone.",
    )
    state = serializers.ChoiceField(choices=BlastRadius.State.choices)
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    in_use = serializers.IntegerField(help_text="Chats in use when it began.")
    judged = serializers.IntegerField()
    changed = serializers.IntegerField()
    would_refuse = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="Could not be judged; the log tells why.")
    sampled = serializers.IntegerField(allow_null=True)
    low = serializers.FloatField(allow_null=True, help_text="Of the share, by the sample.")
    high = serializers.FloatField(allow_null=True)
    worst = WorstChatOut(many=True)


class Radii(Endpoint):
    """The counts."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}
    # While the same content is counted, a repetition gets that count.
    knows_repetitions = True

    @extend_schema(
        operation_id="radii_list",
        parameters=[PageQuery],
        responses=answers({200: listed(RadiusOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the counts, newest first."""
        require(person(request), SEE)
        query = PageQuery.read(request.query_params.dict())
        page = page_of(ROWS.all(), order=("-started_at", "-id"), name="radii", **query)
        return Response({"data": items(RadiusOut, page.rows), "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="radii_begin", request=NewRadius, responses=answers({202: RadiusOut})
    )
    def post(self, request: Request) -> Response:
        """Count in the background how many chats in use the content would change.

        The same content that is being counted, or whose count was stopped, is gone on with; other
        content ends the policy's open count. Where the instance asks for it, a version that governs
        people comes into force only after such a count.
        """
        user = person(request)
        asked = storable(NewRadius.read(request.data))
        policy = policy_for(user, CHANGE, slug=asked["policy"])
        with told():
            row = radius.begin(
                policy=policy,
                values=asked["values"],
                locks=asked["locks"],
                **place_of(asked),
                actor=f"user:{user.pk}",
                now=timezone.now(),
            )
        return Response(one(RadiusOut, row), status=202)


class OneRadius(Endpoint):
    """One count."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="radii_get", responses=answers({200: RadiusOut}, errors=READ_ERRORS)
    )
    def get(self, request: Request, radius_id: uuid.UUID) -> Response:
        """Read how far the count is and what it found. Raises `NotFound`."""
        require(person(request), SEE)
        return Response(one(RadiusOut, row_of(radius_id)))


class StopRadius(Endpoint):
    """The stop of a count."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(operation_id="radii_stop", request=None, responses=answers({200: RadiusOut}))
    def post(self, request: Request, radius_id: uuid.UUID) -> Response:
        """Stop the count at its place; one that is stopped stays so. 409 `radius_over`."""
        user = person(request)
        require(user, CHANGE)
        Nothing.read(request.data)
        radius.stop(radius_id=radius_id, actor=f"user:{user.pk}", now=timezone.now())
        return Response(one(RadiusOut, row_of(radius_id)))


class ResumeRadius(Endpoint):
    """The resumption of a count."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(operation_id="radii_resume", request=None, responses=answers({200: RadiusOut}))
    def post(self, request: Request, radius_id: uuid.UUID) -> Response:
        """Go on with a stopped count behind its place. 409 `radius_over`."""
        user = person(request)
        require(user, CHANGE)
        Nothing.read(request.data)
        radius.resume(radius_id=radius_id, actor=f"user:{user.pk}", now=timezone.now())
        return Response(one(RadiusOut, row_of(radius_id)))


def place_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return where the policy would apply. Raises `InvalidField`."""
    if not asked["group"]:
        return {"place": asked.get("place", BlastRadius.Place.ASSIGNED)}
    if "place" in asked:
        raise unfit("place", "A count of a group has no other place. Leave it out.")
    group = Group.objects.filter(name=asked["group"]).first()
    if group is None:
        raise unfit("group", "There is no group of this name.")
    return {"place": BlastRadius.Place.INSTANCE, "group": group}


def row_of(radius_id: uuid.UUID) -> BlastRadius:
    """Return the count of that id. Raises `NotFound`."""
    row = ROWS.filter(pk=radius_id).first()
    if row is None:
        raise NotFound
    return row

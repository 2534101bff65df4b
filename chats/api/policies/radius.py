"""Counts of the chats that an unsaved policy would change."""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.auth.models import Group
from django.utils import timezone
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery, PlainText, Strict
from chats.api.core.outputs import build_page_serializer
from chats.api.policies.policy_access import CHANGE, find_policy, translate_policy_errors
from chats.api.policies.policy_assignments import build_field_error
from chats.api.policies.policy_inputs import MOST_LOCKS, validate_storable_texts
from chats.ground.refusals import NotFound
from chats.simulation import radius
from contextpolicy.models import BlastRadius

SEE = "contextpolicy.view_blastradius"
ROWS = BlastRadius.objects.select_related("policy", "group")


class NewRadius(Strict):
    """Unsaved values of a policy for which the affected chats are counted."""

    policy = PlainText(
        help_text="Slug of an existing policy, whose next version would have these values."
    )
    values = serializers.DictField(
        default=dict,
        help_text="Values of the policy by field name. Fields that are left out are not set.",
    )
    locks = serializers.ListField(
        child=PlainText(),
        default=list,
        max_length=MOST_LOCKS,
        help_text="Names of fields that policies of more specific levels cannot override.",
    )
    place = serializers.ChoiceField(
        choices=BlastRadius.Place.choices,
        required=False,
        help_text=(
            "`instance`: as if the policy applied to everyone; `assigned` (default): only "
            "current assignments; `removed`: as if the active version applied nowhere, so "
            "`values` and `locks` are ignored."
        ),
    )
    group = PlainText(
        default="",
        help_text=(
            "Name of a group. Counts the chats of its members as if the policy were assigned "
            "to the group; with `place: removed`, as if it were not. Empty: all users."
        ),
    )


class WorstChatOut(serializers.Serializer[Mapping[str, Any]]):
    """One of the 10 chats with the largest changes."""

    chat = serializers.UUIDField(help_text="Id of the chat.")
    refuses = serializers.BooleanField(
        help_text=(
            "True: the next message of the chat would be refused, although the active policy "
            "accepts it."
        )
    )
    code = serializers.CharField(
        allow_blank=True,
        help_text="Error code if the next message would be refused. Empty: it would be accepted.",
    )
    now = serializers.IntegerField(
        help_text=(
            "Number of tokens in the next prompt under the active policy, as counted by the "
            "provider."
        )
    )
    proposed = serializers.IntegerField(
        help_text=(
            "Number of tokens in the next prompt under the unsaved policy, as counted by the "
            "provider."
        )
    )
    full_now = serializers.IntegerField(
        help_text="Number of messages that the next prompt contains in full, under the active "
        "policy."
    )
    full_proposed = serializers.IntegerField(
        help_text="Number of messages that the next prompt contains in full, under the unsaved "
        "policy."
    )


class RadiusOut(serializers.Serializer[BlastRadius]):
    """A count of affected chats: its progress and the results so far."""

    id = serializers.UUIDField()
    policy = serializers.CharField(source="policy.slug", help_text="Slug of the policy.")
    digest = serializers.CharField(help_text="SHA-256 of the counted values and locks.")
    base = serializers.IntegerField(
        help_text="Active version number of the policy at the start. 0: none."
    )
    place = serializers.ChoiceField(
        choices=BlastRadius.Place.choices, help_text="Where the values would apply, as requested."
    )
    group = serializers.CharField(
        source="group.name",
        default=None,
        allow_null=True,
        help_text="Name of the group whose chats are counted. Null: all users.",
    )
    state = serializers.ChoiceField(
        choices=BlastRadius.State.choices,
        help_text=(
            "`counting`, `stopped` (can be resumed), `finished` or `void` (other values "
            "were counted, or another version was published)."
        ),
    )
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the count finished. Null: it has not finished, or is void.",
    )
    in_use = serializers.IntegerField(
        help_text=(
            "Number of chats without a team that were used in the last 90 days, when the "
            "count started."
        )
    )
    judged = serializers.IntegerField(help_text="Number of chats checked so far.")
    changed = serializers.IntegerField(
        help_text="Number of checked chats whose next prompt would change."
    )
    would_refuse = serializers.IntegerField(
        help_text=(
            "Number of checked chats whose next message would be refused, although the active "
            "policy accepts it."
        )
    )
    failed = serializers.IntegerField(
        help_text="Number of chats skipped because of an error. The server log gives the details."
    )
    sampled = serializers.IntegerField(
        allow_null=True,
        help_text="Number of chats in the random sample that is taken first. Null: no sample yet.",
    )
    low = serializers.FloatField(
        allow_null=True,
        help_text=(
            "Lower 95% confidence bound of the share of affected chats, 0 to 1. Null: no "
            "sample yet."
        ),
    )
    high = serializers.FloatField(
        allow_null=True,
        help_text=(
            "Upper 95% confidence bound of the share of affected chats, 0 to 1. Null: no "
            "sample yet."
        ),
    )
    worst = WorstChatOut(many=True, help_text="Up to 10 checked chats with the largest changes.")


class RadiusViewSet(Endpoint):
    serializer_class = RadiusOut
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {
        "list": [SEE],
        "create": [CHANGE],
        "retrieve": [SEE],
        "stop": [CHANGE],
        "resume": [CHANGE],
    }
    # If the same values are already being counted, POST returns that count.
    repeatable = ("create",)
    lookup_url_kwarg = "radius_id"

    @extend_schema(
        summary="List counts of affected chats",
        parameters=[PageQuery],
        responses=build_page_serializer(RadiusOut),
    )
    def list(self, request: Request) -> Response:
        """List the counts of affected chats, newest first, including ended ones."""
        return self.respond_page(ROWS.all(), order=("-started_at", "-id"), name="radii")

    @extend_schema(
        operation_id="radii_begin",
        summary="Count the chats affected by a policy",
        request=NewRadius,
        responses={202: RadiusOut},
    )
    def create(self, request: Request) -> Response:
        """Count in the background how many active chats a policy change would affect.

        It counts the chats without a team that were used in the last 90 days. If the policy has a
        count with the same values that is `counting` or `stopped`, that count continues. Such a
        count with other values becomes `void`. Some instances require a count before an assigned
        policy version can be published.
        """
        asked = validate_storable_texts(NewRadius.read(request.data))
        policy = find_policy(asked["policy"])
        with translate_policy_errors():
            row = radius.start_radius_count(
                policy=policy,
                values=asked["values"],
                locks=asked["locks"],
                **parse_radius_place(asked),
                actor=self.actor,
                now=timezone.now(),
            )
        return self.respond(row, status=202)

    @extend_schema(summary="Get a count of affected chats")
    def retrieve(self, request: Request, radius_id: uuid.UUID) -> Response:
        """Retrieve the progress and the results of a count of affected chats. Raises `NotFound`."""
        return self.respond(find_radius(radius_id))

    @extend_schema(summary="Stop a count of affected chats")
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, radius_id: uuid.UUID) -> Response:
        """Stop a running count. Its results so far are kept, and you can resume it later."""
        EmptyBody.read(request.data)
        radius.stop_radius_count(radius_id=radius_id, actor=self.actor, now=timezone.now())
        return self.respond(find_radius(radius_id))

    @extend_schema(summary="Resume a count of affected chats")
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, radius_id: uuid.UUID) -> Response:
        """Resume a stopped count at the chat where it stopped."""
        EmptyBody.read(request.data)
        radius.resume_radius_count(radius_id=radius_id, actor=self.actor, now=timezone.now())
        return self.respond(find_radius(radius_id))


def parse_radius_place(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the place and the group for which chats are counted.

    Raises `InvalidField` for an unknown group, or a group that does not fit the place.
    """
    if not asked["group"]:
        return {"place": asked.get("place", BlastRadius.Place.ASSIGNED)}
    place = asked.get("place", BlastRadius.Place.INSTANCE)
    if "place" in asked and place != BlastRadius.Place.REMOVED:
        raise build_field_error(
            "place", gettext_lazy("If you set a group, omit `place` or set it to “removed”.")
        )
    group = Group.objects.filter(name=asked["group"]).first()
    if group is None:
        raise build_field_error("group", gettext_lazy("No group has this name. Check the name."))
    return {"place": place, "group": group}


def find_radius(radius_id: uuid.UUID) -> BlastRadius:
    """Return the count with this id. Raises `NotFound`."""
    row = ROWS.filter(pk=radius_id).first()
    if row is None:
        raise NotFound
    return row

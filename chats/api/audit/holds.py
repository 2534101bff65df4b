"""Legal holds: list, place, release."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.inputs import PageQuery, PlainText, Strict
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.core.schema import READ_ERRORS, add_error_responses
from chats.api.policies.policy_access import require_permissions, translate_policy_errors
from chats.api.policies.policy_assignments import parse_assignment_target
from chats.api.policies.policy_inputs import Words, validate_storable_texts
from chats.ground.refusals import NotFound
from contextpolicy import holds
from contextpolicy.models import LegalHold, PolicyAssignment
from contextpolicy.models.holds import LONGEST_CASE, LONGEST_REASON

SEE, PLACE, RELEASE = "view_legalhold", "add_legalhold", "change_legalhold"
ROWS = LegalHold.objects.select_related("group", "user")


class NewHold(Strict):
    """A legal hold to place. Set only the target that the level requires."""

    level = serializers.ChoiceField(choices=PolicyAssignment.Level.choices)
    group = PlainText(default="", help_text="Name of the group, for level `group`.")
    user = PlainText(default="", help_text="User name, for level `user`.")
    chat = serializers.UUIDField(
        default=None, allow_null=True, help_text=("Id of the chat, for level `chat`.")
    )
    case = Words(
        least=1, most=LONGEST_CASE, help_text="Name or number of the legal case, shown to auditors."
    )
    reason = Words(
        least=1, most=LONGEST_REASON, help_text="Reason, which the audit log records permanently."
    )
    review_on = serializers.DateField(default=None, allow_null=True)


class HoldRelease(Strict):
    """The reason for releasing a legal hold."""

    reason = Words(
        least=1, most=LONGEST_REASON, help_text="Reason, which the audit log records permanently."
    )


class HoldOut(serializers.Serializer[LegalHold]):
    """A legal hold. It prevents erasure until `ends_at`."""

    id = serializers.UUIDField()
    level = serializers.ChoiceField(choices=PolicyAssignment.Level.choices)
    group = serializers.CharField(source="group.name", default=None, allow_null=True)
    user = serializers.CharField(source="user.username", default=None, allow_null=True)
    chat = serializers.UUIDField(source="chat_id", allow_null=True)
    case = serializers.CharField()
    reason = serializers.CharField()
    review_on = serializers.DateField(allow_null=True)
    placed_by = serializers.CharField(help_text="User who placed the hold, as `user:<id>`.")
    placed_at = serializers.DateTimeField()
    released_by = serializers.CharField()
    released_at = serializers.DateTimeField(allow_null=True)
    release_reason = serializers.CharField()
    ends_at = serializers.DateTimeField(
        allow_null=True,
        help_text=(
            "Time at which the hold ends, seven days after its release. Null: not released."
        ),
    )


class Holds(Endpoint):
    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="holds_list",
        summary="List legal holds",
        parameters=[PageQuery],
        responses=add_error_responses({200: build_page_serializer(HoldOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List all legal holds, active and released, newest first."""
        require_permissions(get_request_user(request), SEE)
        query = PageQuery.read(request.query_params.dict())
        page = paginate_rows(ROWS.all(), order=("-placed_at", "-id"), name="holds", **query)
        return Response(
            {"data": serialize_rows(HoldOut, page.rows), "next_cursor": page.next_cursor}
        )

    @extend_schema(
        operation_id="holds_place",
        summary="Place a legal hold",
        request=NewHold,
        responses=add_error_responses({201: HoldOut}),
    )
    def post(self, request: Request) -> Response:
        """Place a legal hold on everything, a group's members, a user or a chat.

        The hold prevents erasure. Raises `InvalidField`, and `Forbidden` and `NotFound` without the
        permission.
        """
        user = get_request_user(request)
        require_permissions(user, PLACE)
        asked = validate_storable_texts(NewHold.read(request.data))
        with translate_policy_errors():
            row = holds.place_hold(
                level=asked["level"],
                **parse_assignment_target(asked),
                case=asked["case"],
                reason=asked["reason"],
                review_on=asked["review_on"],
                actor=f"user:{user.pk}",
                now=timezone.now(),
            )
        return Response(serialize_row(HoldOut, row), status=201)


class HoldDetail(Endpoint):
    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="holds_retrieve",
        summary="Get a legal hold",
        responses=add_error_responses({200: HoldOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, hold_id: uuid.UUID) -> Response:
        """Retrieve a legal hold, active or released."""
        require_permissions(get_request_user(request), SEE)
        return Response(serialize_row(HoldOut, hold_of(hold_id)))


class ReleaseHold(Endpoint):
    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(
        operation_id="holds_release",
        summary="Release a legal hold",
        request=HoldRelease,
        responses=add_error_responses({200: HoldOut}),
    )
    def post(self, request: Request, hold_id: uuid.UUID) -> Response:
        """Release a legal hold. It ends in seven days, and pending erasures then run.

        409 `hold_released` if it was released before.
        """
        user = get_request_user(request)
        require_permissions(user, RELEASE)
        hold = hold_of(hold_id)
        asked = validate_storable_texts(HoldRelease.read(request.data))
        with translate_policy_errors():
            row = holds.release_hold(
                hold=hold, reason=asked["reason"], actor=f"user:{user.pk}", now=timezone.now()
            )
        return Response(serialize_row(HoldOut, row))


def hold_of(hold_id: uuid.UUID) -> LegalHold:
    """Return the hold with this id. Raises `NotFound`."""
    row = ROWS.filter(pk=hold_id).first()
    if row is None:
        raise NotFound
    return row

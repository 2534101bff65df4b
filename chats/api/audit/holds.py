"""Legal holds: list, place, release."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import Identifier, PageQuery, PlainText, Strict
from chats.api.core.outputs import build_page_serializer
from chats.api.policies.policy_access import translate_policy_errors
from chats.api.policies.policy_assignments import parse_assignment_target
from chats.api.policies.policy_inputs import Words, validate_storable_texts
from chats.ground.refusals import NotFound
from contextpolicy import holds
from contextpolicy.models import LegalHold, PolicyAssignment
from contextpolicy.models.holds import LONGEST_CASE, LONGEST_REASON

SEE = "contextpolicy.view_legalhold"
PLACE = "contextpolicy.add_legalhold"
RELEASE = "contextpolicy.change_legalhold"
ROWS = LegalHold.objects.select_related("group", "user")


class NewHold(Strict):
    """A legal hold to place. Set only the target that the level requires."""

    level = serializers.ChoiceField(
        choices=PolicyAssignment.Level.choices,
        help_text=(
            "Scope of the hold. `instance`: everything. `group`: the data of the group's members. "
            "`user`: the user's data. `chat`: this chat."
        ),
    )
    group = PlainText(default="", help_text="Name of the group, for level `group`.")
    user = PlainText(default="", help_text="User name, for level `user`.")
    chat = Identifier(default=None, allow_null=True, help_text="Id of the chat, for level `chat`.")
    case = Words(
        least=1,
        most=LONGEST_CASE,
        help_text=(
            "Name or number of the legal case: 1 to 120 characters, at least one of them a letter "
            "or digit. The audit log records it permanently."
        ),
    )
    reason = Words(
        least=1,
        most=LONGEST_REASON,
        help_text=(
            "Reason: 1 to 500 characters, at least one of them a letter or digit. The audit log "
            "records it permanently."
        ),
    )
    review_on = serializers.DateField(
        default=None,
        allow_null=True,
        help_text="Date on which to review the hold. The hold does not end then. Null: none.",
    )


class HoldRelease(Strict):
    """The reason for releasing a legal hold."""

    reason = Words(
        least=1,
        most=LONGEST_REASON,
        help_text="Reason, 1 to 500 characters. The audit log records it permanently.",
    )


class HoldOut(serializers.Serializer[LegalHold]):
    """A legal hold. It prevents erasure until `ends_at`."""

    id = serializers.UUIDField()
    level = serializers.ChoiceField(
        choices=PolicyAssignment.Level.choices,
        help_text=(
            "Scope of the hold. `instance`: everything. `group`: the data of the group's members. "
            "`user`: the user's data. `chat`: this chat."
        ),
    )
    group = serializers.CharField(
        source="group.name",
        default=None,
        allow_null=True,
        help_text=(
            "Name of the group under legal hold. Null: the hold is not for a group, or the group "
            "was deleted."
        ),
    )
    user = serializers.CharField(
        source="user.username",
        default=None,
        allow_null=True,
        help_text="Name of the user under legal hold. Null: the hold is not for a user.",
    )
    chat = serializers.UUIDField(
        source="chat_id",
        allow_null=True,
        help_text="Id of the chat under legal hold. Null: the hold is not for a chat.",
    )
    case = serializers.CharField(help_text="Name or number of the legal case.")
    reason = serializers.CharField(help_text="Reason for placing the hold.")
    review_on = serializers.DateField(
        allow_null=True, help_text="Date on which to review the hold. Null: none."
    )
    placed_by = serializers.CharField(help_text="User who placed the hold, as `user:<id>`.")
    placed_at = serializers.DateTimeField()
    released_by = serializers.CharField(
        help_text="User who released the hold, as `user:<id>`. Empty: not released."
    )
    released_at = serializers.DateTimeField(
        allow_null=True, help_text="Time of the release. Null: not released."
    )
    release_reason = serializers.CharField(help_text="Reason for the release. Empty: not released.")
    ends_at = serializers.DateTimeField(
        allow_null=True,
        help_text="Time at which the hold ends, seven days after its release. Null: not released.",
    )


class HoldViewSet(Endpoint):
    serializer_class = HoldOut
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {
        "list": [SEE],
        "create": [PLACE],
        "retrieve": [SEE],
        "release": [RELEASE],
    }
    lookup_url_kwarg = "hold_id"

    @extend_schema(
        summary="List legal holds", parameters=[PageQuery], responses=build_page_serializer(HoldOut)
    )
    def list(self, request: Request) -> Response:
        """List all legal holds, active and released, newest first."""
        return self.respond_page(ROWS.all(), order=("-placed_at", "-id"), name="holds")

    @extend_schema(operation_id="holds_place", summary="Place a legal hold", request=NewHold)
    def create(self, request: Request) -> Response:
        """Place a legal hold on everything, a group's members, a user or a chat.

        The hold prevents erasure. For a group, the hold covers its current members even after they
        leave, and later members while they belong to the group. Raises `InvalidField`, and
        `Forbidden` and `NotFound` without the permission.
        """
        asked = validate_storable_texts(NewHold.read(request.data))
        with translate_policy_errors():
            row = holds.place_hold(
                level=asked["level"],
                **parse_assignment_target(asked),
                case=asked["case"],
                reason=asked["reason"],
                review_on=asked["review_on"],
                actor=self.actor,
                now=timezone.now(),
            )
        return self.respond(row, status=201)

    @extend_schema(operation_id="holds_retrieve", summary="Get a legal hold")
    def retrieve(self, request: Request, hold_id: uuid.UUID) -> Response:
        """Retrieve a legal hold, active or released."""
        return self.respond(hold_of(hold_id))

    @extend_schema(summary="Release a legal hold", request=HoldRelease)
    @action(detail=True, methods=["post"])
    def release(self, request: Request, hold_id: uuid.UUID) -> Response:
        """Release a legal hold. It ends seven days later.

        Pending erasures then run, unless another hold covers the content.

        Returns 409 `hold_released` if it was released before.
        """
        hold = hold_of(hold_id)
        asked = validate_storable_texts(HoldRelease.read(request.data))
        with translate_policy_errors():
            row = holds.release_hold(
                hold=hold, reason=asked["reason"], actor=self.actor, now=timezone.now()
            )
        return self.respond(row)


def hold_of(hold_id: uuid.UUID) -> LegalHold:
    """Return the legal hold with this id. Raises `NotFound`."""
    row = ROWS.filter(pk=hold_id).first()
    if row is None:
        raise NotFound
    return row

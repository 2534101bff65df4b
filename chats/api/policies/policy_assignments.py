"""Policy assignments."""

from typing import Any, ClassVar

from django.contrib.auth.models import Group, User
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.errors import InvalidField
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.core.schema import READ_ERRORS, add_error_responses
from chats.api.policies.policy_access import require_permissions, translate_policy_errors
from chats.api.policies.policy_inputs import (
    AssignmentsQuery,
    NewAssignment,
    validate_storable_texts,
)
from chats.api.policies.policy_outputs import AssignmentOut
from chats.ground.refusals import NotFound
from chats.models import Chat
from contextpolicy import publish
from contextpolicy.models import ContextPolicy, PolicyAssignment

TARGETS = ("group", "user", "chat")


def build_field_error(param: str, problem: str | Promise) -> InvalidField:
    return InvalidField(code="invalid_value", param=param, problem=problem)


def parse_assignment_target(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the target for the level. Raises `InvalidField` if it is missing or does not fit."""
    for name in TARGETS:
        if name == asked["level"] and not asked[name]:
            raise build_field_error(name, gettext_lazy("This level requires this field."))
        if name != asked["level"] and asked[name]:
            raise build_field_error(
                name, gettext_lazy("This level does not use this field. Leave it out.")
            )
    group = Group.objects.filter(name=asked["group"]).first()
    user = User.objects.filter(username=asked["user"]).first()
    if asked["group"] and group is None:
        raise build_field_error("group", gettext_lazy("No group has this name."))
    if asked["user"] and user is None:
        raise build_field_error("user", gettext_lazy("No user has this user name."))
    chat = asked["chat"]
    if chat and not Chat.objects.filter(pk=chat).exists():
        raise build_field_error("chat", gettext_lazy("No chat has this id."))
    return {"group": group, "user": user, "chat_id": chat}


class Assignments(Endpoint):
    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="policies_assignments_list",
        summary="List policy assignments",
        parameters=[AssignmentsQuery],
        responses=add_error_responses(
            {200: build_page_serializer(AssignmentOut)}, errors=READ_ERRORS
        ),
    )
    def get(self, request: Request) -> Response:
        """List the policy assignments, oldest first."""
        require_permissions(get_request_user(request), "view_policyassignment")
        query = AssignmentsQuery.read(request.query_params.dict())
        rows = PolicyAssignment.objects.select_related("policy", "group", "user")
        slug = query.pop("policy", None)
        if slug is not None:
            rows = rows.filter(policy__slug=slug)
        page = paginate_rows(rows, order=("id",), name=f"assignments:{slug}", **query)
        return Response(
            {"data": serialize_rows(AssignmentOut, page.rows), "next_cursor": page.next_cursor}
        )

    @extend_schema(
        operation_id="policies_assignments_create",
        summary="Assign a policy",
        request=NewAssignment,
        responses=add_error_responses({201: AssignmentOut}),
    )
    def post(self, request: Request) -> Response:
        """Assign a policy to everyone, a group, a user or a chat. Replaces the existing assignment.

        Raises `InvalidField` and `PolicyNotChanged`, and `Forbidden` and `NotFound` without the
        permission.
        """
        user = get_request_user(request)
        require_permissions(user, "add_policyassignment")
        asked = validate_storable_texts(NewAssignment.read(request.data))
        policy = ContextPolicy.objects.filter(slug=asked["policy"]).first()
        if policy is None:
            raise build_field_error("policy", gettext_lazy("No policy has this slug."))
        actor, now = f"user:{user.pk}", timezone.now()
        with translate_policy_errors():
            row = publish.assign_policy(
                policy=policy,
                level=asked["level"],
                **parse_assignment_target(asked),
                actor=actor,
                now=now,
            )
        return Response(serialize_row(AssignmentOut, row), status=201)


class AssignmentDetail(Endpoint):
    scopes: ClassVar = {"DELETE": "policy:write"}

    @extend_schema(
        operation_id="policies_assignments_delete",
        summary="Remove a policy assignment",
        request=None,
        responses=add_error_responses({204: None}),
    )
    def delete(self, request: Request, assignment_id: int) -> Response:
        """Remove a policy assignment. Other assignments then decide in its place. Raises `NotFound`
        and `PolicyNotChanged`.
        """
        user = get_request_user(request)
        require_permissions(user, "delete_policyassignment")
        EmptyBody.read(request.data)
        row = PolicyAssignment.objects.select_related("policy").filter(pk=assignment_id).first()
        if row is None:
            raise NotFound
        with translate_policy_errors():
            publish.unassign_policy(assignment=row, actor=f"user:{user.pk}", now=timezone.now())
        return Response(status=204)

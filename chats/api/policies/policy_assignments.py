"""Policy assignments."""

from typing import Any, ClassVar

from django.contrib.auth.models import Group
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.errors import InvalidField
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import build_page_serializer
from chats.api.policies.policy_access import translate_policy_errors
from chats.api.policies.policy_inputs import (
    AssignmentsQuery,
    NewAssignment,
    validate_storable_texts,
)
from chats.api.policies.policy_outputs import AssignmentOut
from chats.ground.refusals import NotFound
from chats.models import Chat
from contextpolicy import policy_assignments
from contextpolicy.models import ContextPolicy, PolicyAssignment
from contextpolicy.roles import find_person_by_name

TARGETS = ("group", "user", "chat")


def build_field_error(param: str, problem: str | Promise) -> InvalidField:
    return InvalidField(code="invalid_value", param=param, problem=problem)


def parse_assignment_target(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the target that the level requires.

    Raises `InvalidField` if this target is missing or does not exist, or if another one is given.
    """
    for name in TARGETS:
        if name == asked["level"] and not asked[name]:
            raise build_field_error(name, gettext_lazy("This level requires this field."))
        if name != asked["level"] and asked[name]:
            raise build_field_error(
                name, gettext_lazy("This level does not use this field. Leave it out.")
            )
    group = Group.objects.filter(name=asked["group"]).first()
    user = find_person_by_name(asked["user"])
    if asked["group"] and group is None:
        raise build_field_error("group", gettext_lazy("No group has this name. Check the name."))
    if asked["user"] and user is None:
        raise build_field_error("user", gettext_lazy("No user has this user name. Check the name."))
    chat = asked["chat"]
    if chat and not Chat.objects.filter(pk=chat).exists():
        raise build_field_error("chat", gettext_lazy("No chat has this ID. Check the ID."))
    return {"group": group, "user": user, "chat_id": chat}


class AssignmentViewSet(Endpoint):
    serializer_class = AssignmentOut
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {
        "list": ["contextpolicy.view_policyassignment"],
        "create": ["contextpolicy.add_policyassignment"],
        "destroy": ["contextpolicy.delete_policyassignment"],
    }
    lookup_url_kwarg, lookup_value_converter = "assignment_id", "number"

    @extend_schema(
        summary="List policy assignments",
        parameters=[AssignmentsQuery],
        responses=build_page_serializer(AssignmentOut),
    )
    def list(self, request: Request) -> Response:
        """List the policy assignments, oldest first."""
        query = AssignmentsQuery.read(request.query_params.dict())
        rows = PolicyAssignment.objects.select_related("policy", "group", "user")
        slug = query.pop("policy", None)
        if slug is not None:
            rows = rows.filter(policy__slug=slug)
        return self.respond_page(rows, order=("id",), name=f"assignments:{slug}", query=query)

    @extend_schema(summary="Assign a policy", request=NewAssignment)
    def create(self, request: Request) -> Response:
        """Assign a policy to everyone, a group, a user or a chat. Replaces the existing assignment.

        Raises `InvalidField` and `PolicyNotChanged`, and `Forbidden` and `NotFound` without the
        permission.
        """
        asked = validate_storable_texts(NewAssignment.read(request.data))
        policy = ContextPolicy.objects.filter(slug=asked["policy"]).first()
        if policy is None:
            raise build_field_error(
                "policy", gettext_lazy("No policy has this slug. Check the slug.")
            )
        now = timezone.now()
        with translate_policy_errors():
            row = policy_assignments.assign_policy(
                policy=policy,
                level=asked["level"],
                **parse_assignment_target(asked),
                actor=self.actor,
                now=now,
            )
        return self.respond(row, status=201)

    @extend_schema(summary="Remove a policy assignment")
    def destroy(self, request: Request, assignment_id: int) -> Response:
        """Remove a policy assignment. The remaining assignments then apply.

        Raises `NotFound` and `PolicyNotChanged`.
        """
        EmptyBody.read(request.data)
        row = PolicyAssignment.objects.select_related("policy").filter(pk=assignment_id).first()
        if row is None:
            raise NotFound
        with translate_policy_errors():
            policy_assignments.unassign_policy(assignment=row, actor=self.actor, now=timezone.now())
        return Response(status=204)

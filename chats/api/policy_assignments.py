"""Policy assignments."""

from typing import Any, ClassVar

from django.contrib.auth.models import Group, User
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.errors import InvalidField
from chats.api.inputs import EmptyBody
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import require, told
from chats.api.policy_inputs import AssignmentsQuery, NewAssignment, storable
from chats.api.policy_outputs import AssignmentOut
from chats.api.schema import READ_ERRORS, answers
from chats.ground.refusals import NotFound
from chats.models import Chat
from contextpolicy import publish
from contextpolicy.models import ContextPolicy, PolicyAssignment

TARGETS = ("group", "user", "chat")


def unfit(param: str, problem: str | Promise) -> InvalidField:
    """Return a refusal for an invalid field."""
    return InvalidField(code="invalid_value", param=param, problem=problem)


def target_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the target for the level. Raises `InvalidField` if it is missing or does not fit."""
    for name in TARGETS:
        if name == asked["level"] and not asked[name]:
            raise unfit(name, gettext_lazy("This level requires it."))
        if name != asked["level"] and asked[name]:
            raise unfit(name, gettext_lazy("This level does not use it. Leave it out."))
    group = Group.objects.filter(name=asked["group"]).first()
    user = User.objects.filter(username=asked["user"]).first()
    if asked["group"] and group is None:
        raise unfit("group", gettext_lazy("No group has this name."))
    if asked["user"] and user is None:
        raise unfit("user", gettext_lazy("No user has this user name."))
    chat = asked["chat"]
    if chat and not Chat.objects.filter(pk=chat).exists():
        raise unfit("chat", gettext_lazy("No chat has this id."))
    return {"group": group, "user": user, "chat_id": chat}


class Assignments(Endpoint):
    """All policy assignments."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="policies_assignments_list",
        summary="List policy assignments",
        parameters=[AssignmentsQuery],
        responses=answers({200: listed(AssignmentOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the policy assignments, oldest first. Requires permission to view them."""
        require(person(request), "view_policyassignment")
        query = AssignmentsQuery.read(request.query_params.dict())
        rows = PolicyAssignment.objects.select_related("policy", "group", "user")
        slug = query.pop("policy", None)
        if slug is not None:
            rows = rows.filter(policy__slug=slug)
        page = page_of(rows, order=("id",), name=f"assignments:{slug}", **query)
        return Response({"data": items(AssignmentOut, page.rows), "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="policies_assignments_create",
        summary="Assign a policy",
        request=NewAssignment,
        responses=answers({201: AssignmentOut}),
    )
    def post(self, request: Request) -> Response:
        """Assign a policy to everyone, a group, a user or a chat. Replaces the existing assignment.

        Raises `InvalidField` and `PolicyNotChanged`, and `Forbidden` and `NotFound` without the
        permission.
        """
        user = person(request)
        require(user, "add_policyassignment")
        asked = storable(NewAssignment.read(request.data))
        policy = ContextPolicy.objects.filter(slug=asked["policy"]).first()
        if policy is None:
            raise unfit("policy", gettext_lazy("No policy has this slug."))
        actor, now = f"user:{user.pk}", timezone.now()
        with told():
            row = publish.assign(
                policy=policy, level=asked["level"], **target_of(asked), actor=actor, now=now
            )
        return Response(one(AssignmentOut, row), status=201)


class OneAssignment(Endpoint):
    """One assignment."""

    scopes: ClassVar = {"DELETE": "policy:write"}

    @extend_schema(
        operation_id="policies_assignments_delete",
        summary="Remove a policy assignment",
        request=None,
        responses=answers({204: None}),
    )
    def delete(self, request: Request, assignment_id: int) -> Response:
        """Remove a policy assignment. Raises `NotFound` and `PolicyNotChanged`."""
        user = person(request)
        require(user, "delete_policyassignment")
        EmptyBody.read(request.data)
        row = PolicyAssignment.objects.select_related("policy").filter(pk=assignment_id).first()
        if row is None:
            raise NotFound
        with told():
            publish.unassign(assignment=row, actor=f"user:{user.pk}", now=timezone.now())
        return Response(status=204)

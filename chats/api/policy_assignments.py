"""The places where policies apply."""

from typing import Any, ClassVar

from django.contrib.auth.models import Group, User
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.errors import InvalidField
from chats.api.inputs import Nothing
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


def unfit(param: str, problem: str) -> InvalidField:
    """Return the refusal of a field."""
    return InvalidField(code="invalid_value", param=param, problem=problem)


def target_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the target that the level needs. Raises `InvalidField` for none, or another."""
    for name in TARGETS:
        if name == asked["level"] and not asked[name]:
            raise unfit(name, "This level needs it.")
        if name != asked["level"] and asked[name]:
            raise unfit(name, "This level has no use for it. Leave it out.")
    group = Group.objects.filter(name=asked["group"]).first()
    user = User.objects.filter(username=asked["user"]).first()
    if asked["group"] and group is None:
        raise unfit("group", "There is no group of this name.")
    if asked["user"] and user is None:
        raise unfit("user", "There is nobody with this user name.")
    chat = asked["chat"]
    if chat and not Chat.objects.filter(pk=chat).exists():
        raise unfit("chat", "There is no chat of this id.")
    return {"group": group, "user": user, "chat_id": chat}


class Assignments(Endpoint):
    """All assignments of policies."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="policies_assignments_list",
        parameters=[AssignmentsQuery],
        responses=answers({200: listed(AssignmentOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the assignments, oldest first, for those who may see them."""
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
        request=NewAssignment,
        responses=answers({201: AssignmentOut}),
    )
    def post(self, request: Request) -> Response:
        """Let a policy apply to everyone, a group, a person or a chat, instead of the one before.

        Raises `InvalidField`, `PolicyNotChanged`, and `Forbidden` and `NotFound` by their rights.
        """
        user = person(request)
        require(user, "add_policyassignment")
        asked = storable(NewAssignment.read(request.data))
        policy = ContextPolicy.objects.filter(slug=asked["policy"]).first()
        if policy is None:
            raise unfit("policy", "There is no policy of this slug.")
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
        request=None,
        responses=answers({204: None}),
    )
    def delete(self, request: Request, assignment_id: int) -> Response:
        """Let the policy apply there no longer. Raises `NotFound` and `PolicyNotChanged`."""
        user = person(request)
        require(user, "delete_policyassignment")
        Nothing.read(request.data)
        row = PolicyAssignment.objects.select_related("policy").filter(pk=assignment_id).first()
        if row is None:
            raise NotFound
        with told():
            publish.unassign(assignment=row, actor=f"user:{user.pk}", now=timezone.now())
        return Response(status=204)

"""Versions of a policy: list, create, publish, restore."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import EmptyBody, PageQuery
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import (
    CHANGE,
    SEE,
    PolicyNotChanged,
    policy_for,
    told,
    version_of,
)
from chats.api.policy_inputs import Activation, NewVersion, storable
from chats.api.policy_outputs import VersionOut, VersionRowOut, findings_told
from chats.api.schema import READ_ERRORS, answers
from contextpolicy import publish
from contextpolicy.comparison import both_changes, changed_fields
from contextpolicy.linter.judge import judge
from contextpolicy.models import ContextPolicy, PolicyVersion


def row_json(version: PolicyVersion, people: Mapping[int, User]) -> dict[str, Any]:
    """Return a version row of the list, without its values."""
    author = people.get(version.created_by_id) if version.created_by_id else None
    return {
        "number": version.number,
        "state": version.state,
        "note": version.note,
        "created_by": author.get_username() if author else None,
        "created_at": version.created_at,
        "activated_at": version.activated_at,
    }


def version_json(version: PolicyVersion) -> dict[str, Any]:
    """Return a version with its values, its changes and its warnings."""
    older = version.policy.versions.filter(number__lt=version.number).order_by("-number").first()
    people = User.objects.in_bulk([version.created_by_id] if version.created_by_id else [])
    return {
        **row_json(version, people),
        "values": version.values,
        "locks": version.locks,
        "changes": changed_fields(older, version),
        "findings": findings_told(judge(version.values, locks=version.locks)),
    }


def shown(policy: ContextPolicy, number: int) -> dict[str, Any]:
    """Return the current state of a version. Raises `NoSuchVersion`."""
    return one(VersionOut, version_json(version_of(policy, number)))


class PolicyVersions(Endpoint):
    """The versions of a policy."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="policies_versions_list",
        summary="List policy versions",
        parameters=[PageQuery],
        responses=answers({200: listed(VersionRowOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, slug: str) -> Response:
        """List the versions of a policy, newest first."""
        policy = policy_for(person(request), SEE, slug=slug)
        query = PageQuery.read(request.query_params.dict())
        rows = policy.versions.select_related("policy")
        page = page_of(rows, order=("-number",), name=f"versions:{policy.pk}", **query)
        people = User.objects.in_bulk([row.created_by_id for row in page.rows if row.created_by_id])
        data = items(VersionRowOut, (row_json(row, people) for row in page.rows))
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="policies_versions_create",
        summary="Create a policy version",
        request=NewVersion,
        responses=answers({201: VersionOut}),
    )
    def post(self, request: Request, slug: str) -> Response:
        """Create the next version of a policy. Unless it is a draft, it is active immediately.

        `error.details` lists all invalid values. If another version was saved after `based_on`,
        nothing is saved; `error.details` then has each field that either version changed.
        """
        user = person(request)
        policy = policy_for(user, CHANGE, slug=slug)
        asked = storable(NewVersion.read(request.data))
        is_draft = asked.pop("draft")
        actor, now = f"user:{user.pk}", timezone.now()
        with told():
            base = version_of(policy, asked["based_on"])
            try:
                made = publish.new_version(
                    policy=policy, **asked, is_draft=is_draft, actor=actor, now=now
                )
            except publish.PolicyChangedMeanwhile as error:
                raise meanwhile(error, base=base, asked=asked) from error
        return Response(shown(policy, made.number), status=201)


def meanwhile(
    error: publish.PolicyChangedMeanwhile, *, base: PolicyVersion, asked: Mapping[str, Any]
) -> PolicyNotChanged:
    """Return the refusal with the changes of both versions, field by field."""
    refusal = PolicyNotChanged(error)
    theirs = base.policy.newest or base
    refusal.each = both_changes(
        base=base, theirs=theirs, values=asked["values"], locks=asked["locks"]
    )
    return refusal


class OneVersion(Endpoint):
    """One version of a policy."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="policies_versions_get",
        summary="Get a policy version",
        responses=answers({200: VersionOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, slug: str, number: int) -> Response:
        """Retrieve a version with its changes since the previous version."""
        policy = policy_for(person(request), SEE, slug=slug)
        with told():
            return Response(shown(policy, number))


class ActivateVersion(Endpoint):
    """Publish a draft."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(
        operation_id="policies_versions_activate",
        summary="Publish a policy version",
        request=Activation,
        responses=answers({200: VersionOut}),
    )
    def post(self, request: Request, slug: str, number: int) -> Response:
        """Publish the newest version. Has no effect if it is active already."""
        user = person(request)
        policy = policy_for(user, CHANGE, slug=slug)
        asked = storable(Activation.read(request.data))
        with told():
            version_of(policy, number)
            publish.activate(
                policy=policy,
                number=number,
                actor=f"user:{user.pk}",
                now=timezone.now(),
                emergency=asked["emergency"],
            )
            return Response(shown(policy, number))


class RestoreVersion(Endpoint):
    """Restore an older version."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(
        operation_id="policies_versions_restore",
        summary="Restore a policy version",
        request=None,
        responses=answers({201: VersionOut}),
    )
    def post(self, request: Request, slug: str, number: int) -> Response:
        """Create a version with the values and locks of an older one. It is active immediately."""
        user = person(request)
        policy = policy_for(user, CHANGE, slug=slug)
        EmptyBody.read(request.data)
        with told():
            made = publish.restore(
                policy=policy, number=number, actor=f"user:{user.pk}", now=timezone.now()
            )
            return Response(shown(policy, made.number), status=201)

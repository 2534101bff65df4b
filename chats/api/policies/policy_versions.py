"""Versions of a policy: list, create, publish, restore."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.policies.policy_access import (
    CHANGE,
    SEE,
    PolicyNotChanged,
    find_policy,
    find_policy_version,
    translate_policy_errors,
)
from chats.api.policies.policy_inputs import Activation, NewVersion, validate_storable_texts
from chats.api.policies.policy_outputs import VersionOut, VersionRowOut, serialize_warnings
from contextpolicy import policy_refusals, publish
from contextpolicy.comparison import diff_version_fields, list_concurrent_changes
from contextpolicy.linter.lint import lint_policy
from contextpolicy.models import ContextPolicy, PolicyVersion


def serialize_version_row(version: PolicyVersion, people: Mapping[int, User]) -> dict[str, Any]:
    """Return a version as listed, without its values."""
    author = people.get(version.created_by_id) if version.created_by_id else None
    return {
        "number": version.number,
        "state": version.state,
        "note": version.note,
        "created_by": author.get_username() if author else None,
        "created_at": version.created_at,
        "activated_at": version.activated_at,
    }


def serialize_version(version: PolicyVersion) -> dict[str, Any]:
    """Return a version with its values, its changes and its warnings."""
    older = version.policy.versions.filter(number__lt=version.number).order_by("-number").first()
    people = User.objects.in_bulk([version.created_by_id] if version.created_by_id else [])
    return {
        **serialize_version_row(version, people),
        "values": version.values,
        "locks": version.locks,
        "changes": diff_version_fields(older, version),
        "findings": serialize_warnings(lint_policy(version.values, locks=version.locks)),
    }


def retrieve_version(policy: ContextPolicy, number: int) -> dict[str, Any]:
    """Return a version as JSON, read again from the database. Raises `NoSuchVersion`."""
    return serialize_row(VersionOut, serialize_version(find_policy_version(policy, number)))


def build_conflict_refusal(
    error: policy_refusals.PolicyChangedMeanwhile, *, base: PolicyVersion, asked: Mapping[str, Any]
) -> PolicyNotChanged:
    """Return a refusal that lists the fields changed by either version since `base`."""
    refusal = PolicyNotChanged(error)
    theirs = base.policy.newest or base
    refusal.each = list_concurrent_changes(
        base=base, theirs=theirs, values=asked["values"], locks=asked["locks"]
    )
    return refusal


class VersionViewSet(Endpoint):
    serializer_class = VersionOut
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {
        "list": [SEE],
        "create": [CHANGE],
        "retrieve": [SEE],
        "activate": [CHANGE],
        "restore": [CHANGE],
    }
    lookup_url_kwarg, lookup_value_converter = "number", "number"

    @extend_schema(
        summary="List policy versions",
        parameters=[PageQuery],
        responses=build_page_serializer(VersionRowOut),
    )
    def list(self, request: Request, slug: str) -> Response:
        """List the versions of a policy, newest first, without their values."""
        policy = find_policy(slug)
        query = PageQuery.read(request.query_params.dict())
        rows = policy.versions.select_related("policy")
        page = paginate_rows(rows, order=("-number",), name=f"versions:{policy.pk}", **query)
        people = User.objects.in_bulk([row.created_by_id for row in page.rows if row.created_by_id])
        data = serialize_rows(
            VersionRowOut, (serialize_version_row(row, people) for row in page.rows)
        )
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(summary="Create a policy version", request=NewVersion)
    def create(self, request: Request, slug: str) -> Response:
        """Create the next version of a policy. Unless it is a draft, it is active immediately.

        If the instance requires a second person to publish it, it is saved as a draft; check
        `state` in the response. `error.details` lists all invalid values. If a newer version than
        `based_on` exists, nothing is saved, and `error.details` lists each field that either
        version changed.
        """
        policy = find_policy(slug)
        asked = validate_storable_texts(NewVersion.read(request.data))
        is_draft = asked.pop("draft")
        now = timezone.now()
        with translate_policy_errors():
            base = find_policy_version(policy, asked["based_on"])
            try:
                made = publish.create_policy_version(
                    policy=policy, **asked, is_draft=is_draft, actor=self.actor, now=now
                )
            except policy_refusals.PolicyChangedMeanwhile as error:
                raise build_conflict_refusal(error, base=base, asked=asked) from error
        return Response(retrieve_version(policy, made.number), status=201)

    @extend_schema(summary="Get a policy version")
    def retrieve(self, request: Request, slug: str, number: int) -> Response:
        """Retrieve a policy version and its changes since the previous version."""
        policy = find_policy(slug)
        with translate_policy_errors():
            return Response(retrieve_version(policy, number))

    @extend_schema(summary="Publish a policy version", request=Activation)
    @action(detail=True, methods=["post"])
    def activate(self, request: Request, slug: str, number: int) -> Response:
        """Publish the newest version of a policy, usually a draft.

        Has no effect if the version is already active.
        """
        policy = find_policy(slug)
        asked = validate_storable_texts(Activation.read(request.data))
        with translate_policy_errors():
            find_policy_version(policy, number)
            publish.activate_version(
                policy=policy,
                number=number,
                actor=self.actor,
                now=timezone.now(),
                emergency=asked["emergency"],
            )
            return Response(retrieve_version(policy, number))

    @extend_schema(summary="Restore a policy version", responses={201: VersionOut})
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, slug: str, number: int) -> Response:
        """Create a version with the values and locks of an older version.

        The new version is active immediately, or saved as a draft if the instance requires a second
        person to publish it. The versions in between do not change.
        """
        policy = find_policy(slug)
        EmptyBody.read(request.data)
        with translate_policy_errors():
            made = publish.restore_policy_version(
                policy=policy, number=number, actor=self.actor, now=timezone.now()
            )
            return Response(retrieve_version(policy, made.number), status=201)

"""Policies: list, create, update, check, export and import."""

import json
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import EmptyBody
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import ADD, CHANGE, SEE, policies, policy_for, require, told
from chats.api.policy_inputs import (
    Lint,
    NewPolicy,
    PoliciesQuery,
    PolicyChange,
    PolicyImport,
    storable,
)
from chats.api.policy_outputs import (
    CreatedDraftsOut,
    ExportedPolicyOut,
    LintOut,
    PolicyDetailOut,
    PolicyRowOut,
    RecommendationsOut,
    findings_told,
)
from chats.api.policy_versions import version_json
from chats.api.schema import EDIT_ERRORS, READ_ERRORS, answers
from chats.api.unchanged import Unchanged
from contextpolicy import publish, recommended
from contextpolicy.imports import exported, import_strategy, new_policy
from contextpolicy.linter.judge import judge
from contextpolicy.models import ContextPolicy


def row_json(policy: ContextPolicy) -> dict[str, Any]:
    """Return a policy row of the list, without its values."""
    in_force = policy.current.number if policy.current else None
    newest: int | None = getattr(policy, "newest_number", None)
    return {
        "slug": policy.slug,
        "name": policy.name,
        "description": policy.description,
        "retired": policy.retired,
        "version": in_force,
        "draft": None if newest == in_force else newest,
        "places": getattr(policy, "places", 0),
    }


def policy_json(slug: str) -> dict[str, Any]:
    """Return the current state of a policy, with its active version and its assignments."""
    policy = policies().get(slug=slug)
    return {
        **row_json(policy),
        "current": version_json(policy.current) if policy.current else None,
        "assignments": list(policy.assignments.select_related("policy", "group", "user")),
    }


class Policies(Endpoint):
    """All policies."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="policies_list",
        summary="List policies",
        parameters=[PoliciesQuery],
        responses=answers({200: listed(PolicyRowOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the policies by slug. Requires permission to view policies."""
        require(person(request), SEE)
        query = PoliciesQuery.read(request.query_params.dict())
        retired = query.pop("retired", None)
        rows = policies() if retired is None else policies().filter(retired=retired)
        page = page_of(rows, order=("slug",), name=f"policies:{retired}", **query)
        data = items(PolicyRowOut, map(row_json, page.rows))
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="policies_create",
        summary="Create a policy",
        request=NewPolicy,
        responses=answers({201: PolicyDetailOut}),
    )
    def post(self, request: Request) -> Response:
        """Create a policy with version 1. It is not assigned to anything yet.

        `error.details` lists all invalid values.
        """
        user = person(request)
        require(user, ADD)
        asked = storable(NewPolicy.read(request.data))
        is_draft = asked.pop("draft")
        actor, now = f"user:{user.pk}", timezone.now()
        with told():
            made = new_policy(asked.pop("name"), **asked, is_draft=is_draft, actor=actor, now=now)
        return Response(one(PolicyDetailOut, policy_json(made.slug)), status=201)


class OnePolicy(Unchanged):
    """One policy."""

    scopes: ClassVar = {"GET": "policy:read", "PATCH": "policy:write"}

    def rows(self, _request: Request, *, slug: str) -> QuerySet[ContextPolicy]:
        """Return the policy."""
        return ContextPolicy.objects.filter(slug=slug)

    @extend_schema(
        operation_id="policies_get",
        summary="Get a policy",
        responses=answers({200: PolicyDetailOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, slug: str) -> Response:
        """Retrieve a policy with its active version, warnings and assignments."""
        policy_for(person(request), SEE, slug=slug)
        return Response(one(PolicyDetailOut, policy_json(slug)))

    @extend_schema(
        operation_id="policies_change",
        summary="Update a policy",
        request=PolicyChange,
        responses=answers({200: PolicyDetailOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, slug: str) -> Response:
        """Change the name or the description of a policy, or retire or reactivate it.

        To change its values, create a version.
        """
        user = person(request)
        policy = policy_for(user, CHANGE, slug=slug)
        asked = storable(PolicyChange.read(request.data))
        stored = {name: getattr(policy, name) for name in ("name", "description", "retired")}
        actor, now = f"user:{user.pk}", timezone.now()
        with told():
            publish.change_policy(policy=policy, **stored | asked, actor=actor, now=now)
        return Response(one(PolicyDetailOut, policy_json(slug)))


class LintPolicy(Endpoint):
    """Check of unsaved values."""

    scopes: ClassVar = {"POST": "policy:read"}

    @extend_schema(
        operation_id="policies_lint",
        summary="Check policy values",
        request=Lint,
        responses=answers({200: LintOut}),
    )
    def post(self, request: Request) -> Response:
        """Check values and locks. Returns conflicts (`error`) and warnings, with suggested fixes.

        Nothing is saved.
        """
        require(person(request), CHANGE)
        asked = storable(Lint.read(request.data))
        found = judge(asked["values"], locks=asked["locks"])
        return Response(one(LintOut, {"findings": findings_told(found)}))


class ExportPolicy(Endpoint):
    """Export of a policy."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="policies_export",
        summary="Export a policy",
        responses=answers({200: ExportedPolicyOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, slug: str) -> Response:
        """Export a policy with its newest version, including a draft, in the import format."""
        policy = policy_for(person(request), SEE, slug=slug)
        return Response(one(ExportedPolicyOut, exported(policy)))


class ImportPolicy(Endpoint):
    """Import of a policy."""

    scopes: ClassVar = {"POST": "policy:write"}

    @extend_schema(
        operation_id="policies_import",
        summary="Import a policy",
        request=PolicyImport,
        responses=answers({201: PolicyDetailOut}),
    )
    def post(self, request: Request) -> Response:
        """Import a policy, or a new version of an existing one. The version is active immediately.

        A new policy is not assigned to anything yet. A retired policy cannot receive an import
        (`PolicyNotInUse`).
        """
        user = person(request)
        require(user, ADD, CHANGE)
        asked = PolicyImport.read(request.data)
        into = policy_for(user, CHANGE, slug=asked["into"]) if asked["into"] else None
        with told():
            if into is not None and into.retired:
                raise publish.PolicyNotInUse
            made = import_strategy(
                text=json.dumps(asked["form"], ensure_ascii=False),
                into=into,
                name=storable({"name": asked["name"]})["name"],
                actor=f"user:{user.pk}",
                now=timezone.now(),
            )
        return Response(one(PolicyDetailOut, policy_json(made.slug)), status=201)


class RecommendedDrafts(Endpoint):
    """Drafts with recommended values."""

    knows_repetitions = True
    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}

    @extend_schema(
        operation_id="policies_recommended_list",
        summary="List policies without recommended values",
        responses=answers({200: RecommendationsOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the policies that do not use retrieved context or dates, with the missing values."""
        require(person(request), CHANGE)
        data = [
            {
                "slug": found.policy.slug,
                "draft": found.draft.number if found.draft else None,
                "values": found.fields,
            }
            for found in recommended.recommendations()
        ]
        return Response({"data": data})

    @extend_schema(
        operation_id="policies_recommended_create",
        summary="Create recommended drafts",
        request=None,
        responses=answers({201: CreatedDraftsOut}),
    )
    def post(self, request: Request) -> Response:
        """Create a draft with the missing values for each of these policies.

        Nothing is published. Policies with an unpublished draft are skipped.
        """
        user = person(request)
        require(user, CHANGE)
        EmptyBody.read(request.data)
        made = recommended.create_drafts(actor=f"user:{user.pk}", now=timezone.now())
        data = [{"slug": row.policy.slug, "version": row.number} for row in made.drafts]
        skipped = [{"slug": slug, "reason": reason} for slug, reason in made.skipped.items()]
        return Response({"data": data, "skipped": skipped}, status=201)

"""Policies: list, create, update, check, export and import."""

import json
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions.skills import READS_SKILLS, is_skill_admin
from chats.api.core.base import Endpoint
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.policies.policy_access import (
    ADD,
    CHANGE,
    SEE,
    find_policy,
    list_policies,
    translate_policy_errors,
)
from chats.api.policies.policy_inputs import (
    Lint,
    NewPolicy,
    PoliciesQuery,
    PolicyChange,
    PolicyImport,
    validate_storable_texts,
)
from chats.api.policies.policy_outputs import (
    CreatedDraftsOut,
    ExportedPolicyOut,
    LintOut,
    PolicyDetailOut,
    PolicyRowOut,
    RecommendationsOut,
    serialize_warnings,
)
from chats.api.policies.policy_versions import serialize_version
from contextpolicy import policy_refusals, publish, recommended
from contextpolicy.imports import create_imported_policy, export_policy, import_strategy
from contextpolicy.linter.lint import lint_policy
from contextpolicy.models import ContextPolicy


def serialize_policy_row(policy: ContextPolicy) -> dict[str, Any]:
    """Return a policy as listed, without its values."""
    active = policy.current.number if policy.current else None
    newest: int | None = getattr(policy, "newest_number", None)
    return {
        "slug": policy.slug,
        "name": policy.name,
        "description": policy.description,
        "retired": policy.retired,
        "version": active,
        "draft": None if newest == active else newest,
        "places": getattr(policy, "places", 0),
    }


def serialize_policy(slug: str) -> dict[str, Any]:
    """Return the current state of a policy, with its active version and its assignments."""
    policy = list_policies().get(slug=slug)
    return {
        **serialize_policy_row(policy),
        "current": serialize_version(policy.current) if policy.current else None,
        "assignments": list(policy.assignments.select_related("policy", "group", "user")),
    }


class PolicyViewSet(ConditionalEndpoint):
    serializer_class = PolicyDetailOut
    read_scope, write_scope = "policy:read", "policy:write"
    scopes: ClassVar = {"lint": "policy:read"}
    permissions: ClassVar = {
        "list": [SEE],
        "create": [ADD],
        "retrieve": [SEE],
        "partial_update": [CHANGE],
        "lint": [CHANGE],
        "import_policy": [ADD, CHANGE],
        "export": [SEE],
    }
    lookup_url_kwarg, lookup_value_converter = "slug", "slug"

    def rows(self) -> QuerySet[ContextPolicy]:
        return ContextPolicy.objects.filter(slug=self.kwargs["slug"])

    @extend_schema(
        summary="List policies",
        parameters=[PoliciesQuery],
        responses=build_page_serializer(PolicyRowOut),
    )
    def list(self, request: Request) -> Response:
        """List the policies, ordered by slug."""
        query = PoliciesQuery.read(request.query_params.dict())
        retired = query.pop("retired", None)
        rows = list_policies() if retired is None else list_policies().filter(retired=retired)
        page = paginate_rows(rows, order=("slug",), name=f"policies:{retired}", **query)
        data = serialize_rows(PolicyRowOut, map(serialize_policy_row, page.rows))
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(summary="Create a policy", request=NewPolicy)
    def create(self, request: Request) -> Response:
        """Create a policy with version 1. It is not assigned to anything yet.

        Unless `draft` is true, version 1 is active, so that the policy can be assigned.
        `error.details` lists all invalid values.
        """
        asked = validate_storable_texts(NewPolicy.read(request.data))
        is_draft = asked.pop("draft")
        now = timezone.now()
        with translate_policy_errors():
            made = create_imported_policy(
                asked.pop("name"), **asked, is_draft=is_draft, actor=self.actor, now=now
            )
        return self.respond(serialize_policy(made.slug), status=201)

    @extend_schema(summary="Get a policy")
    def retrieve(self, request: Request, slug: str) -> Response:
        """Retrieve a policy with its active version, warnings and assignments."""
        find_policy(slug)
        return self.respond(serialize_policy(slug))

    @extend_schema(summary="Update a policy", request=PolicyChange)
    def partial_update(self, request: Request, slug: str) -> Response:
        """Change the name or the description of a policy, or retire or reactivate it.

        To change values, create a version. Returns 409 `policy_in_use` if the policy to retire is
        still assigned.
        """
        policy = find_policy(slug)
        asked = validate_storable_texts(PolicyChange.read(request.data))
        stored = {name: getattr(policy, name) for name in ("name", "description", "retired")}
        now = timezone.now()
        with translate_policy_errors():
            publish.change_policy(policy=policy, **stored | asked, actor=self.actor, now=now)
        return self.respond(serialize_policy(slug))

    @extend_schema(summary="Check policy values", request=Lint, responses=LintOut)
    @action(detail=False, methods=["post"])
    def lint(self, request: Request) -> Response:
        """Check values and locks. Returns conflicts (`error`) and warnings, with suggested fixes.

        Nothing is saved.
        """
        asked = validate_storable_texts(Lint.read(request.data))
        found = lint_policy(asked["values"], locks=asked["locks"])
        return Response(serialize_row(LintOut, {"findings": serialize_warnings(found)}))

    @extend_schema(
        operation_id="policies_import",
        summary="Import a policy",
        request=PolicyImport,
        responses={201: PolicyDetailOut},
    )
    @action(detail=False, methods=["post"], url_path="import")
    def import_policy(self, request: Request) -> Response:
        """Import a policy, or a new version of an existing one. The version is active immediately.

        A version that requires a second person or a count of affected chats is saved as a draft. A
        new policy is not assigned to anything yet. Skills in the file that do not exist on this
        instance are created; existing skills do not change. Returns 409 `policy_not_in_use` if the
        existing policy is retired. Raises `PolicyNotInUse`.
        """
        asked = PolicyImport.read(request.data)
        into = find_policy(asked["into"]) if asked["into"] else None
        with translate_policy_errors():
            if into is not None and into.retired:
                raise policy_refusals.PolicyNotInUse
            made = import_strategy(
                text=json.dumps(asked["form"], ensure_ascii=False),
                into=into,
                name=validate_storable_texts({"name": asked["name"]})["name"],
                actor=self.actor,
                now=timezone.now(),
                writes_skills=is_skill_admin(self.user),
            )
        return self.respond(serialize_policy(made.slug), status=201)

    @extend_schema(summary="Export a policy", responses=ExportedPolicyOut)
    @action(detail=True)
    def export(self, request: Request, slug: str) -> Response:
        """Export the newest version of a policy, even a draft, in the import format.

        The export includes the policy's skills that you may read, up to 1,900,000 bytes of JSON.
        """
        form = export_policy(find_policy(slug), with_skills=self.user.has_perm(READS_SKILLS))
        return Response(serialize_row(ExportedPolicyOut, form))


class RecommendedDraftViewSet(Endpoint):
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {"list": [CHANGE], "create": [CHANGE]}
    repeatable = ("create",)

    @extend_schema(summary="List policies without recommended values", responses=RecommendationsOut)
    def list(self, request: Request) -> Response:
        """List the active policies that lack recommended values for retrieved context or dates.

        A policy is active if it is not retired and has an active version.
        The response contains the missing values of each policy.
        """
        data = [
            {
                "slug": found.policy.slug,
                "draft": found.draft.number if found.draft else None,
                "values": found.fields,
            }
            for found in recommended.list_recommendations()
        ]
        return Response({"data": data})

    @extend_schema(summary="Create recommended drafts", responses=CreatedDraftsOut)
    def create(self, request: Request) -> Response:
        """Create a draft with the missing values for each policy that lacks recommended values.

        Nothing is published. Policies with an unpublished draft are skipped.
        """
        EmptyBody.read(request.data)
        made = recommended.create_drafts(actor=self.actor, now=timezone.now())
        data = [{"slug": row.policy.slug, "version": row.number} for row in made.drafts]
        skipped = [{"slug": slug, "reason": reason} for slug, reason in made.skipped.items()]
        return Response({"data": data, "skipped": skipped}, status=201)

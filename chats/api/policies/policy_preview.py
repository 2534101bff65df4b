"""Previews of an unsaved policy. Requires permission to change policies."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.money import serialize_money
from chats.api.core.outputs import serialize_row
from chats.api.policies.policy_inputs import PreviewRequest, SampleRequest, validate_storable_texts
from chats.api.policies.policy_outputs import PolicySampleOut, serialize_warnings
from chats.api.policies.preview_outputs import PolicyPreviewOut
from chats.ground.refusals import NotFound
from chats.simulation.estimates import Estimate
from chats.simulation.preview import Preview, Side, find_previewable_chat, preview_proposal
from chats.simulation.proposals import PolicyProposal
from chats.simulation.sampling import Sampled, sample_chats
from contextpolicy.linter.lint import lint_policy
from contextpolicy.linter.policy_warning import PolicyWarning


class PreviewViewSet(Endpoint):
    """The effects of an unsaved policy on next prompts."""

    write_scope = "policy:read"

    @extend_schema(
        summary="Preview a policy in a chat", request=PreviewRequest, responses=PolicyPreviewOut
    )
    @action(detail=False, methods=["post"])
    def preview(self, request: Request) -> Response:
        """Check values and locks, and preview their effect on the next prompt of a chat.

        The chat can belong to any user, but must not have a team. Returns token and message counts
        but no text. Nothing is saved. For invalid values, the response contains only the warnings.
        Users need the permission `contextpolicy.change_contextpolicy`. Raises `NotFound` without
        permission to change policies and for an unknown chat, and `InvalidCharacter`.
        """
        if not self.user.has_perm("contextpolicy.change_contextpolicy"):
            raise NotFound
        asked = validate_storable_texts(PreviewRequest.read(request.data))
        chat = find_previewable_chat(asked["chat"])
        if chat is None:
            raise NotFound
        warnings = lint_policy(asked["values"], locks=asked["locks"])
        if any(warning.level == "error" for warning in warnings):
            return Response(serialize_row(PolicyPreviewOut, serialize_preview(warnings, None)))
        made = preview_proposal(chat, proposal=parse_proposal(asked), now=timezone.now())
        return Response(serialize_row(PolicyPreviewOut, serialize_preview(warnings, made)))

    @extend_schema(
        summary="Preview a policy in random chats", request=SampleRequest, responses=PolicySampleOut
    )
    @action(detail=False, methods=["post"], url_path="preview/sample")
    def sample(self, request: Request) -> Response:
        """Check values and locks, and preview their effect on the next prompts of random chats.

        The sample has up to 200 chats without a team, used in the last 90 days; fewer if checking
        them takes more than 20 seconds. Nothing is saved. For invalid values, the response contains
        only the warnings. Users need the permission `contextpolicy.change_contextpolicy`. Raises
        `NotFound` without permission to change policies, and `InvalidCharacter`.
        """
        if not self.user.has_perm("contextpolicy.change_contextpolicy"):
            raise NotFound
        asked = validate_storable_texts(SampleRequest.read(request.data))
        warnings = lint_policy(asked["values"], locks=asked["locks"])
        broken = any(warning.level == "error" for warning in warnings)
        found = None if broken else sample_chats(proposal=parse_proposal(asked), now=timezone.now())
        return Response(serialize_row(PolicySampleOut, serialize_sample(warnings, found)))


def parse_proposal(asked: dict[str, Any]) -> PolicyProposal:
    return PolicyProposal(
        slug=asked["policy"] or "-new-",
        name=asked["policy"] or "This policy",
        version=0,
        values=asked["values"],
        locks=asked["locks"],
        level=asked["place"],
    )


def serialize_sample(warnings: list[PolicyWarning], found: Sampled | None) -> dict[str, Any]:
    counts = ("in_use", "judged", "changed", "would_refuse", "low", "high")
    return {
        "findings": serialize_warnings(warnings),
        **{name: getattr(found, name) if found else 0 for name in counts},
        "worst": [
            {
                "chat": each.chat.pk,
                "now": serialize_side(each.now),
                "proposed": serialize_side(each.proposed),
            }
            for each in (found.worst if found else ())
        ],
    }


def serialize_preview(warnings: list[PolicyWarning], made: Preview | None) -> dict[str, Any]:
    return {
        "findings": serialize_warnings(warnings),
        "state": made.token if made else None,
        "now": serialize_side(made.now, made.estimate_now) if made else None,
        "proposed": serialize_side(made.proposed, made.estimate_proposed) if made else None,
    }


def serialize_estimate(likely: Estimate | None) -> dict[str, Any] | None:
    if likely is None:
        return None
    return {
        "summary_tokens": likely.summary,
        "summaries": likely.summaries,
        "turns_to_compaction": list(likely.turns) if likely.turns is not None else None,
        "by_turns": likely.by_turns,
        "cost_of_100_turns": serialize_money(likely.cost) if likely.cost is not None else None,
        "cached_share": likely.cached,
    }


def serialize_side(side: Side, likely: Estimate | None = None) -> dict[str, Any]:
    return {
        "refused": {"code": side.code, "message": side.sentence} if side.code else None,
        "tokens": side.tokens,
        "limit": side.limit,
        "parts": dict(side.parts),
        "skills": side.skills,
        "full": side.full,
        "cut": side.cut,
        "summarised": side.summarised,
        "left_out": dict(side.left_out),
        "due": side.due[0],
        "due_reason": side.due[1],
        "estimate": serialize_estimate(likely),
    }

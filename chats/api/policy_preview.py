"""The preview of a policy that nobody saved, for programs of those who may change policies."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import PreviewRequest, SampleRequest
from chats.api.money import money_json
from chats.api.outputs import PolicyPreviewOut, one
from chats.api.policy_inputs import storable
from chats.api.policy_outputs import PolicySampleOut, findings_told
from chats.api.schema import answers
from chats.ground.refusals import NotFound
from chats.simulation.estimates import Estimate
from chats.simulation.preview import Preview, Side, preview, previewable
from chats.simulation.proposals import PolicyProposal
from chats.simulation.sampling import Sampled, sample
from contextpolicy.linter.findings import Finding
from contextpolicy.linter.judge import judge


class PolicyPreview(Endpoint):
    """The next prompt of a chat now and under a policy as it is written."""

    scopes: ClassVar = {"POST": "policy:read"}

    @extend_schema(
        operation_id="policies_preview",
        request=PreviewRequest,
        responses=answers({200: PolicyPreviewOut}),
    )
    def post(self, request: Request) -> Response:
        """Judge values and locks, and compose the next prompt of a chat with them; no words of it.

        Nothing is written. Values that cannot work are told as findings, without sides. Raises
        `NotFound` for who may not change policies and for a chat that is not there, and
        `InvalidCharacter`.
        """
        if not person(request).has_perm("contextpolicy.change_contextpolicy"):
            raise NotFound
        asked = storable(PreviewRequest.read(request.data))
        chat = previewable(asked["chat"])
        if chat is None:
            raise NotFound
        findings = judge(asked["values"], locks=asked["locks"])
        if any(finding.level == "error" for finding in findings):
            return Response(one(PolicyPreviewOut, told(findings, None)))
        made = preview(chat, proposal=proposal_of(asked), now=timezone.now())
        return Response(one(PolicyPreviewOut, told(findings, made)))


class PolicySample(Endpoint):
    """The share of the chats in use that a policy as it is written would change."""

    scopes: ClassVar = {"POST": "policy:read"}

    @extend_schema(
        operation_id="policies_sample",
        request=SampleRequest,
        responses=answers({200: PolicySampleOut}),
    )
    def post(self, request: Request) -> Response:
        """Judge values and locks, and compose the next prompts of 200 random chats both ways.

        Nothing is written. Values that cannot work are told as findings, with nothing judged.
        Raises `NotFound` for who may not change policies, and `InvalidCharacter`.
        """
        if not person(request).has_perm("contextpolicy.change_contextpolicy"):
            raise NotFound
        asked = storable(SampleRequest.read(request.data))
        findings = judge(asked["values"], locks=asked["locks"])
        broken = any(finding.level == "error" for finding in findings)
        found = None if broken else sample(proposal=proposal_of(asked), now=timezone.now())
        return Response(one(PolicySampleOut, sample_told(findings, found)))


def proposal_of(asked: dict[str, Any]) -> PolicyProposal:
    """Return the policy that a request writes down."""
    return PolicyProposal(
        slug=asked["policy"] or "-new-",
        name=asked["policy"] or "This policy",
        version=0,
        values=asked["values"],
        locks=asked["locks"],
        level=asked["place"],
    )


def sample_told(findings: list[Finding], found: Sampled | None) -> dict[str, Any]:
    """Return findings and the judgement of a sample as they are written down."""
    counts = ("in_use", "judged", "changed", "would_refuse", "low", "high")
    return {
        "findings": findings_told(findings),
        **{name: getattr(found, name) if found else 0 for name in counts},
        "worst": [
            {
                "chat": each.chat.pk,
                "now": side_told(each.now),
                "proposed": side_told(each.proposed),
            }
            for each in (found.worst if found else ())
        ],
    }


def told(findings: list[Finding], made: Preview | None) -> dict[str, Any]:
    """Return findings and both sides as they are written down."""
    return {
        "findings": findings_told(findings),
        "state": made.token if made else None,
        "now": side_told(made.now, made.estimate_now) if made else None,
        "proposed": side_told(made.proposed, made.estimate_proposed) if made else None,
    }


def estimate_told(likely: Estimate | None) -> dict[str, Any] | None:
    """Return an estimate in numbers."""
    if likely is None:
        return None
    return {
        "summary_tokens": likely.summary,
        "summaries": likely.summaries,
        "turns_to_compaction": list(likely.turns) if likely.turns is not None else None,
        "by_turns": likely.by_turns,
        "cost_of_100_turns": money_json(likely.cost) if likely.cost is not None else None,
        "cached_share": likely.cached,
    }


def side_told(side: Side, likely: Estimate | None = None) -> dict[str, Any]:
    """Return one side in numbers and codes."""
    return {
        "refused": {"code": side.code, "message": side.sentence} if side.code else None,
        "tokens": side.tokens,
        "limit": side.limit,
        "parts": dict(side.parts),
        "full": side.full,
        "cut": side.cut,
        "summarised": side.summarised,
        "left_out": dict(side.left_out),
        "due": side.due[0],
        "due_reason": side.due[1],
        "estimate": estimate_told(likely),
    }

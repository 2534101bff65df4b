"""The preview of a policy that nobody saved, for programs of those who may change policies."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import PreviewRequest
from chats.api.outputs import PolicyPreviewOut, one
from chats.api.policy_inputs import storable
from chats.api.policy_outputs import findings_told
from chats.api.schema import answers
from chats.ground.refusals import NotFound
from chats.simulation.preview import Preview, Side, preview, previewable
from chats.simulation.proposals import Proposal
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
        proposal = Proposal(
            slug=asked["policy"] or "-new-",
            name=asked["policy"] or "This policy",
            version=0,
            values=asked["values"],
            locks=asked["locks"],
            level=asked["place"],
        )
        made = preview(chat, proposal=proposal, now=timezone.now())
        return Response(one(PolicyPreviewOut, told(findings, made)))


def told(findings: list[Finding], made: Preview | None) -> dict[str, Any]:
    """Return findings and both sides as they are written down."""
    return {
        "findings": findings_told(findings),
        "state": made.token if made else None,
        "now": side_told(made.now) if made else None,
        "proposed": side_told(made.proposed) if made else None,
    }


def side_told(side: Side) -> dict[str, Any]:
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
    }

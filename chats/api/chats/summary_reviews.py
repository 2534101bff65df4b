"""Review of a pending summary and its sources by administrators."""

import uuid
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import summary_review
from chats.api.core.base import Endpoint
from chats.api.core.inputs import PlainText, Strict
from chats.record import audit_access


class ReviewRequest(Strict):
    """The reason for reading another user's chat."""

    reason = PlainText(
        default="",
        help_text=(
            "Reason for reading, 10 to 300 characters; the audit log records it first. Leave "
            "it empty if the chat is yours or you gave a reason within the last 30 minutes."
        ),
    )


class ReviewSourceOut(serializers.Serializer[Any]):
    """A message that the summary covers, with its text."""

    seq = serializers.IntegerField(help_text="Sequence number of the message.")
    said_by = serializers.CharField(help_text="Display name of the author.")
    text = serializers.CharField(help_text="Text of the message.")


class SummaryReviewOut(serializers.Serializer[Any]):
    """A pending summary with the messages that it covers."""

    text = serializers.CharField(help_text="Text of the pending summary.")
    earlier = serializers.CharField(
        help_text="Text of the earlier summary that this one continues. Empty: none."
    )
    sources = ReviewSourceOut(
        many=True,
        help_text=(
            "Messages that this summary covers and `earlier` does not, in order, without erased "
            "ones."
        ),
    )
    left_out = serializers.IntegerField(
        help_text=("Number of older messages that `sources` omits, because it lists at most 500.")
    )


class ReviewViewSet(Endpoint):
    serializer_class = SummaryReviewOut
    write_scope = "audit:read"
    repeatable = ("review",)

    @extend_schema(summary="Review a pending summary", request=ReviewRequest)
    @action(detail=False, methods=["post"])
    def review(self, request: Request, compaction_id: uuid.UUID) -> Response:
        """Read a pending summary and its sources, if the policy lets you approve it.

        The audit log records the reason and the access first. If the chat is not yours, and you
        gave no reason within the last 30 minutes, a request without a reason gets 403
        `reading_not_open`. An instance that requires two people returns 403 until another auditor
        grants the request.
        """
        user, now = self.user, timezone.now()
        row = summary_review.find_reviewable_summary(user=user, compaction_id=compaction_id)
        reason = ReviewRequest.read(request.data)["reason"]
        if reason and summary_review.find_review_expiry(row, user=user, now=now) is None:
            actor = f"user:{user.pk}"
            audit_access.open_reading(
                chat_id=row.branch.chat_id, actor=actor, reason=reason, now=now
            )
        return self.respond(summary_review.read_summary(row, user=user, now=timezone.now()))

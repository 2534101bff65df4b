"""The requests of past model calls as sent, for the owner of the chat."""

import uuid
from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import Strict
from chats.api.core.outputs import serialize_row
from chats.api.core.receipt_outputs import SegmentOut
from chats.api.core.schema import Code
from chats.compaction.reconstruction import (
    SummaryRequest,
    build_summary_request_file,
    compare_with_previous_call,
    rebuild_summary_request,
)
from chats.models import Receipt
from chats.prompt.sent_request import (
    BODIES,
    FORMS,
    AsSent,
    RequestFile,
    SentLine,
    build_request_file,
    load_sent_request,
)
from chats.record import access
from chats.streams import files
from contextpolicy.engine.messages.segments import Segment

FILE: dict[Code, Any] = {
    (200, "application/json"): OpenApiTypes.OBJECT,
    (200, "text/plain"): OpenApiTypes.STR,
}


# A summary takes far fewer calls.
MOST_CALLS = 1_000


class FileQuery(Strict):
    """The format of a request."""

    form = serializers.ChoiceField(
        choices=sorted(FORMS),
        default="json",
        help_text=(
            "`json`: the request body as a file. `curl`: a shell command that sends it again to "
            "`$BASE_URL`, with the API key `$API_KEY`."
        ),
    )


class CallQuery(Strict):
    """The number of a request for a summary, if the summary took several."""

    call = serializers.IntegerField(
        default=1,
        min_value=1,
        max_value=MOST_CALLS,
        help_text=(
            "Request number for this summary, starting at 1. Long ranges are summarised in "
            "several requests, and the results are then merged."
        ),
    )


class CallFileQuery(FileQuery, CallQuery):
    """The number of a request for a summary, and the format of the file."""


class SentMessageOut(serializers.Serializer[Any]):
    """A message in a request, or one from the previous call that was dropped."""

    kind = serializers.CharField(
        help_text="Change from the previous call: `same`, `new`, or `gone` (no longer sent)."
    )
    role = serializers.CharField(help_text="Role of the message, such as `system` or `user`.")
    text = serializers.CharField(help_text="Text of the message.")
    origins = serializers.ListField(
        child=serializers.CharField(),
        help_text="Kinds of the segments that the message consists of, such as `history`.",
    )
    tokens = serializers.IntegerField(help_text="Number of tokens, counted by the local tokenizer.")
    segments = SegmentOut(
        many=True, help_text="Segments of the prompt that the message consists of."
    )


class PrefixOut(serializers.Serializer[Any]):
    """The prefix that a request shares with the previous call."""

    messages = serializers.IntegerField(help_text="Number of messages in the prefix.")
    tokens = serializers.IntegerField(
        help_text="Number of tokens in the prefix, counted by the local tokenizer."
    )
    broken_by = serializers.CharField(
        help_text=(
            "Origin of the first segment that differs, such as `summary` or `history`. Empty: "
            "the previous request is an unchanged prefix."
        )
    )
    seq = serializers.IntegerField(
        help_text=(
            "Sequence number of the message that differs. 0: the difference is not in a message."
        )
    )
    before = serializers.UUIDField(
        allow_null=True,
        help_text="Id of the receipt of the previous call. Null: the request is for a summary.",
    )


class SentRequestOut(serializers.Serializer[Any]):
    """The request of a call, rebuilt from stored data."""

    receipt = serializers.UUIDField(help_text="Id of the receipt of the call.")
    fault = serializers.CharField(
        help_text=(
            "Reason why the request cannot be shown: `erased`, `missing` (data was deleted) or "
            "`differs` (the hash does not match). Empty: the rebuilt request equals the request "
            "as sent."
        )
    )
    reason = serializers.CharField(
        help_text="Human-readable explanation of `fault`. Empty: no fault."
    )
    sha256 = serializers.CharField(
        help_text=(
            "SHA-256 of the prompt in hex, recorded before the call. Empty: a part was erased."
        )
    )
    body_sha256 = serializers.CharField(
        help_text=(
            "SHA-256 of the request body as sent, in hex. Empty: not stored, or a part was erased."
        )
    )
    body = serializers.ChoiceField(
        choices=sorted(BODIES),
        help_text=(
            "`same`: the rebuilt body equals the body as sent, byte for byte. `options`: the body "
            "as sent had options that have changed since. `unknown`: the hash of the body is not "
            "stored, or `fault` is not empty."
        ),
    )
    hidden = serializers.BooleanField(
        help_text=(
            "True: the policy hides its system text, so a notice replaces the system messages."
        )
    )
    messages = SentMessageOut(
        many=True,
        help_text=(
            "Messages of the request, each compared with the previous call, and messages of that "
            "call that are no longer sent. In order; empty if there is a fault."
        ),
    )
    prefix = PrefixOut(
        allow_null=True,
        help_text=(
            "Prefix shared with the previous call. Null: there is no previous call, or one of the "
            "two requests cannot be rebuilt."
        ),
    )
    left_out = serializers.ListField(
        child=serializers.ListField(),
        help_text=(
            "Ranges of messages left out of the prompt, each as [first sequence number, last "
            "sequence number, reason]."
        ),
    )


class SummaryMessageOut(serializers.Serializer[Any]):
    """A message in a summary request, as sent to the model."""

    role = serializers.CharField(help_text="Role of the message, such as `system` or `user`.")
    text = serializers.CharField(help_text="Text of the message.")


class SummaryRequestOut(serializers.Serializer[Any]):
    """The request for a summary, rebuilt from stored data and compared with its commitment."""

    compaction = serializers.UUIDField(help_text="Id of the compaction.")
    fault = serializers.CharField(
        help_text=(
            "Reason why the request cannot be shown: `none` (no model was called), `erased`, "
            "`parts` "
            "(intermediate texts are not stored) or `differs` (data was changed). Empty: the "
            "request matches the commitment in the audit log."
        )
    )
    reason = serializers.CharField(
        help_text="Human-readable explanation of `fault`. Empty: no fault."
    )
    body_sha256 = serializers.CharField(
        help_text="SHA-256 of the request body as sent, in hex. Empty: not stored."
    )
    body = serializers.ChoiceField(
        choices=sorted(BODIES),
        help_text="`same`, `options` or `unknown`, as in the request of a model call.",
    )
    call = serializers.IntegerField(help_text="Call number, starting at 1.")
    calls = serializers.IntegerField(help_text="Number of calls that wrote the summary.")
    commitment = serializers.CharField(
        help_text="Commitment to this call's prompt in the audit log. Empty: no model was called."
    )
    messages = SummaryMessageOut(
        many=True,
        help_text=(
            "Messages of the request, in order. If the policy hides its texts, a notice replaces "
            "its instruction. Empty if there is a fault."
        ),
    )
    compared = SentMessageOut(
        many=True, help_text="Messages of the request, compared with the previous summary call."
    )
    prefix = PrefixOut(
        allow_null=True,
        help_text=(
            "Prefix shared with the previous summary call. Null: no call to compare with, or "
            "there is a fault."
        ),
    )


class SentRequestViewSet(Endpoint):
    """The request of a model call, and its file."""

    serializer_class = SentRequestOut

    @extend_schema(operation_id="chats_turns_request", summary="Read a model request")
    def retrieve(
        self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID, receipt_id: uuid.UUID
    ) -> Response:
        """Read the request of a model call, compared with the previous call.

        Raises `NotFound`.
        """
        row = access.get_receipt(
            user=self.user, chat_id=chat_id, turn_id=turn_id, receipt_id=receipt_id
        )
        return Response(serialize_sent_request(row, load_sent_request(row, sees_hidden=False)))

    @extend_schema(summary="Download a model request", parameters=[FileQuery], responses=FILE)
    @action(detail=False)
    def file(
        self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID, receipt_id: uuid.UUID
    ) -> HttpResponse:
        """Download a request body, or a command that sends it again.

        Neither the body nor the command contains the provider's API key. Hashes replace image data.
        Raises `NotFound` and `RequestNotWhole`.
        """
        row = access.get_receipt(
            user=self.user, chat_id=chat_id, turn_id=turn_id, receipt_id=receipt_id
        )
        form = FileQuery.read(request.query_params.dict())["form"]
        return download_request_file(
            build_request_file(load_sent_request(row, sees_hidden=False), form=form)
        )


class SummaryRequestViewSet(Endpoint):
    """A request for a summary, and its file."""

    serializer_class = SummaryRequestOut

    @extend_schema(
        operation_id="chats_compactions_request",
        summary="Read a summary request",
        parameters=[CallQuery],
    )
    def retrieve(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Read one of the requests that wrote a summary, rebuilt from stored data.

        Raises `NotFound` and `NoSuchCall`.
        """
        row = access.get_compaction(user=self.user, chat_id=chat_id, compaction_id=compaction_id)
        number = CallQuery.read(request.query_params.dict())["call"]
        return Response(
            serialize_summary_request(row.pk, compare_with_previous_call(row, number=number))
        )

    @extend_schema(summary="Download a summary request", parameters=[CallFileQuery], responses=FILE)
    @action(detail=False)
    def file(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> HttpResponse:
        """Download the body of a summary request, or a command that sends it again.

        Neither the body nor the command contains the provider's API key. Raises `NotFound`,
        `NoSuchCall` and `RequestNotWhole`.
        """
        row = access.get_compaction(user=self.user, chat_id=chat_id, compaction_id=compaction_id)
        query = CallFileQuery.read(request.query_params.dict())
        found = rebuild_summary_request(row, number=query["call"])
        return download_request_file(build_summary_request_file(found, form=query["form"]))


def serialize_sent_request(row: Receipt, sent: AsSent) -> dict[str, Any]:
    """Return a request as sent, compared with the previous call, as JSON."""
    said = {
        "receipt": row.pk,
        "fault": sent.found.fault,
        "reason": sent.fault,
        "sha256": row.prompt_sha256,
        "body_sha256": row.body_sha256,
        "body": sent.body,
        "hidden": sent.has_hidden,
        "messages": [serialize_sent_line(line) for line in sent.lines],
        "prefix": sent.prefix,
        "left_out": row.left_out,
    }
    return serialize_row(SentRequestOut, said)


def serialize_sent_line(line: SentLine) -> dict[str, Any]:
    """Return a message of a request with its segments, as JSON."""
    return {
        "kind": line.kind,
        "role": line.role,
        "text": line.text,
        "origins": line.origins,
        "tokens": line.tokens,
        "segments": [serialize_segment(segment) for segment in line.segments],
    }


def serialize_segment(segment: Segment) -> list[Any]:
    """Return a segment in the format of receipts."""
    place = [segment.origin, segment.message_id, segment.seq, segment.tokens]
    return [*place, segment.cut_to, segment.text_ref, segment.result_limit]


def serialize_summary_request(compaction_id: uuid.UUID, found: SummaryRequest) -> dict[str, Any]:
    """Return a summary request, compared with the previous call, as JSON."""
    said = {
        "compaction": compaction_id,
        "fault": found.fault,
        "reason": found.reason,
        "body_sha256": found.body_sha256,
        "body": found.body,
        "call": found.number,
        "calls": found.calls,
        "commitment": found.commitment,
        "messages": [{"role": wire.role, "text": wire.content} for wire in found.messages],
        "compared": [serialize_sent_line(line) for line in found.lines],
        "prefix": found.prefix,
    }
    return serialize_row(SummaryRequestOut, said)


def download_request_file(file: RequestFile) -> HttpResponse:
    """Return a request as a file download."""
    return files.build_text_download(file.text, name=file.name, kind=file.kind)

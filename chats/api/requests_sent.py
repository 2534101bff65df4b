"""The requests of past calls as they were sent, for the owner of the chat."""

import uuid
from typing import Any, ClassVar

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Strict
from chats.api.outputs import one
from chats.api.receipt_outputs import SegmentOut
from chats.api.schema import READ_ERRORS, Code, answers
from chats.compaction.rebuilt import (
    SummaryRequest,
    beside_the_call_before,
    summary_file,
    summary_request_of,
)
from chats.models import Receipt
from chats.prompt.as_sent import BODIES, FORMS, AsSent, RequestFile, SentLine, as_sent, file_of
from chats.record import access
from chats.streams import files
from contextpolicy.engine.segments import Segment

FILE: dict[Code, Any] = {
    (200, "application/json"): OpenApiTypes.OBJECT,
    (200, "text/plain"): OpenApiTypes.STR,
}


# The calls of a summary are far fewer.
MOST_CALLS = 1_000


class FileQuery(Strict):
    """The form in which a request is sent."""

    form = serializers.ChoiceField(
        choices=sorted(FORMS),
        default="json",
        help_text="`json`: the body; `curl`: a command for a shell, which takes the key from"
        " `$API_KEY`.",
    )


class CallQuery(Strict):
    """The call of a summary that is asked for."""

    call = serializers.IntegerField(
        default=1,
        min_value=1,
        max_value=MOST_CALLS,
        help_text="Which of its calls, from 1: a long range is read in parts, which are merged.",
    )


class CallFileQuery(FileQuery, CallQuery):
    """The call of a summary that is asked for as a file, and the form of it."""


class SentMessageOut(serializers.Serializer[Any]):
    """A message of a request, or one that only the call before had in its place."""

    kind = serializers.CharField(
        help_text="Beside the call before: `same`, `new`, or `gone`: no longer sent."
    )
    role = serializers.CharField()
    text = serializers.CharField()
    origins = serializers.ListField(child=serializers.CharField())
    tokens = serializers.IntegerField(help_text="In our count.")
    segments = SegmentOut(many=True, help_text="The parts that it is made of.")


class PrefixOut(serializers.Serializer[Any]):
    """The beginning that a request shares with the call before."""

    messages = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="In our count.")
    broken_by = serializers.CharField(
        help_text="The origin of the first part that differs. Empty: it only goes on."
    )
    seq = serializers.IntegerField(help_text="Of the message that differs; 0: it is none.")
    before = serializers.UUIDField(allow_null=True, help_text="The receipt of the call before.")


class SentRequestOut(serializers.Serializer[Any]):
    """The request of a call, built again from what is stored."""

    receipt = serializers.UUIDField()
    fault = serializers.CharField(
        help_text="Why it is not what was sent: `erased`, `missing` or `differs`. Empty: it is."
    )
    reason = serializers.CharField(help_text="The fault as a sentence.")
    sha256 = serializers.CharField(
        help_text="Of the prompt, as it was noted before the call. Empty: a part was erased."
    )
    body_sha256 = serializers.CharField(
        help_text="Of the bytes that left as the body of the call. Empty: none is kept."
    )
    body = serializers.ChoiceField(
        choices=sorted(BODIES),
        help_text="`same`: the body as it is built now is the one that left, byte for byte;"
        " `options`: that one had other options than the model has today; `unknown`.",
    )
    hidden = serializers.BooleanField(help_text="The policy hides its system text.")
    messages = SentMessageOut(many=True, help_text="Empty where there is a fault.")
    prefix = PrefixOut(allow_null=True, help_text="Null: there is no call to compare it with.")
    left_out = serializers.ListField(
        child=serializers.ListField(), help_text="[[from seq, to seq, reason], …]"
    )


class SummaryMessageOut(serializers.Serializer[Any]):
    """A message of the request for a summary."""

    role = serializers.CharField()
    text = serializers.CharField()


class SummaryRequestOut(serializers.Serializer[Any]):
    """The request for a summary, built again from what is stored."""

    compaction = serializers.UUIDField()
    fault = serializers.CharField(
        help_text="Why it cannot be shown: `none` (no model was asked), `erased`, `parts` or"
        " `differs`. Empty: it fits the ledger's commitment."
    )
    reason = serializers.CharField(help_text="The fault as a sentence.")
    body_sha256 = serializers.CharField(
        help_text="Of the bytes that left as the body of the call. Empty: none is kept."
    )
    body = serializers.ChoiceField(
        choices=sorted(BODIES), help_text="As for the request of a call: `same`, `options`, …"
    )
    call = serializers.IntegerField(help_text="Which call of the summary this is, from 1.")
    calls = serializers.IntegerField(help_text="How many calls the summary took.")
    commitment = serializers.CharField(
        help_text="What the ledger holds of this call's prompt. Empty: no model was asked."
    )
    messages = SummaryMessageOut(many=True)
    compared = SentMessageOut(
        many=True,
        help_text="The messages beside those of the call for a summary before this one.",
    )
    prefix = PrefixOut(allow_null=True, help_text="As for the request of a call.")


class SentRequest(Endpoint):
    """The request of a call."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_turns_request",
        responses=answers({200: SentRequestOut}, errors=READ_ERRORS),
    )
    def get(
        self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID, receipt_id: uuid.UUID
    ) -> Response:
        """Read what the model was sent in this call, and what it shares with the call before.

        Raises `NotFound`.
        """
        row = access.receipt_for(
            user=person(request), chat_id=chat_id, turn_id=turn_id, receipt_id=receipt_id
        )
        return Response(request_json(row, as_sent(row, sees_hidden=False)))


class SentRequestFile(Endpoint):
    """The request of a call as a file."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_turns_request_file",
        parameters=[FileQuery],
        responses=answers(FILE, errors=(*READ_ERRORS, 409)),
    )
    def get(
        self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID, receipt_id: uuid.UUID
    ) -> HttpResponse:
        """Read the body that was sent, or a command that sends it again, without its key.

        Raises `NotFound` and `RequestNotWhole`.
        """
        row = access.receipt_for(
            user=person(request), chat_id=chat_id, turn_id=turn_id, receipt_id=receipt_id
        )
        form = FileQuery.read(request.query_params.dict())["form"]
        return as_file(file_of(as_sent(row, sees_hidden=False), form=form))


class SummaryAsked(Endpoint):
    """The request of a summary."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_compactions_request",
        parameters=[CallQuery],
        responses=answers({200: SummaryRequestOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """Read what the summariser was asked in one call. Raises `NotFound` and `NoSuchCall`."""
        row = access.compaction_for(
            user=person(request), chat_id=chat_id, compaction_id=compaction_id
        )
        number = CallQuery.read(request.query_params.dict())["call"]
        return Response(summary_json(row.pk, beside_the_call_before(row, number=number)))


class SummaryAskedFile(Endpoint):
    """The request of a summary as a file."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_compactions_request_file",
        parameters=[CallFileQuery],
        responses=answers(FILE, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> HttpResponse:
        """Read the body that the summariser was sent, or a command that sends it again.

        Raises `NotFound`, `NoSuchCall` and `RequestNotWhole`.
        """
        row = access.compaction_for(
            user=person(request), chat_id=chat_id, compaction_id=compaction_id
        )
        query = CallFileQuery.read(request.query_params.dict())
        found = summary_request_of(row, number=query["call"])
        return as_file(summary_file(found, form=query["form"]))


def request_json(row: Receipt, sent: AsSent) -> dict[str, Any]:
    """Return a request as it was sent, with what it shares with the call before."""
    said = {
        "receipt": row.pk,
        "fault": sent.found.fault,
        "reason": sent.fault,
        "sha256": row.prompt_sha256,
        "body_sha256": row.body_sha256,
        "body": sent.body,
        "hidden": sent.has_hidden,
        "messages": [message_json(line) for line in sent.lines],
        "prefix": sent.prefix,
        "left_out": row.left_out,
    }
    return one(SentRequestOut, said)


def message_json(line: SentLine) -> dict[str, Any]:
    """Return a message of a request, with the parts that it is made of."""
    return {
        "kind": line.kind,
        "role": line.role,
        "text": line.text,
        "origins": line.origins,
        "tokens": line.tokens,
        "segments": [as_stored(segment) for segment in line.segments],
    }


def as_stored(segment: Segment) -> list[Any]:
    """Return a part of a prompt as receipts have it."""
    place = [segment.origin, segment.message_id, segment.seq, segment.tokens]
    return [*place, segment.cut_to, segment.text_ref, segment.result_limit]


def summary_json(compaction_id: uuid.UUID, found: SummaryRequest) -> dict[str, Any]:
    """Return the request for a summary, with what it shares with the call before."""
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
        "compared": [message_json(line) for line in found.lines],
        "prefix": found.prefix,
    }
    return one(SummaryRequestOut, said)


def as_file(file: RequestFile) -> HttpResponse:
    """Send a request as a file."""
    return files.short(file.text, name=file.name, kind=file.kind)

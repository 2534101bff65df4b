"""Auditors' access to model requests in other people's chats.

An auditor opens one chat at a time, with a reason. Access lasts for 30 minutes.
"""

import uuid
from datetime import datetime
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import auditing
from chats.api.chats.requests_sent import (
    FILE,
    CallFileQuery,
    CallQuery,
    FileQuery,
    SentRequestOut,
    SummaryRequestOut,
    download_request_file,
    serialize_sent_request,
    serialize_summary_request,
)
from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, Identifier, PlainText, Strict
from chats.api.core.outputs import serialize_row, serialize_rows
from chats.compaction.reconstruction import build_summary_request_file
from chats.ground.refusals import NotFound
from chats.models import Chat
from chats.prompt.sent_request import build_request_file
from chats.record import audit_access

# No HEAD: it would record an access in the audit log although no text was sent.
ONLY_SENT = ["get"]
AUDITOR = ("contextpolicy.view_auditevent", "chats.view_receipt")
ASKED = "asked/<uuid:asked_id>"


class NewReading(Strict):
    """The chat to read, and the reason."""

    chat = Identifier(help_text="Id of the chat to read, of any user.")
    reason = PlainText(
        help_text=f"Reason for reading, {audit_access.SHORTEST} to {audit_access.LONGEST} "
        "characters with at least five letters or digits, three of them different. The audit log "
        "records it."
    )


class ReadingOut(serializers.Serializer[audit_access.Reading]):
    """Your access to one chat as an auditor: its reason, start and end."""

    chat = serializers.UUIDField(source="chat_id", help_text="Id of the chat.")
    reason = serializers.CharField(
        help_text="Reason that you gave. Repeated spaces are reduced to one."
    )
    opened_at = serializers.DateTimeField(
        help_text="Time at which you opened the chat, or another auditor granted your request."
    )
    until = serializers.DateTimeField(
        help_text="Time at which the access ends: 30 minutes after `opened_at`."
    )


class ReadingRequestOut(serializers.Serializer[audit_access.ReadingRequest]):
    """An auditor's request to read a chat, which waits for a second auditor."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="chat_id", help_text="Id of the chat to read.")
    user = serializers.IntegerField(help_text="Id of the requesting user.")
    reason = serializers.CharField(help_text="Reason given by the auditor.")
    asked_at = serializers.DateTimeField()
    until = serializers.DateTimeField(
        help_text=(
            "Time at which the request expires if no auditor answers it: 24 hours after `asked_at`."
        )
    )


class ReadingRequestsOut(serializers.Serializer[Any]):
    """Reading requests that wait for a second auditor."""

    data = ReadingRequestOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class ReadingsOut(serializers.Serializer[Any]):
    """The chats that the auditor has opened and can read now."""

    data = ReadingOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`


class ReadingViewSet(Endpoint):
    serializer_class = ReadingOut
    read_scope = write_scope = "audit:read"
    permissions: ClassVar = dict.fromkeys(
        ("list", "create", "retrieve", "destroy", "asked", "grant", "refuse"), AUDITOR
    )
    lookup_url_kwarg = "chat_id"

    @extend_schema(summary="List chats opened for reading", responses=ReadingsOut)
    def list(self, request: Request) -> Response:
        """List the chats that you have opened for reading and can read now, last opened first."""
        found = audit_access.list_open_readings(actor=self.actor, now=timezone.now())
        return Response({"data": serialize_rows(ReadingOut, found)})

    @extend_schema(
        operation_id="audit_readings_open",
        summary="Open a chat for reading",
        request=NewReading,
        responses={201: ReadingOut, 202: ReadingRequestOut},
    )
    def create(self, request: Request) -> Response:
        """Open a chat for reading. You can read its model requests for 30 minutes.

        The audit log records the reason first. If the instance requires two people, it returns 202,
        and another auditor must grant the request within 24 hours. A repeated request for the same
        chat replaces the earlier one. Raises `NotFound`, `ReasonNeeded` and `InvalidCharacter`.
        """
        now = timezone.now()
        wanted = NewReading.read(request.data)
        chat_id = wanted["chat"]
        try:
            until = audit_access.open_reading(
                chat_id=chat_id, actor=self.actor, reason=wanted["reason"], now=now
            )
        except Chat.DoesNotExist:
            raise NotFound from None
        if until is None:
            asked = audit_access.find_waiting_request(chat_id=chat_id, actor=self.actor, now=now)
            if asked is None:
                raise NotFound
            return Response(serialize_row(ReadingRequestOut, asked), status=202)
        return Response(serialize_reading(chat_id, actor=self.actor, now=now), status=201)

    @extend_schema(summary="Get your access to a chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the reason for your access to a chat, and the time at which the access ends.

        Raises `NotFound` if you have no access.
        """
        return Response(serialize_reading(chat_id, actor=self.actor, now=timezone.now()))

    @extend_schema(operation_id="audit_readings_end", summary="End your access to a chat")
    def destroy(self, request: Request, chat_id: uuid.UUID) -> Response:
        """End your access to a chat early. Raises `NotFound` if you have no access."""
        EmptyBody.read(request.data)
        try:
            audit_access.close_reading(chat_id=chat_id, actor=self.actor, now=timezone.now())
        except (audit_access.ReadingNotOpen, Chat.DoesNotExist):
            raise NotFound from None
        return Response(status=204)

    @extend_schema(summary="List reading requests", responses=ReadingRequestsOut)
    @action(detail=False)
    def asked(self, request: Request) -> Response:
        """List the requests of all auditors to read a chat that wait for a second auditor.

        The newest comes first. Empty if the instance does not require a second auditor.
        """
        return Response(
            {
                "data": serialize_rows(
                    ReadingRequestOut, audit_access.list_reading_requests(now=timezone.now())
                )
            }
        )

    @extend_schema(summary="Grant a reading request", responses=ReadingRequestOut)
    @action(detail=False, methods=["post"], url_path=f"{ASKED}/grant")
    def grant(self, request: Request, asked_id: uuid.UUID) -> Response:
        """Grant another auditor's request to read a chat. Their access ends 30 minutes later.

        Raises `NotFound` unless the request is pending, and `SecondAuditorNeeded` for your own.
        """
        return self.answer(request, asked_id, is_granted=True)

    @extend_schema(summary="Refuse a reading request", responses=ReadingRequestOut)
    @action(detail=False, methods=["post"], url_path=f"{ASKED}/refuse")
    def refuse(self, request: Request, asked_id: uuid.UUID) -> Response:
        """Refuse another auditor's reading request. The audit log records it.

        Raises `NotFound` unless the request is pending, and `SecondAuditorNeeded` for your
        own.
        """
        return self.answer(request, asked_id, is_granted=False)

    def answer(self, request: Request, asked_id: uuid.UUID, *, is_granted: bool) -> Response:
        """Grant or refuse another auditor's reading request."""
        EmptyBody.read(request.data)
        asked = audit_access.decide_reading_request(
            asked_id, is_granted=is_granted, actor=self.actor, now=timezone.now()
        )
        return Response(serialize_row(ReadingRequestOut, asked))


class AuditedRequestViewSet(Endpoint):
    """Model requests in other people's chats, also as files."""

    serializer_class = SentRequestOut
    read_scope = "audit:read"
    permissions: ClassVar = {"retrieve": AUDITOR, "file": AUDITOR}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_receipts_request", summary="Read a model request as an auditor"
    )
    def retrieve(self, request: Request, receipt_id: uuid.UUID) -> Response:
        """Read a model request, including hidden text, from a chat that you opened for reading.

        The audit log records the access. Raises `NotFound` and `ReadingNotOpen`.
        """
        row = auditing.find_any_receipt(receipt_id)
        sent = auditing.read_prompt(row, actor=self.actor, now=timezone.now())
        return Response(serialize_sent_request(row, sent))

    @extend_schema(
        summary="Download a model request as an auditor", parameters=[FileQuery], responses=FILE
    )
    @action(detail=False)
    def file(self, request: Request, receipt_id: uuid.UUID) -> HttpResponse:
        """Download a request body, or a command that sends it again.

        Neither the body nor the command contains the provider's API key. Hashes replace image data.
        The audit log records the download. Raises `NotFound`, `ReadingNotOpen` and
        `RequestNotWhole`.
        """
        row = auditing.find_any_receipt(receipt_id)
        form = FileQuery.read(request.query_params.dict())["form"]
        sent = auditing.read_prompt(row, actor=self.actor, now=timezone.now(), form=form)
        return download_request_file(build_request_file(sent, form=form))


class AuditedSummaryRequestViewSet(Endpoint):
    """Summary requests in other people's chats, also as files."""

    serializer_class = SummaryRequestOut
    read_scope = "audit:read"
    permissions: ClassVar = {"retrieve": AUDITOR, "file": AUDITOR}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_compactions_request",
        summary="Read a summary request as an auditor",
        parameters=[CallQuery],
    )
    def retrieve(self, request: Request, compaction_id: uuid.UUID) -> Response:
        """Read one of the requests that wrote a summary, in a chat that you opened for reading.

        The audit log records the access. Raises `NotFound`, `NoSuchCall` and `ReadingNotOpen`.
        """
        row = auditing.find_any_compaction(compaction_id)
        number = CallQuery.read(request.query_params.dict())["call"]
        found = auditing.read_summary_request(
            row, number=number, actor=self.actor, now=timezone.now()
        )
        return Response(serialize_summary_request(row.pk, found))

    @extend_schema(
        summary="Download a summary request as an auditor",
        parameters=[CallFileQuery],
        responses=FILE,
    )
    @action(detail=False)
    def file(self, request: Request, compaction_id: uuid.UUID) -> HttpResponse:
        """Download the body of a summary request, or a command that sends it again.

        Neither the body nor the command contains the provider's API key. The audit log records the
        download. Raises `NotFound`, `NoSuchCall`, `ReadingNotOpen` and `RequestNotWhole`.
        """
        row = auditing.find_any_compaction(compaction_id)
        query = CallFileQuery.read(request.query_params.dict())
        number, form = query["call"], query["form"]
        now = timezone.now()
        found = auditing.read_summary_request(
            row, number=number, actor=self.actor, now=now, form=form
        )
        return download_request_file(build_summary_request_file(found, form=form))


def serialize_reading(chat_id: uuid.UUID, *, actor: str, now: datetime) -> dict[str, Any]:
    """Return the auditor's access to a chat. Raises `NotFound` without access."""
    there = audit_access.list_open_readings(actor=actor, now=now, chat_id=chat_id)
    if not there:
        raise NotFound
    return serialize_row(ReadingOut, there[0])

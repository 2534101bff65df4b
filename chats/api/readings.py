"""Auditors read the words of other people's calls: with a reason, one chat for half an hour."""

import uuid
from datetime import datetime
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import auditing
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Nothing, PlainText, Strict
from chats.api.outputs import items, one
from chats.api.policy_access import require
from chats.api.requests_sent import (
    FILE,
    CallFileQuery,
    CallQuery,
    FileQuery,
    SentRequestOut,
    SummaryRequestOut,
    as_file,
    request_json,
    summary_json,
)
from chats.api.schema import READ_ERRORS, answers
from chats.compaction.rebuilt import summary_file
from chats.ground.refusals import NotFound
from chats.models import Chat
from chats.prompt.as_sent import file_of
from chats.record import reading

# No HEAD: the ledger would say that words were read, and none were sent.
ONLY_SENT = ["get"]


class NewReading(Strict):
    """A chat that is to be read, and why."""

    chat = serializers.UUIDField()
    reason = PlainText(
        help_text=f"{reading.SHORTEST} to {reading.LONGEST} characters. It stands in the ledger."
    )


class ReadingOut(serializers.Serializer[reading.Reading]):
    """The permission to read one chat."""

    chat = serializers.UUIDField(source="chat_id")
    reason = serializers.CharField()
    opened_at = serializers.DateTimeField()
    until = serializers.DateTimeField()


class AskedOut(serializers.Serializer[reading.ReadingRequest]):
    """The wish of an auditor to read a chat, which another one has not answered yet."""

    id = serializers.UUIDField()
    chat = serializers.UUIDField(source="chat_id")
    user = serializers.IntegerField(help_text="The id of who asks.")
    reason = serializers.CharField()
    asked_at = serializers.DateTimeField()
    until = serializers.DateTimeField(help_text="It is forgotten then.")


class ManyAskedOut(serializers.Serializer[Any]):
    """The wishes that wait for a second auditor."""

    data = AskedOut(many=True)  # type: ignore[assignment]  # the base has another


class ReadingsOut(serializers.Serializer[Any]):
    """The chats that somebody may read now."""

    data = ReadingOut(many=True)  # type: ignore[assignment]  # the base has another


def auditor(request: Request) -> str:
    """Return who asks, as the ledger names them.

    Raises `Forbidden` and `NotFound` for who may not read the ledger and receipts.
    """
    user = person(request)
    require(user, "view_auditevent")
    require(user, "view_receipt", app="chats")
    return f"user:{user.pk}"


class Readings(Endpoint):
    """The chats that somebody may read."""

    scopes: ClassVar = {"GET": "audit:read", "POST": "audit:read"}

    @extend_schema(
        operation_id="audit_readings_list",
        responses=answers({200: ReadingsOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the chats that one may read now, the last opened first."""
        found = reading.readings(actor=auditor(request), now=timezone.now())
        return Response({"data": items(ReadingOut, found)})

    @extend_schema(
        operation_id="audit_readings_open",
        request=NewReading,
        responses=answers({201: ReadingOut, 202: AskedOut}),
    )
    def post(self, request: Request) -> Response:
        """Say why a chat is read, which opens its calls for half an hour.

        The reason stands in the ledger of the chat before anything is shown. Where the instance
        asks for two persons, the answer is 202, and another auditor grants it. Raises `NotFound`,
        `ReasonNeeded` and `InvalidCharacter`.
        """
        actor, now = auditor(request), timezone.now()
        wanted = NewReading.read(request.data)
        chat_id = wanted["chat"]
        try:
            until = reading.open_chat(
                chat_id=chat_id, actor=actor, reason=wanted["reason"], now=now
            )
        except Chat.DoesNotExist:
            raise NotFound from None
        if until is None:
            asked = reading.waiting_of(chat_id=chat_id, actor=actor, now=now)
            if asked is None:
                raise NotFound
            return Response(one(AskedOut, asked), status=202)
        return Response(reading_json(chat_id, actor=actor, now=now), status=201)


class AskedReadings(Endpoint):
    """The wishes of auditors to read."""

    scopes: ClassVar = {"GET": "audit:read"}

    @extend_schema(
        operation_id="audit_readings_asked",
        responses=answers({200: ManyAskedOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List what waits for a second auditor, one's own too, the newest first.

        Always empty where the instance does not ask for two persons.
        """
        auditor(request)
        return Response({"data": items(AskedOut, reading.asked(now=timezone.now()))})


class GrantReading(Endpoint):
    """The consent of a second auditor."""

    scopes: ClassVar = {"POST": "audit:read"}

    @extend_schema(
        operation_id="audit_readings_grant", request=None, responses=answers({200: AskedOut})
    )
    def post(self, request: Request, asked_id: uuid.UUID) -> Response:
        """Let another auditor read the chat they asked for; their half hour begins now.

        Raises `NotFound` where it waits no longer, and `SecondAuditorNeeded` for one's own.
        """
        return answered(request, asked_id, is_granted=True)


class RefuseReading(Endpoint):
    """The refusal of a second auditor."""

    scopes: ClassVar = {"POST": "audit:read"}

    @extend_schema(
        operation_id="audit_readings_refuse", request=None, responses=answers({200: AskedOut})
    )
    def post(self, request: Request, asked_id: uuid.UUID) -> Response:
        """Refuse another auditor the chat they asked for; the ledger has it.

        Raises `NotFound` where it waits no longer, and `SecondAuditorNeeded` for one's own.
        """
        return answered(request, asked_id, is_granted=False)


class OneReading(Endpoint):
    """The permission to read one chat."""

    scopes: ClassVar = {"GET": "audit:read", "DELETE": "audit:read"}

    @extend_schema(
        operation_id="audit_readings_get",
        responses=answers({200: ReadingOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read why and until when one may read the chat. Raises `NotFound` where one may not."""
        actor = auditor(request)
        return Response(reading_json(chat_id, actor=actor, now=timezone.now()))

    @extend_schema(operation_id="audit_readings_end", request=None, responses=answers({204: None}))
    def delete(self, request: Request, chat_id: uuid.UUID) -> Response:
        """End one's reading of the chat before its time. Raises `NotFound` where there is none."""
        actor = auditor(request)
        Nothing.read(request.data)
        try:
            reading.end(chat_id=chat_id, actor=actor, now=timezone.now())
        except (reading.ReadingNotOpen, Chat.DoesNotExist):
            raise NotFound from None
        return Response(status=204)


class ReadRequest(Endpoint):
    """The request of a call in somebody's chat."""

    scopes: ClassVar = {"GET": "audit:read"}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_receipts_request",
        responses=answers({200: SentRequestOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, receipt_id: uuid.UUID) -> Response:
        """Read what a model was sent, hidden texts too, in a chat that one has opened.

        Raises `NotFound` and `ReadingNotOpen`.
        """
        actor = auditor(request)
        row = auditing.receipt_of(receipt_id)
        sent = auditing.read_prompt(row, actor=actor, now=timezone.now())
        return Response(request_json(row, sent))


class ReadRequestFile(Endpoint):
    """The request of a call in somebody's chat as a file."""

    scopes: ClassVar = {"GET": "audit:read"}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_receipts_request_file",
        parameters=[FileQuery],
        responses=answers(FILE, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, receipt_id: uuid.UUID) -> HttpResponse:
        """Read the body that was sent, or a command that sends it again, without its key.

        Raises `NotFound`, `ReadingNotOpen` and `RequestNotWhole`.
        """
        actor = auditor(request)
        row = auditing.receipt_of(receipt_id)
        form = FileQuery.read(request.query_params.dict())["form"]
        sent = auditing.read_prompt(row, actor=actor, now=timezone.now(), form=form)
        return as_file(file_of(sent, form=form))


class ReadSummaryRequest(Endpoint):
    """The request of a summary in somebody's chat."""

    scopes: ClassVar = {"GET": "audit:read"}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_compactions_request",
        parameters=[CallQuery],
        responses=answers({200: SummaryRequestOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, compaction_id: uuid.UUID) -> Response:
        """Read what the summariser was asked in one call, in a chat that one has opened.

        Raises `NotFound`, `NoSuchCall` and `ReadingNotOpen`.
        """
        actor = auditor(request)
        row = auditing.summary_of(compaction_id)
        number = CallQuery.read(request.query_params.dict())["call"]
        found = auditing.read_summary_request(row, number=number, actor=actor, now=timezone.now())
        return Response(summary_json(row.pk, found))


class ReadSummaryRequestFile(Endpoint):
    """The request of a summary in somebody's chat as a file."""

    scopes: ClassVar = {"GET": "audit:read"}
    http_method_names: ClassVar = ONLY_SENT  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_compactions_request_file",
        parameters=[CallFileQuery],
        responses=answers(FILE, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, compaction_id: uuid.UUID) -> HttpResponse:
        """Read the body that the summariser was sent, or a command that sends it again.

        Raises `NotFound`, `NoSuchCall`, `ReadingNotOpen` and `RequestNotWhole`.
        """
        actor = auditor(request)
        row = auditing.summary_of(compaction_id)
        query = CallFileQuery.read(request.query_params.dict())
        number, form = query["call"], query["form"]
        now = timezone.now()
        found = auditing.read_summary_request(row, number=number, actor=actor, now=now, form=form)
        return as_file(summary_file(found, form=form))


def answered(request: Request, asked_id: uuid.UUID, *, is_granted: bool) -> Response:
    """Answer what another auditor asked for."""
    actor = auditor(request)
    Nothing.read(request.data)
    asked = reading.answer(asked_id, is_granted=is_granted, actor=actor, now=timezone.now())
    return Response(one(AskedOut, asked))


def reading_json(chat_id: uuid.UUID, *, actor: str, now: datetime) -> dict[str, Any]:
    """Return somebody's permission to read a chat. Raises `NotFound` where there is none."""
    there = reading.readings(actor=actor, now=now, chat_id=chat_id)
    if not there:
        raise NotFound
    return one(ReadingOut, there[0])

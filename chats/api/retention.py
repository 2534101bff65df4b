"""Retention: what a run would erase, the runs, and their certificates."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import ages, certificates, retention
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Nothing, PageQuery
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import require
from chats.api.schema import READ_ERRORS, answers
from chats.models import RetentionRun

SEE, BEGIN = "view_retentionrun", "add_retentionrun"


class PersonDueOut(serializers.Serializer[object]):
    """A person with messages that are due."""

    username = serializers.CharField()
    chats = serializers.IntegerField()
    messages = serializers.IntegerField()
    oldest = serializers.DateTimeField()


class RetentionOut(serializers.Serializer[object]):
    """The messages that a run would erase if it began now, in numbers."""

    looked_at = serializers.IntegerField(help_text="The number of chats that were looked at.")
    is_all = serializers.BooleanField(help_text="False: there are more chats than that.")
    chats = serializers.IntegerField()
    messages = serializers.IntegerField()
    oldest = serializers.DateTimeField(allow_null=True)
    held_chats = serializers.IntegerField(help_text="Due, and kept by a legal hold.")
    held_messages = serializers.IntegerField()
    people = PersonDueOut(many=True)
    more_people = serializers.IntegerField(help_text="People with fewer, who are not named.")


class RetentionRunOut(serializers.Serializer[RetentionRun]):
    """A run of retention."""

    id = serializers.UUIDField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    chats = serializers.IntegerField(help_text="All that were looked at.")
    chats_erased = serializers.IntegerField()
    messages_erased = serializers.IntegerField()
    chats_held = serializers.IntegerField(help_text="Left because of a legal hold.")
    chats_busy = serializers.IntegerField(help_text="Left because a reply was being written.")
    chats_failed = serializers.IntegerField(help_text="Left because of a fault; the log tells it.")
    digest = serializers.CharField()


class LedgerPlace(serializers.Serializer[object]):
    """The row of the ledger that certifies a run."""

    scope = serializers.CharField()
    seq = serializers.IntegerField()
    hash = serializers.CharField()


class RetentionCertificate(serializers.Serializer[object]):
    """The certificate of a run: ids, numbers and hashes."""

    run = serializers.UUIDField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField()
    chats = serializers.IntegerField()
    chats_erased = serializers.IntegerField()
    messages_erased = serializers.IntegerField()
    chats_held = serializers.IntegerField()
    chats_busy = serializers.IntegerField()
    chats_failed = serializers.IntegerField()
    digest = serializers.CharField(
        help_text="SHA-256 of the digest before and the line, from 64 zeros through all entries."
    )
    ledger = LedgerPlace(allow_null=True)
    entries = serializers.ListField(
        child=serializers.CharField(),
        help_text="Lines of JSON: a chat, and the rows of its chain that certify what was erased.",
    )


class RetentionAhead(Endpoint):
    """The preview of a run."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="retention_preview",
        responses=answers({200: RetentionOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """Count what a run would erase now, for those who may see runs; nothing is erased."""
        require(person(request), SEE, app="chats")
        return Response(one(RetentionOut, ages.preview(now=timezone.now())))


class RetentionRuns(Endpoint):
    """The runs of retention."""

    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}
    # While a run is under way, a repetition gets that one.
    knows_repetitions = True

    @extend_schema(
        operation_id="retention_runs_list",
        parameters=[PageQuery],
        responses=answers({200: listed(RetentionRunOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the runs, newest first."""
        require(person(request), SEE, app="chats")
        query = PageQuery.read(request.query_params.dict())
        rows = RetentionRun.objects.all()
        page = page_of(rows, order=("-started_at", "-id"), name="retention", **query)
        data = items(RetentionRunOut, page.rows)
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="retention_runs_begin",
        request=None,
        responses=answers({202: RetentionRunOut}),
    )
    def post(self, request: Request) -> Response:
        """Begin a run in the background without waiting for the night, or get the one under way."""
        user: User = person(request)
        require(user, BEGIN, app="chats")
        Nothing.read(request.data)
        run = retention.begin(actor=f"user:{user.pk}", now=timezone.now())
        return Response(one(RetentionRunOut, run), status=202)


class RetentionCertificates(Endpoint):
    """The certificate of a run."""

    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="retention_certificate",
        responses=answers({200: RetentionCertificate}, errors=READ_ERRORS),
    )
    def get(self, request: Request, run_id: uuid.UUID) -> Response:
        """Read the certificate of a run that has ended. Raises `NotFound` before its end."""
        require(person(request), SEE, app="chats")
        found: dict[str, Any] = certificates.certificate(certificates.run_of(run_id))
        return Response(found)

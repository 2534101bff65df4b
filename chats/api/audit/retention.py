"""Retention: preview, runs and certificates."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import certificates, retention, retention_rules
from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.core.schema import READ_ERRORS, add_error_responses
from chats.api.policies.policy_access import require_permissions
from chats.models import RetentionRun

SEE, BEGIN = "view_retentionrun", "add_retentionrun"


class PersonDueOut(serializers.Serializer[object]):
    """A person with messages older than their retention period."""

    username = serializers.CharField(help_text="User name.")
    chats = serializers.IntegerField(help_text="Number of chats with expired messages.")
    messages = serializers.IntegerField(help_text="Number of expired messages.")
    oldest = serializers.DateTimeField(help_text="Time of the oldest expired message.")


class RetentionOut(serializers.Serializer[object]):
    """Counts of the messages that a retention run would erase now."""

    looked_at = serializers.IntegerField(
        help_text="Number of chats that were checked for expired messages."
    )
    is_all = serializers.BooleanField(
        help_text=(
            "True: all chats were checked. False: there are more, so the numbers are lower bounds."
        )
    )
    chats = serializers.IntegerField(
        help_text="Number of chats with messages that would be erased."
    )
    messages = serializers.IntegerField(help_text="Number of messages that would be erased.")
    oldest = serializers.DateTimeField(
        allow_null=True, help_text="Time of the oldest message that would be erased. Null: none."
    )
    held_chats = serializers.IntegerField(
        help_text="Number of chats whose expired messages are kept by a legal hold."
    )
    held_messages = serializers.IntegerField(
        help_text="Number of expired messages that a legal hold keeps."
    )
    people = PersonDueOut(many=True, help_text="Users with expired messages.")
    more_people = serializers.IntegerField(
        help_text=("Number of further users with expired messages, who are not listed in `people`.")
    )


class RetentionRunOut(serializers.Serializer[RetentionRun]):
    """A retention run with the counts of its chats and messages."""

    id = serializers.UUIDField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the run ended. Null: in progress."
    )
    chats = serializers.IntegerField(
        help_text="Number of chats that were checked for expired messages."
    )
    chats_erased = serializers.IntegerField(help_text="Number of chats that lost messages.")
    messages_erased = serializers.IntegerField(help_text="Number of erased messages.")
    chats_held = serializers.IntegerField(
        help_text="Number of chats skipped because a legal hold covers them."
    )
    chats_busy = serializers.IntegerField(
        help_text=(
            "Number of chats skipped because a reply was running. The next run includes them."
        )
    )
    chats_failed = serializers.IntegerField(
        help_text=("Number of chats skipped because of an error. The server log has the details.")
    )
    digest = serializers.CharField(
        help_text=(
            "Final hash over the entries of the certificate, in hex. Empty: the run has "
            "not finished."
        )
    )


class LedgerPlace(serializers.Serializer[object]):
    """The audit event that certifies a retention run: its chain, position and hash."""

    scope = serializers.CharField(
        help_text="Chain of the event: `instance`, or `chat:` followed by the chat's id."
    )
    seq = serializers.IntegerField(help_text="Number of the event in its chain.")
    hash = serializers.CharField(help_text="SHA-256 of the event, in hex.")


class RetentionCertificate(serializers.Serializer[object]):
    """Proof of the erasures of one run: its numbers, its entries and their hash."""

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
        help_text=(
            "Final hash over all entries, in hex. Each step is SHA-256 of the previous digest "
            "(at first 64 zeros) and the line."
        )
    )
    ledger = LedgerPlace(allow_null=True)
    entries = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "One JSON line per chat: its id, and the audit events that certify the erasure."
        ),
    )


class RetentionForecast(Endpoint):
    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="retention_preview",
        summary="Preview a retention run",
        responses=add_error_responses({200: RetentionOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """Count the messages that a retention run would erase now. Nothing is erased.

        At most 20,000 chats are checked; if there are more, `is_all` is false.
        """
        require_permissions(get_request_user(request), SEE, app="chats")
        return Response(
            serialize_row(RetentionOut, retention_rules.preview_retention(now=timezone.now()))
        )


class RetentionRuns(Endpoint):
    scopes: ClassVar = {"GET": "policy:read", "POST": "policy:write"}
    # If a run is in progress, POST returns that run.
    knows_repetitions = True

    @extend_schema(
        operation_id="retention_runs_list",
        summary="List retention runs",
        parameters=[PageQuery],
        responses=add_error_responses(
            {200: build_page_serializer(RetentionRunOut)}, errors=READ_ERRORS
        ),
    )
    def get(self, request: Request) -> Response:
        """List the retention runs, newest first, including the one in progress."""
        require_permissions(get_request_user(request), SEE, app="chats")
        query = PageQuery.read(request.query_params.dict())
        rows = RetentionRun.objects.all()
        page = paginate_rows(rows, order=("-started_at", "-id"), name="retention", **query)
        data = serialize_rows(RetentionRunOut, page.rows)
        return Response({"data": data, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="retention_runs_begin",
        summary="Start a retention run",
        request=None,
        responses=add_error_responses({202: RetentionRunOut}),
    )
    def post(self, request: Request) -> Response:
        """Start a retention run in the background. If one is in progress, return it."""
        user: User = get_request_user(request)
        require_permissions(user, BEGIN, app="chats")
        EmptyBody.read(request.data)
        run = retention.start_retention_run(actor=f"user:{user.pk}", now=timezone.now())
        return Response(serialize_row(RetentionRunOut, run), status=202)


class RetentionCertificates(Endpoint):
    scopes: ClassVar = {"GET": "policy:read"}

    @extend_schema(
        operation_id="retention_certificate",
        summary="Get the certificate of a retention run",
        responses=add_error_responses({200: RetentionCertificate}, errors=READ_ERRORS),
    )
    def get(self, request: Request, run_id: uuid.UUID) -> Response:
        """Get the certificate of a finished retention run: ids, numbers and hashes, no texts.

        404 until the run has finished.
        """
        require_permissions(get_request_user(request), SEE, app="chats")
        found: dict[str, Any] = certificates.build_retention_certificate(
            certificates.find_finished_run(run_id)
        )
        return Response(found)

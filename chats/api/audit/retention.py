"""Retention: preview, runs and certificates."""

import uuid
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import certificates, retention, retention_rules
from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer
from chats.models import RetentionRun

SEE, BEGIN = "chats.view_retentionrun", "chats.add_retentionrun"


class PersonDueOut(serializers.Serializer[object]):
    """A user with messages older than their retention period."""

    username = serializers.CharField(help_text="User name.")
    chats = serializers.IntegerField(help_text="Number of chats with expired messages.")
    messages = serializers.IntegerField(help_text="Number of expired messages.")
    oldest = serializers.DateTimeField(help_text="Time of the oldest expired message.")


class RetentionOut(serializers.Serializer[object]):
    """Counts of the messages that a retention run would erase now."""

    looked_at = serializers.IntegerField(
        help_text=(
            "Number of chats that were checked for expired messages. 0: no policy sets a "
            "retention period, or there are no chats."
        )
    )
    is_all = serializers.BooleanField(
        help_text=(
            "True: all chats were checked. False: some chats were not checked, so the numbers are "
            "lower bounds."
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
    people = PersonDueOut(
        many=True,
        help_text=("Up to 100 users whose messages would be erased, most messages first."),
    )
    more_people = serializers.IntegerField(
        help_text="Number of other users with expired messages, whom `people` does not list."
    )


class RetentionRunOut(serializers.Serializer[RetentionRun]):
    """A retention run: the numbers of erased messages and of affected and skipped chats."""

    id = serializers.UUIDField()
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(
        allow_null=True, help_text="Time at which the run ended. Null: in progress."
    )
    chats = serializers.IntegerField(
        help_text="Number of chats that were checked for expired messages."
    )
    chats_erased = serializers.IntegerField(
        help_text="Number of chats erased completely, because all their messages had expired."
    )
    messages_erased = serializers.IntegerField(
        help_text="Number of erased messages, including messages of completely erased chats."
    )
    chats_held = serializers.IntegerField(
        help_text=(
            "Number of chats whose expired messages were skipped because a legal hold covers them."
        )
    )
    chats_busy = serializers.IntegerField(
        help_text=(
            "Number of chats whose expired messages were skipped because a running reply belongs "
            "to the chat or uses its messages. The next run includes them."
        )
    )
    chats_failed = serializers.IntegerField(
        help_text=(
            "Number of chats whose expired messages were skipped because of an error. The server "
            "log gives the details."
        )
    )
    digest = serializers.CharField(
        help_text=(
            "Hash over the certificate's entries so far, in hex; final once the run has "
            "finished. 64 zeros: nothing was erased."
        )
    )


class LedgerPlace(serializers.Serializer[object]):
    """The audit event that certifies a retention run: its audit log, position and hash."""

    scope = serializers.CharField(
        help_text="Audit log of the event: `instance`, or `chat:` followed by the chat's id."
    )
    seq = serializers.IntegerField(help_text="Position of the event in its audit log.")
    hash = serializers.CharField(help_text="SHA-256 of the event, in hex.")


class RetentionCertificate(serializers.Serializer[object]):
    """Proof of the erasures in one retention run: its numbers, its entries and their hash."""

    run = serializers.UUIDField(help_text="Id of the run.")
    started_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField()
    chats = serializers.IntegerField(help_text="Number of checked chats.")
    chats_erased = serializers.IntegerField(help_text="Number of completely erased chats.")
    messages_erased = serializers.IntegerField(help_text="Number of erased messages.")
    chats_held = serializers.IntegerField(
        help_text="Number of chats skipped because of a legal hold."
    )
    chats_busy = serializers.IntegerField(
        help_text="Number of chats skipped because of a running reply."
    )
    chats_failed = serializers.IntegerField(
        help_text="Number of chats skipped because of an error."
    )
    digest = serializers.CharField(
        help_text=(
            "Final hash over all entries, in hex. Each step is the SHA-256 of the previous "
            "digest in hex (initially 64 zeros) followed by the next entry."
        )
    )
    ledger = LedgerPlace(
        allow_null=True,
        help_text="Audit event that certifies the run. Null: the audit log does not contain it.",
    )
    entries = serializers.ListField(
        child=serializers.CharField(),
        help_text=(
            "JSON objects as strings, exactly as hashed. Each has its number, the id of a chat, "
            "the number of erased messages and the retention period in days. It also names the "
            "audit events that certify the erasure. A chat has one entry for each batch of up to "
            "10 erased messages, or one entry if it was erased completely."
        ),
    )


class RetentionViewSet(Endpoint):
    serializer_class = RetentionOut
    read_scope = "policy:read"
    permissions: ClassVar = {"retrieve": [SEE]}

    @extend_schema(operation_id="retention_preview", summary="Preview a retention run")
    def retrieve(self, request: Request) -> Response:
        """Count the messages that a retention run would erase now. Nothing is erased.

        Running replies are not considered. At most 20,000 chats are checked; if there are more,
        `is_all` is false.
        """
        return self.respond(retention_rules.preview_retention(now=timezone.now()))


class RetentionRunViewSet(Endpoint):
    serializer_class = RetentionRunOut
    read_scope, write_scope = "policy:read", "policy:write"
    permissions: ClassVar = {"list": [SEE], "create": [BEGIN], "certificate": [SEE]}
    # If a run is in progress, POST returns that run.
    repeatable = ("create",)
    lookup_url_kwarg = "run_id"

    @extend_schema(
        summary="List retention runs",
        parameters=[PageQuery],
        responses=build_page_serializer(RetentionRunOut),
    )
    def list(self, request: Request) -> Response:
        """List the retention runs, newest first, including the one in progress."""
        rows = RetentionRun.objects.all()
        return self.respond_page(rows, order=("-started_at", "-id"), name="retention")

    @extend_schema(
        operation_id="retention_runs_begin",
        summary="Start a retention run",
        responses={202: RetentionRunOut},
    )
    def create(self, request: Request) -> Response:
        """Start a retention run in the background, or return the run that is in progress."""
        EmptyBody.read(request.data)
        run = retention.start_retention_run(actor=self.actor, now=timezone.now())
        return self.respond(run, status=202)

    @extend_schema(
        operation_id="retention_certificate",
        summary="Get the certificate of a retention run",
        responses=RetentionCertificate,
    )
    @action(detail=True)
    def certificate(self, request: Request, run_id: uuid.UUID) -> Response:
        """Get the certificate of a finished retention run: ids, numbers and hashes, but no text.

        Returns 404 until the run has finished.
        """
        found: dict[str, Any] = certificates.build_retention_certificate(
            certificates.find_finished_run(run_id)
        )
        return Response(found)

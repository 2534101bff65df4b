"""Checkpoints of the audit log, and inclusion proofs of single chains."""

from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint
from chats.api.core.inputs import PageQuery, PlainText, Strict
from chats.api.core.outputs import build_page_serializer, serialize_row
from chats.api.policies.policy_inputs import validate_storable_texts
from chats.checkpoints import files
from contextpolicy.audit.reading import record_file_download
from contextpolicy.models import LedgerCheckpoint, LedgerTimestamp

SEE = "contextpolicy.view_auditevent"
PROOF = "chain.tlog-proof"


class ProofQuery(Strict):
    """The chain whose last signed event the proof covers."""

    scope = PlainText(
        max_length=50,
        help_text="The audit log: `instance`, or `chat:` followed by the chat's id.",
    )


class TimestampOut(serializers.Serializer[LedgerTimestamp]):
    """RFC 3161 timestamp that an external authority issued for a checkpoint."""

    authority = serializers.CharField(help_text="URL of the time-stamping authority.")
    received_at = serializers.DateTimeField(
        help_text="Time at which this server received the response."
    )
    response = serializers.CharField(
        help_text="Response of the time-stamping authority: DER, base64-encoded."
    )


class CheckpointOut(serializers.Serializer[LedgerCheckpoint]):
    """A signed checkpoint: the root hash of a Merkle tree over the state of all audit logs.

    Each entry of the tree contains the number of events and the last hash of one audit log.
    """

    origin = serializers.CharField(
        source="origin.name", help_text="Name of the tree, which is the first line of `note`."
    )
    size = serializers.IntegerField(
        help_text="Number of entries in the tree, which differs from the number of events."
    )
    note = serializers.CharField(help_text="Signed note in the C2SP `tlog-checkpoint` format.")
    signed_at = serializers.DateTimeField()
    timestamp = serializers.SerializerMethodField(
        help_text=(
            "Timestamp of the checkpoint. Null: none. The timestamp of a later checkpoint also "
            "covers this checkpoint."
        )
    )

    @extend_schema_field(TimestampOut(allow_null=True))
    def get_timestamp(self, row: LedgerCheckpoint) -> dict[str, Any] | None:
        found: LedgerTimestamp | None = getattr(row, "timestamp", None)
        return serialize_row(TimestampOut, found) if found is not None and found.response else None


class CheckpointViewSet(Endpoint):
    serializer_class = CheckpointOut
    read_scope = "audit:read"
    permissions: ClassVar = {"list": [SEE]}

    @extend_schema(
        summary="List checkpoints of the audit log",
        parameters=[PageQuery],
        responses=build_page_serializer(CheckpointOut),
    )
    def list(self, request: Request) -> Response:
        """List the checkpoints, newest first, with their signed notes and timestamps."""
        rows = LedgerCheckpoint.objects.select_related("origin", "timestamp")
        return self.respond_page(rows, order=("-id",), name="checkpoints")


class ChainProofViewSet(Endpoint):
    read_scope = "audit:read"
    permissions: ClassVar = {"retrieve": [SEE]}
    # No HEAD: it would record an export in the audit log although no file was sent.
    http_method_names: ClassVar = ["get"]  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_proof",
        summary="Get the proof of an audit log",
        parameters=[ProofQuery],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def retrieve(self, request: Request) -> HttpResponse:
        """Get a proof that the latest checkpoint includes the last signed row of an audit log.

        The audit log records the download. Raises `Forbidden`, `NotFound`, `InvalidCharacter` and
        `NoProof`.
        """
        asked: dict[str, Any] = validate_storable_texts(
            ProofQuery.read(request.query_params.dict())
        )
        text, _ = files.build_chain_proof(asked["scope"])
        record_file_download(PROOF, actor=self.actor, now=timezone.now())
        answer = HttpResponse(text, content_type="text/plain; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="{PROOF}"'
        answer["Cache-Control"] = "no-store"
        return answer

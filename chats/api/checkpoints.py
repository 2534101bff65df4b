"""The ledger's checkpoints, and proofs of single chains, for those who verify it elsewhere."""

from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import PageQuery, PlainText, Strict
from chats.api.outputs import items, listed, one
from chats.api.pages import page_of
from chats.api.policy_access import require
from chats.api.policy_inputs import storable
from chats.api.schema import READ_ERRORS, answers
from chats.checkpoints import files
from contextpolicy.audit.reading import note_file
from contextpolicy.models import LedgerCheckpoint, LedgerTimestamp

SEE = "view_auditevent"
PROOF = "chain.tlog-proof"


class ProofQuery(Strict):
    """The chain that is proved."""

    scope = PlainText(max_length=50, help_text="`instance`, or `chat:` and the chat's id.")


class TimestampOut(serializers.Serializer[LedgerTimestamp]):
    """The timestamp of a checkpoint (RFC 3161)."""

    authority = serializers.CharField()
    received_at = serializers.DateTimeField()
    response = serializers.CharField(help_text="What the authority answered: DER in base64.")


class CheckpointOut(serializers.Serializer[LedgerCheckpoint]):
    """A signed head of the ledger's log."""

    origin = serializers.CharField(source="origin.name")
    size = serializers.IntegerField(help_text="The entries of the log.")
    note = serializers.CharField(help_text="As C2SP `tlog-checkpoint` has it.")
    signed_at = serializers.DateTimeField()
    timestamp = serializers.SerializerMethodField(
        help_text="Null: no authority outside stamped this one; a later one stands for it."
    )

    @extend_schema_field(TimestampOut(allow_null=True))
    def get_timestamp(self, row: LedgerCheckpoint) -> dict[str, Any] | None:
        """Return the timestamp, if one came."""
        found: LedgerTimestamp | None = getattr(row, "timestamp", None)
        return one(TimestampOut, found) if found is not None and found.response else None


class Checkpoints(Endpoint):
    """The checkpoints."""

    scopes: ClassVar = {"GET": "audit:read"}

    @extend_schema(
        operation_id="audit_checkpoints_list",
        parameters=[PageQuery],
        responses=answers({200: listed(CheckpointOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the checkpoints, newest first, for those who may read the ledger."""
        require(person(request), SEE)
        query = PageQuery.read(request.query_params.dict())
        rows = LedgerCheckpoint.objects.select_related("origin", "timestamp")
        page = page_of(rows, order=("-id",), name="checkpoints", **query)
        return Response({"data": items(CheckpointOut, page.rows), "next_cursor": page.next_cursor})


class ChainProof(Endpoint):
    """The proof of a chain."""

    scopes: ClassVar = {"GET": "audit:read"}
    # No HEAD: the ledger would say that a file left, and none did.
    http_method_names: ClassVar = ["get"]  # type: ignore[misc]  # as in `Endpoint`

    @extend_schema(
        operation_id="audit_proof",
        parameters=[ProofQuery],
        responses=answers({(200, "text/plain"): OpenApiTypes.STR}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> HttpResponse:
        """Read the proof that a chain's last signed row is in the newest checkpoint.

        Raises `Forbidden`, `NotFound`, `InvalidCharacter` and `NoProof`.
        """
        user = person(request)
        require(user, SEE)
        asked: dict[str, Any] = storable(ProofQuery.read(request.query_params.dict()))
        text, _ = files.proof_of(asked["scope"])
        note_file(PROOF, actor=f"user:{user.pk}", now=timezone.now())
        answer = HttpResponse(text, content_type="text/plain; charset=utf-8")
        answer["Content-Disposition"] = f'attachment; filename="{PROOF}"'
        answer["Cache-Control"] = "no-store"
        return answer

"""Permanent erasure. An API key needs the scope `chats:erase`, a session a recent sign-in."""

import uuid

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import erasure, pending_erasures
from chats.api.chats.chat_inputs import ErasureRequest
from chats.api.chats.message_outputs import ErasedOut, MessageOut, ProofOut
from chats.api.core import examples
from chats.api.core.base import Endpoint, get_request_key
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer, serialize_row
from chats.ground.refusals import NotFound
from chats.models import PendingErasure
from chats.people import sessions
from chats.record import access, holds


class PendingErasureOut(serializers.Serializer[PendingErasure]):
    """A pending erasure of a chat, a message or a preference under legal hold."""

    id = serializers.UUIDField()
    chat = serializers.SerializerMethodField(
        help_text=(
            "Id of the chat to erase, or of the chat with the message to erase. Null: a "
            "preference is erased."
        )
    )
    message = serializers.UUIDField(
        source="message_id",
        allow_null=True,
        help_text="Id of the message to erase. Null: a chat or a preference is erased.",
    )
    preference = serializers.UUIDField(
        source="preference_id",
        allow_null=True,
        help_text="Id of the preference to erase. Null: a chat or a message is erased.",
    )
    asked_at = serializers.DateTimeField(help_text="Time at which you requested the erasure.")

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_chat(self, pending: PendingErasure) -> str | None:
        chat_id = pending.message.branch.chat_id if pending.message else pending.chat_id
        return str(chat_id) if chat_id else None


class Erasure(Endpoint):
    """Base class of the irreversible actions.

    Erasing again has no further effect. A proof's salt is not stored, so a repeated request cannot
    return it again.
    """

    repeatable = ("create",)
    write_scope = "chats:erase"

    def check(self, request: Request) -> None:
        """Raise `ReauthenticationRequired` in a session without a recent sign-in."""
        if get_request_key(request) is None:
            sessions.require_recent(session=request.session, now=timezone.now())


class EraseMessageViewSet(Erasure):
    """Permanent erasure of a message."""

    @extend_schema(
        operation_id="chats_messages_erase",
        summary="Erase a message permanently",
        request=ErasureRequest,
        examples=examples.ERASE,
        responses={200: ErasedOut},
    )
    def create(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Erase a message permanently, including its text in summaries, receipts and stored pages.

        The message keeps its id and its position, and the audit log records a certificate.
        `quoted_by` lists messages that quote it. To erase them too, send `quotes` now or later.
        Returns 409 `under_legal_hold` if a legal hold covers the message; it is then erased when
        the hold ends.
        """
        message = access.get_message(user=self.user, chat_id=chat_id, message_id=message_id)
        self.check(request)
        with_quotes = ErasureRequest.read(request.data)["quotes"] == "erase"
        erased = erasure.erase_message(
            user=self.user, message=message, now=timezone.now(), with_quotes=with_quotes
        )
        quoted_by = [str(quote.message.pk) for quote in erased.quoted_by]
        proofs = [
            {"message": str(message.pk), **proof._asdict()}
            for message, proof in erased.proofs.items()
        ]
        return Response(
            {**serialize_row(MessageOut, erased.message), "quoted_by": quoted_by, "proofs": proofs}
        )


class EraseChatViewSet(Erasure):
    """Permanent erasure of a chat."""

    @extend_schema(
        operation_id="chats_erase", summary="Erase a chat permanently", responses={200: ProofOut}
    )
    def create(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Erase a chat permanently, including every copy of its text. You need not delete it first.

        The audit log records a certificate. Returns 409 `under_legal_hold` if a legal hold covers
        the chat; it is then hidden, and erased when the hold ends.
        """
        chat = access.get_chat_including_deleted(user=self.user, chat_id=chat_id)
        self.check(request)
        EmptyBody.read(request.data)
        proof = erasure.erase_chat(user=self.user, chat=chat, now=timezone.now())
        return Response(proof._asdict())


class PendingErasureViewSet(Endpoint):
    serializer_class = PendingErasureOut
    write_scope = "chats:erase"
    lookup_url_kwarg = "erasure_id"

    @extend_schema(
        summary="List pending erasures",
        parameters=[PageQuery],
        responses=build_page_serializer(PendingErasureOut),
    )
    def list(self, request: Request) -> Response:
        """List your pending erasures, newest first. Each erasure runs when its legal hold ends."""
        rows = holds.list_pending_erasures(owner_id=self.user.pk)
        return self.respond_page(rows, order=("-asked_at", "-id"), name="erasures")

    @extend_schema(operation_id="erasures_withdraw", summary="Cancel a pending erasure")
    def destroy(self, request: Request, erasure_id: uuid.UUID) -> Response:
        """Cancel a pending erasure. A hidden chat stays hidden until you restore it.

        Raises `NotFound`.
        """
        EmptyBody.read(request.data)
        owner_id, now = self.user.pk, timezone.now()
        if not pending_erasures.cancel_pending_erasure(
            owner_id=owner_id, erasure_id=erasure_id, now=now
        ):
            raise NotFound
        return Response(status=204)

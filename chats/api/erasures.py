"""Erases for good. A key needs a scope of its own for it, a session a fresh sign-in.

People who may write in a chat can undo everything they do there, but not this.
"""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import erasure, wishes
from chats.api import examples
from chats.api.endpoint import Endpoint, key_of, person
from chats.api.inputs import Erasing, Nothing, PageQuery
from chats.api.outputs import ErasedOut, MessageOut, ProofOut, items, listed, one
from chats.api.pages import page_of
from chats.api.schema import READ_ERRORS, answers
from chats.ground.refusals import NotFound
from chats.models import ErasureWish
from chats.people import sessions
from chats.record import access, holds


class WishOut(serializers.Serializer[ErasureWish]):
    """A wish to erase a chat, a message or a preference that a legal hold covers."""

    id = serializers.UUIDField()
    chat = serializers.SerializerMethodField(help_text="Of a chat or a message.")
    message = serializers.UUIDField(source="message_id", allow_null=True)
    preference = serializers.UUIDField(source="preference_id", allow_null=True)
    asked_at = serializers.DateTimeField()

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_chat(self, wish: ErasureWish) -> str | None:
        """Return the id of the chat."""
        chat_id = wish.message.branch.chat_id if wish.message else wish.chat_id
        return str(chat_id) if chat_id else None


class Erasure(Endpoint):
    """The base of actions that cannot be taken back.

    What was erased is erased; and a proof's salt is kept nowhere, so that it is not sent twice.
    """

    knows_repetitions = True
    scopes: ClassVar = {"POST": "chats:erase"}

    def check(self, request: Request) -> None:
        """Raise `ReauthenticationRequired` in a session that is not fresh."""
        if key_of(request) is None:
            sessions.require_recent(session=request.session, now=timezone.now())


class EraseMessage(Erasure):
    """The erasure of a message's words."""

    @extend_schema(
        operation_id="chats_messages_erase",
        request=Erasing,
        examples=examples.ERASE,
        responses=answers({200: ErasedOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Erase what the message said, also from summaries, receipts and stored pages.

        Its id and place stay, with a certificate among the audit events. Other messages that quote
        it are named in both; erase them by the same call with `quotes`, at once or later. 409
        `under_legal_hold`: it is erased by itself once the hold has ended.
        """
        message = access.message_for(user=person(request), chat_id=chat_id, message_id=message_id)
        self.check(request)
        with_quotes = Erasing.read(request.data)["quotes"] == "erase"
        erased = erasure.erase_message(
            user=person(request), message=message, now=timezone.now(), with_quotes=with_quotes
        )
        quoted_by = [str(quote.message.pk) for quote in erased.quoted_by]
        proofs = [
            {"message": str(message.pk), **proof._asdict()}
            for message, proof in erased.proofs.items()
        ]
        return Response(
            {**one(MessageOut, erased.message), "quoted_by": quoted_by, "proofs": proofs}
        )


class EraseChat(Erasure):
    """The erasure of a chat's words."""

    @extend_schema(operation_id="chats_erase", request=None, responses=answers({200: ProofOut}))
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Erase the chat, deleted or not, and every copy of its words; a certificate stays.

        409 `under_legal_hold`: it is hidden, and erased by itself once the hold has ended.
        """
        chat = access.kept_chat_for(user=person(request), chat_id=chat_id)
        self.check(request)
        Nothing.read(request.data)
        proof = erasure.erase_chat(user=person(request), chat=chat, now=timezone.now())
        return Response(proof._asdict())


class Wishes(Endpoint):
    """The person's wishes to erase what a legal hold keeps."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="erasures_list",
        parameters=[PageQuery],
        responses=answers({200: listed(WishOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List what waits until a legal hold ends, newest first; then it is erased by itself."""
        query = PageQuery.read(request.query_params.dict())
        rows = holds.wishes_of(owner_id=person(request).pk)
        page = page_of(rows, order=("-asked_at", "-id"), name="erasures", **query)
        return Response({"data": items(WishOut, page.rows), "next_cursor": page.next_cursor})


class OneWish(Endpoint):
    """One wish."""

    scopes: ClassVar = {"DELETE": "chats:erase"}

    @extend_schema(operation_id="erasures_withdraw", request=None, responses=answers({204: None}))
    def delete(self, request: Request, wish_id: uuid.UUID) -> Response:
        """Keep it after all; a hidden chat stays hidden until it is brought back.

        Raises `NotFound`.
        """
        Nothing.read(request.data)
        owner_id, now = person(request).pk, timezone.now()
        if not wishes.withdraw(owner_id=owner_id, wish_id=wish_id, now=now):
            raise NotFound
        return Response(status=204)

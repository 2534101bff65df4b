"""Erases for good. A key needs a scope of its own for it, a session a fresh sign-in.

People who may write in a chat can undo everything they do there, but not this.
"""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import erasure
from chats.api import examples
from chats.api.endpoint import Endpoint, key_of, person
from chats.api.inputs import Erasing, Nothing
from chats.api.outputs import ErasedOut, MessageOut, ProofOut, one
from chats.api.schema import answers
from chats.people import sessions
from chats.record import access


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
        it are named in both; erase them by the same call with `quotes`, at once or later.
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
        """Erase the chat, deleted or not, and every copy of its words; a certificate stays."""
        chat = access.kept_chat_for(user=person(request), chat_id=chat_id)
        self.check(request)
        Nothing.read(request.data)
        proof = erasure.erase_chat(user=person(request), chat=chat, now=timezone.now())
        return Response(proof._asdict())

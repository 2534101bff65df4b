"""Actions on a message: pin, exclude, keep, edit, regenerate, branch."""

import uuid

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import branching, marks
from chats.api.chats.chat_outputs import BranchOut, PinRoomOut
from chats.api.chats.message_inputs import EditRequest, RegenerateRequest
from chats.api.chats.message_outputs import MessageOut
from chats.api.chats.turn_outputs import AcceptedOut, TurnOut
from chats.api.core import examples
from chats.api.core.base import Endpoint, count_message_request, get_request_key
from chats.api.core.idempotency import build_replay_header, get_idempotency_key
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import serialize_row
from chats.api.core.schema import MESSAGE_KEY
from chats.api.core.strict_json import MessageParser
from chats.models import Message
from chats.record import access


class PinsViewSet(Endpoint):
    serializer_class = PinRoomOut

    @extend_schema(summary="Get the size of the pinned messages")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the number of tokens in the active branch's pinned messages, and their limit."""
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        return self.respond(marks.load_pin_room(chat=chat))


class MessageActionViewSet(Endpoint):
    """Actions on a message."""

    serializer_class = MessageOut
    repeatable = ("edit", "regenerate")

    def get_object(self) -> Message:
        """Return the message in the URL. Raises `NotFound`."""
        return access.get_message(user=self.user, **self.kwargs)

    @extend_schema(summary="Pin a message")
    @action(detail=False, methods=["post"])
    def pin(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Pin a message, so that every prompt of its branch includes its full text.

        Repeating the request has no effect. Returns 409 `pins_full` if the pins would exceed
        their token limit.
        """
        message = self.get_object()
        EmptyBody.read(request.data)
        marked = marks.pin_message(message=message, actor=self.actor, now=timezone.now())
        return self.respond(marked)

    @extend_schema(summary="Unpin a message")
    @action(detail=False, methods=["post"])
    def unpin(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Unpin a message, so that summaries can cover it. Repeating the request has no effect."""
        message = self.get_object()
        EmptyBody.read(request.data)
        marked = marks.unpin_message(message=message, actor=self.actor, now=timezone.now())
        return self.respond(marked)

    @extend_schema(summary="Exclude a message from prompts")
    @action(detail=False, methods=["post"])
    def exclude(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Exclude a message, and every summary that covers it, from prompts. It stays readable.

        Repeating the request has no effect.
        """
        message = self.get_object()
        EmptyBody.read(request.data)
        marked = marks.exclude_message(message=message, actor=self.actor, now=timezone.now())
        return self.respond(marked)

    @extend_schema(summary="Include a message in prompts again")
    @action(detail=False, methods=["post"])
    def include(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Include an excluded message in prompts again. Repeating the request has no effect."""
        message = self.get_object()
        EmptyBody.read(request.data)
        marked = marks.include_message(message=message, actor=self.actor, now=timezone.now())
        return self.respond(marked)

    @extend_schema(summary="Keep an incomplete reply")
    @action(detail=False, methods=["post"])
    def keep(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Include the text of an incomplete reply in later prompts, which otherwise omit it.

        Returns 409 `nothing_to_keep` if the message is not an incomplete reply.
        """
        message = self.get_object()
        EmptyBody.read(request.data)
        marked = marks.keep_incomplete_reply(message=message, actor=self.actor, now=timezone.now())
        return self.respond(marked)

    @extend_schema(
        summary="Edit a message",
        request=EditRequest,
        examples=examples.EDIT,
        parameters=[MESSAGE_KEY],
        responses={202: AcceptedOut},
    )
    @action(detail=False, methods=["post"], parser_classes=[MessageParser])
    def edit(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Replace one of your messages on a new branch, where the model replies to the new text.

        The original message and its branch do not change. The new message keeps the files. Returns
        202 with the new message and its turn; follow the turn's events to receive the reply.
        """
        message = self.get_object()
        text = EditRequest.read(request.data)["text"]
        count_message_request(request)
        accepted = branching.edit_message(
            user=self.user,
            message=message,
            text=text,
            now=timezone.now(),
            idempotency_key=get_idempotency_key(request),
            api_key=get_request_key(request),
        )
        return Response(
            {
                "message": serialize_row(MessageOut, accepted.message),
                "turn": serialize_row(TurnOut, accepted.turn),
            },
            status=202,
            headers=build_replay_header(repeated=accepted.repeated),
        )

    @extend_schema(
        summary="Regenerate a reply",
        request=RegenerateRequest,
        parameters=[MESSAGE_KEY],
        responses={202: TurnOut},
    )
    @action(detail=False, methods=["post"])
    def regenerate(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Regenerate a reply on a new branch. The old reply is kept.

        Returns 202 with the new turn; follow its events to receive the reply.
        """
        message = self.get_object()
        play_on = RegenerateRequest.read(request.data)["play_on"]
        count_message_request(request)
        accepted = branching.regenerate_once(
            user=self.user,
            message=message,
            now=timezone.now(),
            idempotency_key=get_idempotency_key(request),
            api_key=get_request_key(request),
            play_on=play_on,
        )
        replayed = build_replay_header(repeated=accepted.repeated)
        return Response(serialize_row(TurnOut, accepted.turn), status=202, headers=replayed)

    @extend_schema(summary="Branch from a message", responses={201: BranchOut})
    @action(detail=False, methods=["post"])
    def branch(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Create a branch that ends with this message, and make it active. No model replies."""
        message = self.get_object()
        EmptyBody.read(request.data)
        branch = branching.branch_from_message(user=self.user, message=message, now=timezone.now())
        return Response(serialize_row(BranchOut, branch), status=201)

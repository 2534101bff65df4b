"""Actions on a message: pin, exclude, keep, edit, regenerate, branch."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import branching, marks
from chats.api.core import examples
from chats.api.core.base import Endpoint, count_message_request, get_request_key, get_request_user
from chats.api.core.idempotency import build_replay_header, get_idempotency_key
from chats.api.core.inputs import EditRequest, EmptyBody, RegenerateRequest
from chats.api.core.outputs import (
    AcceptedOut,
    BranchOut,
    MessageOut,
    PinRoomOut,
    TurnOut,
    serialize_row,
)
from chats.api.core.schema import IDEMPOTENCY_KEY, READ_ERRORS, add_error_responses
from chats.api.core.strict_json import MessageParser
from chats.models import Message
from chats.record import access


class Pins(Endpoint):
    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_pins_get",
        summary="Get the size of the pinned messages",
        responses=add_error_responses({200: PinRoomOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the number of tokens of the pinned messages of the active branch, and their limit."""
        chat = access.get_chat(user=get_request_user(request), chat_id=chat_id)
        return Response(serialize_row(PinRoomOut, marks.load_pin_room(chat=chat)))


class MessageAction(Endpoint):
    """Base class of the actions on a message."""

    scopes: ClassVar = {"POST": "chats:write"}

    def message(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Message:
        """Return the message in the URL. Raises `NotFound`."""
        return access.get_message(
            user=get_request_user(request), chat_id=chat_id, message_id=message_id
        )


class Pin(MessageAction):
    @extend_schema(
        operation_id="chats_messages_pin",
        summary="Pin a message",
        request=None,
        responses=add_error_responses({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Pin a message, so that every prompt includes its full text.

        Repeating the request has no effect. 409 `pins_full` if the pins would exceed their token
        limit.
        """
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.pin_message(message=message, actor=actor, now=timezone.now())
        return Response(serialize_row(MessageOut, marked))


class Unpin(MessageAction):
    @extend_schema(
        operation_id="chats_messages_unpin",
        summary="Unpin a message",
        request=None,
        responses=add_error_responses({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Unpin a message, so that summaries can cover it. Repeating the request has no effect."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.unpin_message(message=message, actor=actor, now=timezone.now())
        return Response(serialize_row(MessageOut, marked))


class Exclude(MessageAction):
    @extend_schema(
        operation_id="chats_messages_exclude",
        summary="Exclude a message from prompts",
        request=None,
        responses=add_error_responses({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Exclude a message, and every summary that covers it, from prompts. It stays readable.

        Repeating the request has no effect.
        """
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.exclude_message(message=message, actor=actor, now=timezone.now())
        return Response(serialize_row(MessageOut, marked))


class Include(MessageAction):
    @extend_schema(
        operation_id="chats_messages_include",
        summary="Include a message in prompts again",
        request=None,
        responses=add_error_responses({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Include an excluded message in prompts again. Repeating the request has no effect."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.include_message(message=message, actor=actor, now=timezone.now())
        return Response(serialize_row(MessageOut, marked))


class Keep(MessageAction):
    @extend_schema(
        operation_id="chats_messages_keep",
        summary="Keep an incomplete reply",
        request=None,
        responses=add_error_responses({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Include the text of an incomplete reply in later prompts. Otherwise it is left out.

        409 `nothing_to_keep` if the message is not an incomplete reply.
        """
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.keep_incomplete_reply(message=message, actor=actor, now=timezone.now())
        return Response(serialize_row(MessageOut, marked))


class Edit(MessageAction):
    parser_classes = (MessageParser,)

    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_edit",
        summary="Edit a message",
        request=EditRequest,
        examples=examples.EDIT,
        parameters=[IDEMPOTENCY_KEY],
        responses=add_error_responses({202: AcceptedOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Replace one of your messages on a new branch, where the model replies to the new text.

        The original message and its branch do not change. 202: follow the turn.
        """
        message = self.message(request, chat_id, message_id)
        text = EditRequest.read(request.data)["text"]
        count_message_request(request)
        accepted = branching.edit_message(
            user=get_request_user(request),
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


class Regenerate(MessageAction):
    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_regenerate",
        summary="Regenerate a reply",
        request=RegenerateRequest,
        parameters=[IDEMPOTENCY_KEY],
        responses=add_error_responses({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Regenerate a reply on a new branch. The old reply is kept. 202: follow the turn."""
        message = self.message(request, chat_id, message_id)
        play_on = RegenerateRequest.read(request.data)["play_on"]
        count_message_request(request)
        accepted = branching.regenerate_once(
            user=get_request_user(request),
            message=message,
            now=timezone.now(),
            idempotency_key=get_idempotency_key(request),
            api_key=get_request_key(request),
            play_on=play_on,
        )
        replayed = build_replay_header(repeated=accepted.repeated)
        return Response(serialize_row(TurnOut, accepted.turn), status=202, headers=replayed)


class BranchFrom(MessageAction):
    @extend_schema(
        operation_id="chats_messages_branch",
        summary="Branch from a message",
        request=None,
        responses=add_error_responses({201: BranchOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Create a branch that ends with this message, and make it active. No model replies."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        branch = branching.branch_from_message(
            user=get_request_user(request), message=message, now=timezone.now()
        )
        return Response(serialize_row(BranchOut, branch), status=201)

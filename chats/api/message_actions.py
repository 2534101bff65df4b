"""Actions on a message: pin, exclude, keep, edit, regenerate, branch."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import branching, marks
from chats.api import examples
from chats.api.endpoint import Endpoint, count_message, key_of, person
from chats.api.inputs import EditRequest, EmptyBody, RegenerateRequest
from chats.api.once import idempotency_key, replay_header
from chats.api.outputs import AcceptedOut, BranchOut, MessageOut, PinRoomOut, TurnOut, one
from chats.api.parsing import MessageParser
from chats.api.schema import IDEMPOTENCY_KEY, READ_ERRORS, answers
from chats.models import Message
from chats.record import access


class Pins(Endpoint):
    """The token budget of pinned messages."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_pins_get",
        summary="Get the size of the pinned messages",
        responses=answers({200: PinRoomOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the tokens of the pinned messages of the active branch, and their limit."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        return Response(one(PinRoomOut, marks.pin_room(chat=chat)))


class MessageAction(Endpoint):
    """Base class of the actions on a message."""

    scopes: ClassVar = {"POST": "chats:write"}

    def message(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Message:
        """Return the message in the URL. Raises `NotFound`."""
        return access.message_for(user=person(request), chat_id=chat_id, message_id=message_id)


class Pin(MessageAction):
    """Pin a message."""

    @extend_schema(
        operation_id="chats_messages_pin",
        summary="Pin a message",
        request=None,
        responses=answers({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Pin a message, so that every prompt includes its full text.

        Repeating the request has no effect.
        """
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.pin(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Unpin(MessageAction):
    """Unpin a message."""

    @extend_schema(
        operation_id="chats_messages_unpin",
        summary="Unpin a message",
        request=None,
        responses=answers({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Unpin a message, so that summaries can cover it."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.unpin(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Exclude(MessageAction):
    """Exclude a message from prompts."""

    @extend_schema(
        operation_id="chats_messages_exclude",
        summary="Exclude a message from prompts",
        request=None,
        responses=answers({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Exclude a message, and every summary made from it, from prompts."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.exclude(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Include(MessageAction):
    """Include an excluded message again."""

    @extend_schema(
        operation_id="chats_messages_include",
        summary="Include a message in prompts again",
        request=None,
        responses=answers({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Include an excluded message in prompts again."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.include(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Keep(MessageAction):
    """Keep an incomplete reply."""

    @extend_schema(
        operation_id="chats_messages_keep",
        summary="Keep an incomplete reply",
        request=None,
        responses=answers({200: MessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Include an interrupted reply in later prompts."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.keep(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Edit(MessageAction):
    """Edit a message."""

    parser_classes = (MessageParser,)

    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_edit",
        summary="Edit a message",
        request=EditRequest,
        examples=examples.EDIT,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({202: AcceptedOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Edit one of your messages: creates a branch, and a turn that replies to it.

        The original message and its branch are kept. 202: follow the turn.
        """
        message = self.message(request, chat_id, message_id)
        text = EditRequest.read(request.data)["text"]
        count_message(request)
        accepted = branching.edit(
            user=person(request),
            message=message,
            text=text,
            now=timezone.now(),
            idempotency_key=idempotency_key(request),
            api_key=key_of(request),
        )
        return Response(
            {"message": one(MessageOut, accepted.message), "turn": one(TurnOut, accepted.turn)},
            status=202,
            headers=replay_header(repeated=accepted.repeated),
        )


class Regenerate(MessageAction):
    """Regenerate a reply."""

    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_regenerate",
        summary="Regenerate a reply",
        request=RegenerateRequest,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Regenerate a reply on a new branch. 202: follow the turn."""
        message = self.message(request, chat_id, message_id)
        play_on = RegenerateRequest.read(request.data)["play_on"]
        count_message(request)
        accepted = branching.regenerate_once(
            user=person(request),
            message=message,
            now=timezone.now(),
            idempotency_key=idempotency_key(request),
            api_key=key_of(request),
            play_on=play_on,
        )
        replayed = replay_header(repeated=accepted.repeated)
        return Response(one(TurnOut, accepted.turn), status=202, headers=replayed)


class BranchFrom(MessageAction):
    """Branch from a message."""

    @extend_schema(
        operation_id="chats_messages_branch",
        summary="Branch from a message",
        request=None,
        responses=answers({201: BranchOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Create a branch that ends with this message, and make it the active one."""
        message = self.message(request, chat_id, message_id)
        EmptyBody.read(request.data)
        branch = branching.branch_from(user=person(request), message=message, now=timezone.now())
        return Response(one(BranchOut, branch), status=201)

"""Actions on one message: mark it, edit it, ask for another reply, branch off."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import branching, marks
from chats.api import examples
from chats.api.endpoint import Endpoint, count_message, key_of, person
from chats.api.inputs import Again, Nothing, OtherWords
from chats.api.once import idempotency_key
from chats.api.outputs import AcceptedOut, BranchOut, MessageOut, PinRoomOut, TurnOut, one
from chats.api.parsing import MessageParser
from chats.api.schema import IDEMPOTENCY_KEY, READ_ERRORS, answers
from chats.models import Message
from chats.record import access


class Pins(Endpoint):
    """The room for pinned messages."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_pins_get",
        responses=answers({200: PinRoomOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Say what the pinned messages of the active branch take, and may take."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        return Response(one(PinRoomOut, marks.pin_room(chat=chat)))


class MessageAction(Endpoint):
    """The base of actions on a message."""

    scopes: ClassVar = {"POST": "chats:write"}

    def message(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Message:
        """Return the message of the address. Raises `NotFound`."""
        return access.message_for(user=person(request), chat_id=chat_id, message_id=message_id)


class Pin(MessageAction):
    """The pin that sends a message always."""

    @extend_schema(
        operation_id="chats_messages_pin", request=None, responses=answers({200: MessageOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Send the message whole in every prompt; repeating it changes nothing."""
        message = self.message(request, chat_id, message_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.pin(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Unpin(MessageAction):
    """The removal of a pin."""

    @extend_schema(
        operation_id="chats_messages_unpin", request=None, responses=answers({200: MessageOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Let the message be folded like any other."""
        message = self.message(request, chat_id, message_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.unpin(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Exclude(MessageAction):
    """The exclusion that sends a message never."""

    @extend_schema(
        operation_id="chats_messages_exclude", request=None, responses=answers({200: MessageOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Send the message in no prompt any more, nor any summary that was made of it."""
        message = self.message(request, chat_id, message_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.exclude(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Include(MessageAction):
    """The end of an exclusion."""

    @extend_schema(
        operation_id="chats_messages_include", request=None, responses=answers({200: MessageOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Let the message be sent again."""
        message = self.message(request, chat_id, message_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.include(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Keep(MessageAction):
    """The decision to keep an incomplete reply."""

    @extend_schema(
        operation_id="chats_messages_keep", request=None, responses=answers({200: MessageOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Let a reply that a fault cut off count in later prompts."""
        message = self.message(request, chat_id, message_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        marked = marks.keep(message=message, actor=actor, now=timezone.now())
        return Response(one(MessageOut, marked))


class Edit(MessageAction):
    """The edit of a message."""

    parser_classes = (MessageParser,)

    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_edit",
        request=OtherWords,
        examples=examples.EDIT,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({202: AcceptedOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Say a message of yours in other words: a new branch, and a turn that answers it.

        Nothing said is changed; the old branch stays. 202: follow the turn.
        """
        message = self.message(request, chat_id, message_id)
        text = OtherWords.read(request.data)["text"]
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
        )


class Regenerate(MessageAction):
    """The request for another reply."""

    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_regenerate",
        request=Again,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Ask for a reply again, on a new branch. 202: follow the turn."""
        message = self.message(request, chat_id, message_id)
        play_on = Again.read(request.data)["play_on"]
        count_message(request)
        turn = branching.regenerate(
            user=person(request),
            message=message,
            now=timezone.now(),
            idempotency_key=idempotency_key(request),
            api_key=key_of(request),
            play_on=play_on,
        )
        return Response(one(TurnOut, turn), status=202)


class BranchFrom(MessageAction):
    """The start of a branch."""

    @extend_schema(
        operation_id="chats_messages_branch", request=None, responses=answers({201: BranchOut})
    )
    def post(self, request: Request, chat_id: uuid.UUID, message_id: uuid.UUID) -> Response:
        """Make a branch that ends with this message and make it the active one."""
        message = self.message(request, chat_id, message_id)
        Nothing.read(request.data)
        branch = branching.branch_from(user=person(request), message=message, now=timezone.now())
        return Response(one(BranchOut, branch), status=201)

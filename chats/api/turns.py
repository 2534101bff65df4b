"""Turns of a chat: retrieve, stop, retry, continue."""

import uuid
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, count_message, key_of, person
from chats.api.inputs import EmptyBody
from chats.api.outputs import TurnDetailOut, TurnOut, one
from chats.api.schema import READ_ERRORS, answers
from chats.compaction.report.skip_reasons import why_not
from chats.memory import references
from chats.models import Receipt, Turn
from chats.record import access
from chats.turns.start import continue_reply, retry
from chats.turns.stop import stop


class OneTurn(Endpoint):
    """One turn."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_turns_get",
        summary="Get a turn",
        responses=answers({200: TurnDetailOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Retrieve a turn with its text, reply, error, usage, receipts and compaction decision."""
        turn: Any = access.turn_for(user=person(request), chat_id=chat_id, turn_id=turn_id)
        rows = Receipt.objects.filter(turn=turn)
        turn.receipts_in_order = list(rows.order_by("attempt", "step", "call"))
        turn.references_in_order = references.of_turn(turn.pk, owner_id=turn.branch.chat.owner_id)
        turn.compaction = why_not(turn)
        return Response(one(TurnDetailOut, turn))


class TurnAction(Endpoint):
    """Base class of the actions on a turn. The request body is empty."""

    scopes: ClassVar = {"POST": "chats:write"}

    def turn(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Turn:
        """Return the turn in the URL. Raises `NotFound`."""
        found = access.turn_for(user=person(request), chat_id=chat_id, turn_id=turn_id)
        EmptyBody.read(request.data)
        return found


class StopTurn(TurnAction):
    """Stop a reply."""

    @extend_schema(
        operation_id="chats_turns_stop",
        summary="Stop a turn",
        request=None,
        responses=answers({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Stop a turn. The text so far becomes its reply, marked as stopped."""
        turn = self.turn(request, chat_id, turn_id)
        stopped = stop(user=person(request), turn=turn, now=timezone.now())
        return Response(one(TurnOut, stopped), status=202)


class RetryTurn(TurnAction):
    """Retry a turn."""

    @extend_schema(
        operation_id="chats_turns_retry",
        summary="Retry a turn",
        request=None,
        responses=answers({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Reply to the same message again, as a new turn."""
        turn = self.turn(request, chat_id, turn_id)
        count_message(request)
        again = retry(user=person(request), turn=turn, now=timezone.now(), api_key=key_of(request))
        return Response(one(TurnOut, again), status=202)


class ContinueTurn(TurnAction):
    """Continue a truncated reply."""

    @extend_schema(
        operation_id="chats_turns_continue",
        summary="Continue a truncated reply",
        request=None,
        responses=answers({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Continue a truncated reply, as a new turn."""
        turn = self.turn(request, chat_id, turn_id)
        count_message(request)
        onward = continue_reply(
            user=person(request), turn=turn, now=timezone.now(), api_key=key_of(request)
        )
        return Response(one(TurnOut, onward), status=202)

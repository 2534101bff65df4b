"""Turns of a chat: retrieve, stop, retry, continue."""

import uuid
from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.core.base import Endpoint, count_message_request, get_request_key, get_request_user
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import TurnDetailOut, TurnOut, serialize_row
from chats.api.core.schema import READ_ERRORS, add_error_responses
from chats.compaction.report.skip_reasons import explain_skipped_compaction
from chats.memory.search import references
from chats.models import Receipt, Turn
from chats.record import access
from chats.turns.start import continue_reply, retry_turn
from chats.turns.stop import stop_turn


class TurnDetail(Endpoint):
    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_turns_get",
        summary="Get a turn",
        responses=add_error_responses({200: TurnDetailOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Retrieve a turn with its text, reply, error, usage, receipts and compaction decision."""
        turn: Any = access.get_turn(
            user=get_request_user(request), chat_id=chat_id, turn_id=turn_id
        )
        rows = Receipt.objects.filter(turn=turn)
        turn.receipts_in_order = list(rows.order_by("attempt", "step", "call"))
        turn.references_in_order = references.load_turn_references(
            turn.pk, owner_id=turn.branch.chat.owner_id
        )
        turn.compaction = explain_skipped_compaction(turn)
        return Response(serialize_row(TurnDetailOut, turn))


class TurnAction(Endpoint):
    """Base class of the actions on a turn. The request body is empty."""

    scopes: ClassVar = {"POST": "chats:write"}

    def turn(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Turn:
        """Return the turn in the URL. Raises `NotFound`."""
        found = access.get_turn(user=get_request_user(request), chat_id=chat_id, turn_id=turn_id)
        EmptyBody.read(request.data)
        return found


class StopTurn(TurnAction):
    @extend_schema(
        operation_id="chats_turns_stop",
        summary="Stop a turn",
        request=None,
        responses=add_error_responses({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Stop a queued or running turn. The text so far becomes its reply, marked as stopped.

        409 `turn_is_over` if it has ended.
        """
        turn = self.turn(request, chat_id, turn_id)
        stopped = stop_turn(user=get_request_user(request), turn=turn, now=timezone.now())
        return Response(serialize_row(TurnOut, stopped), status=202)


class RetryTurn(TurnAction):
    @extend_schema(
        operation_id="chats_turns_retry",
        summary="Retry a turn",
        request=None,
        responses=add_error_responses({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Reply to the message of the latest turn again, as a new turn. 202: follow that turn."""
        turn = self.turn(request, chat_id, turn_id)
        count_message_request(request)
        again = retry_turn(
            user=get_request_user(request),
            turn=turn,
            now=timezone.now(),
            api_key=get_request_key(request),
        )
        return Response(serialize_row(TurnOut, again), status=202)


class ContinueTurn(TurnAction):
    @extend_schema(
        operation_id="chats_turns_continue",
        summary="Continue a truncated reply",
        request=None,
        responses=add_error_responses({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Continue the reply of the latest turn where it was cut off, as a new turn. 202: follow
        that turn.
        """
        turn = self.turn(request, chat_id, turn_id)
        count_message_request(request)
        onward = continue_reply(
            user=get_request_user(request),
            turn=turn,
            now=timezone.now(),
            api_key=get_request_key(request),
        )
        return Response(serialize_row(TurnOut, onward), status=202)

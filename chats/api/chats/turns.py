"""Turns of a chat: retrieve, stop, retry, continue."""

import uuid
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.turn_outputs import TurnDetailOut, TurnOut
from chats.api.core.base import Endpoint, count_message_request, get_request_key
from chats.api.core.inputs import EmptyBody, Strict, WholeNumber
from chats.api.core.outputs import serialize_row
from chats.compaction.report.skip_reasons import explain_skipped_compaction
from chats.files.sent_excerpts import list_sent_excerpts
from chats.memory.search import references
from chats.models import Receipt, Turn
from chats.record import access
from chats.turns.consents import DECISIONS, decide_tool_call, list_waiting_calls
from chats.turns.follow_up_turns import continue_reply, retry_turn
from chats.turns.stop import stop_turn


class ConsentIn(Strict):
    """A decision about a tool call that waits for consent."""

    call = WholeNumber(
        min_value=1,
        max_value=2**63 - 1,
        help_text="Id of the call, from `waiting_calls` of the turn.",
    )
    decision = serializers.ChoiceField(
        choices=DECISIONS,
        help_text=(
            "`once`: allow this call. `chat`: allow this call, the other waiting calls of the "
            "tool, and its later calls in this chat until the definition of the tool changes. "
            "`deny`: the tool is not called."
        ),
    )


class TurnViewSet(Endpoint):
    serializer_class = TurnOut
    lookup_url_kwarg = "turn_id"

    @extend_schema(summary="Get a turn", responses=TurnDetailOut)
    def retrieve(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Retrieve a turn with its text, reply, error, usage, receipts and compaction decision.

        While the turn runs, `partial_text` contains the text of the running step.
        """
        turn: Any = access.get_turn(user=self.user, chat_id=chat_id, turn_id=turn_id)
        rows = Receipt.objects.filter(turn=turn)
        turn.receipts_in_order = list(rows.order_by("attempt", "step", "call"))
        turn.references_in_order = references.load_turn_references(
            turn.pk, owner_id=turn.branch.chat.owner_id
        )
        turn.file_excerpts_in_order = list_sent_excerpts(turn)
        turn.tool_calls_in_order = list(turn.tool_calls.defer("content").order_by("step", "place"))
        turn.waiting_calls = list_waiting_calls(turn)
        turn.compaction = explain_skipped_compaction(turn)
        return Response(serialize_row(TurnDetailOut, turn))

    def get_object(self) -> Turn:
        """Return the turn in the URL, for an action without a body.

        Raises `NotFound`, and DRF's ValidationError if the body has fields.
        """
        found = access.get_turn(user=self.user, **self.kwargs)
        EmptyBody.read(self.request.data)
        return found

    @extend_schema(summary="Stop a turn", responses={202: TurnOut})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Stop a queued or running turn. Text that was already written becomes the reply.

        The reply is marked as stopped. Other replies of a team that run in parallel continue.
        Returns 409 `turn_is_over` if the turn has ended.
        """
        turn = self.get_object()
        return self.respond(stop_turn(user=self.user, turn=turn, now=timezone.now()), status=202)

    @extend_schema(
        operation_id="chats_turns_consent",
        summary="Approve or deny a tool call",
        request=ConsentIn,
        responses={202: TurnOut},
    )
    @action(detail=True, methods=["post"])
    def consent(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Allow or deny a tool call that waits for consent.

        The turn continues when all waiting calls have been decided. Returns 409 `consent_is_over`
        if the request was already answered, if it has expired, or if the reply has ended.
        """
        turn = access.get_turn(user=self.user, chat_id=chat_id, turn_id=turn_id)
        given = ConsentIn.read(request.data)
        decided = decide_tool_call(
            user=self.user,
            turn=turn,
            call_id=given["call"],
            decision=given["decision"],
            now=timezone.now(),
        )
        return self.respond(decided, status=202)

    @extend_schema(summary="Retry a turn", responses={202: TurnOut})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Reply to the message of the latest turn again, as a new turn.

        The turn must have failed, or a user must have stopped it. For another version of a
        complete reply, use `POST /chats/{chat_id}/messages/{message_id}/regenerate`.

        Returns 202 with the new turn; follow its events to receive the reply.
        """
        turn = self.get_object()
        count_message_request(request)
        again = retry_turn(
            user=self.user, turn=turn, now=timezone.now(), api_key=get_request_key(request)
        )
        return self.respond(again, status=202)

    @extend_schema(
        operation_id="chats_turns_continue",
        summary="Continue a truncated reply",
        responses={202: TurnOut},
    )
    @action(detail=True, methods=["post"], url_path="continue")
    def continue_reply(self, request: Request, chat_id: uuid.UUID, turn_id: uuid.UUID) -> Response:
        """Continue the truncated reply of the latest turn, as a new turn.

        Returns 202 with the new turn; follow its events to receive the rest of the reply.
        """
        turn = self.get_object()
        count_message_request(request)
        onward = continue_reply(
            user=self.user, turn=turn, now=timezone.now(), api_key=get_request_key(request)
        )
        return self.respond(onward, status=202)

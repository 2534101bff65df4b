"""The messages of a chat: list and send."""

import uuid
from collections.abc import Iterable
from typing import ClassVar

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, count_message, key_of, person
from chats.api.inputs import MessagesQuery, NewMessage
from chats.api.once import idempotency_key, replay_header
from chats.api.outputs import AcceptedOut, MessageOut, TurnOut, items, listed, one
from chats.api.pages import page_of
from chats.api.parsing import MessageParser
from chats.api.schema import ACCEPTED_EVENTS, IDEMPOTENCY_KEY, READ_ERRORS, answers
from chats.people import keys
from chats.record import access, history
from chats.record import messages as store
from chats.streams import connection
from chats.streams.api import FollowingPerson, check_room, stream_of
from chats.streams.web import cookie_of
from chats.turns.start import start

# Content type of an event stream.
EVENTS = "text/event-stream"


class EventsOrJSON(DefaultContentNegotiation):
    """Let POST clients accept only events. Error responses to them are still JSON."""

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return JSON for a client that accepts only events, else DRF's choice."""
        if request.method == "POST" and accepts_events_alone(request):
            return JSONRenderer(), JSONRenderer.media_type
        chosen: tuple[BaseRenderer, str] = super().select_renderer(
            request, renderers, format_suffix
        )
        return chosen


def accepts_events_alone(request: Request) -> bool:
    """Return True if the `Accept` header names only `text/event-stream`."""
    named = {
        each.partition(";")[0].strip() for each in request.headers.get("Accept", "").split(",")
    }
    return named == {EVENTS}


class Messages(Endpoint):
    """The messages on the active branch of a chat."""

    parser_classes = (MessageParser,)

    content_negotiation_class = EventsOrJSON
    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}
    knows_repetitions = True

    @extend_schema(
        operation_id="chats_messages_list",
        summary="List messages",
        parameters=[MessagesQuery],
        responses=answers({200: listed(MessageOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the messages of the active branch, oldest first.

        Messages that wait for a turn follow at the end of the last page, beyond its limit.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        query = MessagesQuery.read(request.query_params.dict())
        first, last = query.pop("from_seq", None), query.pop("to_seq", None)
        branch = chat.active_branch
        if branch is None:
            return Response({"data": [], "next_cursor": None})
        # Waiting messages are read first: one that a turn accepts in between then appears twice at
        # worst, and is never missing.
        waiting = [] if last is not None else store.waiting(branch_id=branch.pk)
        branch.refresh_from_db(fields=["last_seq"])
        page = page_of(
            history.on_path(branch, after=(first or 1) - 1, before=(last or branch.last_seq) + 1),
            order=("seq",),
            name=f"messages:{branch.pk}:{first}:{last}",
            **query,
        )
        rows = page.rows
        if page.next_cursor is None:
            taken_up = {message.pk for message in rows}
            rows = [*rows, *(message for message in waiting if message.pk not in taken_up)]
        return Response({"data": items(MessageOut, rows), "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="chats_messages_send",
        summary="Send a message",
        request=NewMessage,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({202: AcceptedOut, (200, EVENTS): OpenApiResponse(str, ACCEPTED_EVENTS)}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> HttpResponseBase:
        """Send a message. 202: the message is stored; follow the turn for the reply.

        With `stream`, or if the client accepts only `text/event-stream`, the response is a 200 with
        the events of the turn. An API key then also needs the scope `chats:read`.
        """
        chat = access.named_chat_for(user=person(request), chat_id=chat_id)
        sent = NewMessage.read(request.data)
        is_stream = sent["stream"] or accepts_events_alone(request)
        viewer = follower(request) if is_stream else None
        count_message(request)
        accepted = start(
            user=person(request),
            chat=chat,
            text=sent["text"],
            as_role=sent["as_role"],
            now=timezone.now(),
            idempotency_key=idempotency_key(request),
            api_key=key_of(request),
        )
        answer = {"message": one(MessageOut, accepted.message), "turn": one(TurnOut, accepted.turn)}
        replayed = replay_header(repeated=accepted.repeated)
        if viewer is None:
            return Response(answer, status=202, headers=replayed)
        greeting = connection.sse("accepted", JSONRenderer().render(answer).decode())
        stream = stream_of(viewer, chat_id=chat.pk, turn_id=accepted.turn.pk, greeting=greeting)
        for name, value in replayed.items():
            stream[name] = value
        return stream


def follower(request: Request) -> FollowingPerson:
    """Return the client that follows the reply.

    Raises `InsufficientScope` and `TooManyStreams`.
    """
    key, user = key_of(request), person(request)
    if key is not None:
        keys.require_scope(key=key, scope="chats:read")
        viewer = FollowingPerson(user=user, key_id=key.pk)
    else:
        viewer = FollowingPerson(user=user, cookie=cookie_of(request))
    check_room(viewer)
    return viewer

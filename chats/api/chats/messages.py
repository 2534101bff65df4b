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

from chats.api.chats.message_inputs import MessagesQuery, NewMessage
from chats.api.chats.message_outputs import MessageOut
from chats.api.chats.turn_outputs import AcceptedOut, TurnOut
from chats.api.core.base import Endpoint, count_message_request, get_request_key, get_request_user
from chats.api.core.idempotency import build_replay_header, get_idempotency_key
from chats.api.core.outputs import build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.core.schema import ACCEPTED_EVENTS, MESSAGE_KEY
from chats.api.core.strict_json import MessageParser
from chats.files.inline import collect_file_ids
from chats.people import keys
from chats.record import access, history
from chats.record import messages as store
from chats.streams import connection
from chats.streams.api import FollowingPerson, build_turn_stream, check_stream_limit
from chats.streams.web import get_session_cookie
from chats.turns.start import start_turn

# Content type of an event stream.
EVENTS = "text/event-stream"


class EventsOrJSON(DefaultContentNegotiation):
    """Content negotiation for clients that accept only events. Error responses are still JSON."""

    methods: ClassVar[tuple[str, ...]] = ("POST",)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """Return JSON if the client accepts only events, otherwise DRF's choice."""
        if request.method in self.methods and accepts_only_events(request):
            return JSONRenderer(), JSONRenderer.media_type
        chosen: tuple[BaseRenderer, str] = super().select_renderer(
            request, renderers, format_suffix
        )
        return chosen


def accepts_only_events(request: Request) -> bool:
    named = {
        each.partition(";")[0].strip() for each in request.headers.get("Accept", "").split(",")
    }
    return named == {EVENTS}


class MessageViewSet(Endpoint):
    """The messages on the active branch of a chat."""

    serializer_class = MessageOut
    parser_classes = (MessageParser,)
    content_negotiation_class = EventsOrJSON
    repeatable = ("create",)

    @extend_schema(
        summary="List messages",
        parameters=[MessagesQuery],
        responses=build_page_serializer(MessageOut),
    )
    def list(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the messages of the active branch, oldest first.

        The last page also contains the queued messages, even if they exceed `limit`, unless
        `to_seq` is set.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        query = MessagesQuery.read(request.query_params.dict())
        first, last = query.pop("from_seq", None), query.pop("to_seq", None)
        branch = chat.active_branch
        if branch is None:
            return Response({"data": [], "next_cursor": None})
        # Waiting messages are read first: a message that a turn accepts between the two queries
        # then appears twice at worst, and is never missing.
        waiting = [] if last is not None else store.list_waiting_messages(branch_id=branch.pk)
        branch.refresh_from_db(fields=["last_seq"])
        page = paginate_rows(
            history.select_path_messages(
                branch, after=(first or 1) - 1, before=(last or branch.last_seq) + 1
            ),
            order=("seq",),
            name=f"messages:{branch.pk}:{first}:{last}",
            **query,
        )
        rows = page.rows
        if page.next_cursor is None:
            taken_up = {message.pk for message in rows}
            rows = [*rows, *(message for message in waiting if message.pk not in taken_up)]
        return Response({"data": serialize_rows(MessageOut, rows), "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="chats_messages_send",
        summary="Send a message",
        request=NewMessage,
        parameters=[MESSAGE_KEY],
        responses={202: AcceptedOut, (200, EVENTS): OpenApiResponse(str, ACCEPTED_EVENTS)},
    )
    def create(self, request: Request, chat_id: uuid.UUID) -> HttpResponseBase:
        """Send a message. Returns 202 with the stored message and the turn that replies to it.

        Follow the turn's events to receive the reply.

        With `stream`, or if the client accepts only `text/event-stream`, the response is a 200 with
        the events of the turn. An API key then also needs the scope `chats:read`.
        """
        chat = access.get_chat_with_model(user=self.user, chat_id=chat_id)
        sent = NewMessage.read(request.data)
        is_stream = sent["stream"] or accepts_only_events(request)
        viewer = build_follower(request) if is_stream else None
        count_message_request(request)
        accepted = start_turn(
            user=self.user,
            chat=chat,
            text=sent["text"],
            as_role=sent["as_role"],
            files=collect_file_ids(sent, owner=get_request_user(request), now=timezone.now()),
            unread=sent["allow_unread"],
            now=timezone.now(),
            idempotency_key=get_idempotency_key(request),
            api_key=get_request_key(request),
        )
        answer = {
            "message": serialize_row(MessageOut, accepted.message),
            "turn": serialize_row(TurnOut, accepted.turn),
        }
        replayed = build_replay_header(repeated=accepted.repeated)
        if viewer is None:
            return Response(answer, status=202, headers=replayed)
        greeting = connection.format_sse_event("accepted", JSONRenderer().render(answer).decode())
        stream = build_turn_stream(
            viewer, chat_id=chat.pk, turn_id=accepted.turn.pk, greeting=greeting
        )
        for name, value in replayed.items():
            stream[name] = value
        return stream


def build_follower(request: Request) -> FollowingPerson:
    """Return the client that will receive the events of the reply.

    Raises `InsufficientScope` for a key without `chats:read`, and `TooManyStreams`.
    """
    key, user = get_request_key(request), get_request_user(request)
    if key is not None:
        keys.require_scope(key=key, scope="chats:read")
        viewer = FollowingPerson(user=user, key_id=key.pk)
    else:
        viewer = FollowingPerson(user=user, cookie=get_session_cookie(request))
    check_stream_limit(viewer)
    return viewer

"""The UI message protocol: chats for clients of the AI SDK's `useChat`."""

from typing import Any, ClassVar, cast

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.messages import EVENTS, EventsOrJSON, build_follower
from chats.api.core.base import Endpoint, count_message_request, get_request_key
from chats.api.core.errors import MessageBodyTooLarge
from chats.api.core.idempotency import get_idempotency_key
from chats.api.core.inputs import LARGEST_PAGE, EmptyBody, PlainText, Strict
from chats.api.core.schema import MESSAGE_KEY
from chats.api.core.strict_json import SnapshotParser
from chats.exchange import ui_chats, ui_lookup, ui_messages, ui_requests
from chats.streams.ui_messages import build_ui_message_stream
from chats.turns.stop import stop_turn

CHUNKS = (
    "Chunks of the UI message stream protocol, version 1, as server-sent events. The last event is "
    "`[DONE]`."
)


class UIRequestParser(SnapshotParser):
    """Parses a request with all messages of a chat. Lone surrogates become U+FFFD."""

    repairs = True
    refusal = MessageBodyTooLarge


class ResumedOrJSON(EventsOrJSON):
    """Content negotiation for clients that resume a stream and accept only events."""

    methods: ClassVar[tuple[str, ...]] = ("GET", "DELETE")


class UIRequestIn(serializers.Serializer[Any]):
    """A request of `useChat`. Unknown fields are ignored."""

    id = serializers.CharField(
        help_text=(
            "Id of an existing chat, or a new id of 1 to 200 characters that the client chooses."
        )
    )
    messages = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text=(
            "UI messages. Required unless `message` is set. Only the last message is sent. The "
            "previous message must already be stored; if it is not the last one of the chat, a "
            "new branch starts after it. Can be empty with `regenerate-message`."
        ),
    )
    message = serializers.DictField(
        required=False, help_text="Only the last UI message, instead of `messages`."
    )
    trigger = serializers.ChoiceField(
        choices=["submit-message", "regenerate-message"],
        default="submit-message",
        help_text=(
            "`submit-message`: send or replace a message, or answer a request for consent. "
            "`regenerate-message`: regenerate a reply."
        ),
    )
    messageId = serializers.CharField(  # noqa: N815 - the protocol names it
        required=False,
        allow_null=True,
        help_text=(
            "Id of the user message to replace, or of the reply to regenerate. If the chat has no "
            "such user message, the message is new and follows the previous message of "
            "`messages`; without one, the request is refused. Null: append the message, or "
            "regenerate the last reply."
        ),
    )
    model = serializers.CharField(
        required=False,
        help_text=(
            "Id of the model that replies, from this request on. Absent: the model does not "
            "change. Ignored in answers to requests for consent."
        ),
    )


class UIMessagesQuery(Strict):
    """The position and the number of the messages to list."""

    limit = serializers.IntegerField(
        default=LARGEST_PAGE,
        min_value=1,
        max_value=LARGEST_PAGE,
        help_text=(
            "Maximum number of stored messages. Each step of a reply counts as one; the steps "
            "are merged afterwards."
        ),
    )
    before = PlainText(
        default="",
        help_text=(
            "Lists the messages before the UI message with this id. Absent: the newest messages."
        ),
    )


class UIChatOut(serializers.Serializer[Any]):
    """A chat as a list of UI messages, and whether a reply is running."""

    id = serializers.CharField(
        help_text=(
            "Id of the chat in the URL: the id that the client chose, or the value of `chat`."
        )
    )
    chat = serializers.UUIDField(help_text="Id of the chat in all other endpoints.")
    messages = serializers.ListField(
        child=serializers.DictField(), help_text="Messages of the chat, oldest first."
    )
    has_earlier = serializers.BooleanField(
        help_text="True: the chat has messages before those in `messages`."
    )
    running = serializers.BooleanField(
        help_text=(
            "True: a reply is queued or running, or waits for consent. Its stream can be resumed."
        )
    )


class UIChatsViewSet(Endpoint):
    """The endpoint for the default transport of `useChat`."""

    parser_classes = (UIRequestParser,)
    content_negotiation_class = EventsOrJSON
    repeatable = ("create",)

    @extend_schema(
        operation_id="ui_chats_send",
        summary="Send a UI message",
        request=UIRequestIn,
        parameters=[MESSAGE_KEY],
        responses={(200, EVENTS): OpenApiResponse(str, CHUNKS)},
    )
    def create(self, request: Request) -> HttpResponseBase:
        """Send, replace or regenerate a message, or answer a consent request. Streams the reply.

        A repeated request streams the same reply: a message that is sent again with its id, an edit
        that changes nothing, and the regeneration of a reply that was already replaced.

        An unknown `id` creates a chat. An API key also needs the scope `chats:read`.

        A tool call that waits for consent arrives as a part in the state `approval-requested`, and
        the stream ends. To answer, send the reply back; set the state of the part to
        `approval-responded`, and `approval` to `{id, approved}`. In `approval`, the `reason` “chat”
        also allows later calls to the tool in the chat.
        """
        asked = ui_requests.parse_ui_request(cast(dict[str, Any], request.data))
        viewer = build_follower(request)
        if not asked.approvals:
            count_message_request(request)
        reply = ui_chats.reply_to_ui_request(
            asked,
            user=self.user,
            now=timezone.now(),
            api_key=get_request_key(request),
            idempotency_key=get_idempotency_key(request),
        )
        return build_ui_message_stream(
            viewer, chat_id=reply.chat.pk, turn_id=reply.turn.pk, known=reply.known
        )


class UIChatViewSet(Endpoint):
    serializer_class = UIChatOut

    @extend_schema(
        operation_id="ui_chats_get", summary="List UI messages", parameters=[UIMessagesQuery]
    )
    def retrieve(self, request: Request, client_id: str) -> Response:
        """List the newest UI messages of the active branch, or earlier ones with `before`.

        All steps of a reply are merged into one message. Queued messages are listed last. A running
        reply is not included; resume its stream instead.
        """
        chat = ui_lookup.get_ui_chat(client_id, user=self.user)
        query = UIMessagesQuery.read(request.query_params.dict())
        listed, has_earlier = ui_messages.list_ui_messages(chat, **query)
        return Response(
            {
                "id": client_id,
                "chat": str(chat.pk),
                "messages": listed,
                "has_earlier": has_earlier,
                "running": ui_lookup.find_running_turn(chat) is not None,
            }
        )


class UIChatStreamViewSet(Endpoint):
    # No HEAD: it would open a stream without a reader.
    http_method_names: ClassVar = ["get", "delete"]  # type: ignore[misc]  # the base class declares no ClassVar
    content_negotiation_class = ResumedOrJSON

    @extend_schema(
        operation_id="ui_chats_resume",
        summary="Resume the stream of a reply",
        responses={(200, EVENTS): OpenApiResponse(str, CHUNKS), 204: None},
    )
    def retrieve(self, request: Request, client_id: str) -> HttpResponseBase:
        """Stream the oldest unfinished reply from its start.

        Returns 204 if no reply is queued or running.
        """
        chat = ui_lookup.get_ui_chat(client_id, user=self.user)
        turn = ui_lookup.find_running_turn(chat)
        if turn is None:
            return Response(status=204)
        return build_ui_message_stream(build_follower(request), chat_id=chat.pk, turn_id=turn.pk)

    @extend_schema(operation_id="ui_chats_stop", summary="Stop the running reply")
    def destroy(self, request: Request, client_id: str) -> Response:
        """Stop the oldest unfinished reply. Its text so far is kept.

        Has no effect if no reply is queued or running.
        """
        chat = ui_lookup.get_ui_chat(client_id, user=self.user)
        EmptyBody.read(request.data)
        turn = ui_lookup.find_running_turn(chat)
        if turn is not None:
            stop_turn(user=self.user, turn=turn, now=timezone.now())
        return Response(status=204)

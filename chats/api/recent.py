"""The newest messages of a person, of one chat or across all of their own."""

from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import RecentQuery
from chats.api.outputs import MessageOut, items
from chats.api.schema import READ_ERRORS, answers
from chats.prompt.model_choice import recent_window
from chats.record import access
from chats.record.recent import recent_messages

# However large a policy's window is.
MOST = 500


class RecentMessageOut(MessageOut):
    """A message with the chat in which it was said."""

    chat = serializers.UUIDField(source="branch.chat_id")


class RecentOut(serializers.Serializer[object]):
    """The newest messages, ascending by time, equal times by id."""

    data = RecentMessageOut(many=True)  # type: ignore[assignment]  # the base has another
    window = serializers.IntegerField(help_text="How many messages the policy lets be recent.")


class RecentMessages(Endpoint):
    """The newest messages of the person."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="messages_recent",
        parameters=[RecentQuery],
        responses=answers({200: RecentOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request) -> Response:
        """Read the last messages across one's own chats, as many as the policy's window holds.

        `limit` asks for fewer, `chat` for those of one chat. What was excluded, erased or said in
        a temporary chat is not among them. Raises `NotFound` and `PolicyRefused`.
        """
        query = RecentQuery.read(request.query_params.dict())
        asking, chat_id = person(request), query.get("chat")
        if chat_id is not None:
            access.chat_for(user=asking, chat_id=chat_id)
        window = recent_window(user_id=asking.pk, chat_id=chat_id)
        most = min(query.get("limit") or window, window, MOST)
        rows = recent_messages(owner=asking, most=most, chat_id=chat_id)
        return Response({"data": items(RecentMessageOut, rows), "window": window})

"""Recent messages of one chat, or of all chats of a user."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.chat_inputs import RecentQuery
from chats.api.chats.message_outputs import MessageOut
from chats.api.core.base import Endpoint
from chats.api.core.outputs import serialize_rows
from chats.prompt.model_choice import get_recent_window
from chats.record import access
from chats.record.recent import list_recent_messages

# Upper limit, regardless of the policy's window.
MOST = 500


class RecentMessageOut(MessageOut):
    """A message with the id of its chat."""

    chat = serializers.UUIDField(source="branch.chat_id")


class RecentOut(serializers.Serializer[object]):
    """Recent messages, oldest first."""

    data = RecentMessageOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`
    window = serializers.IntegerField(
        help_text=(
            "Size of the policy's window in messages, or `HISTORY_WINDOW` if the policy sets none."
        )
    )


class RecentMessageViewSet(Endpoint):
    serializer_class = RecentOut

    @extend_schema(
        operation_id="messages_recent",
        summary="List your recent messages",
        parameters=[RecentQuery],
    )
    def retrieve(self, request: Request) -> Response:
        """Get your most recent messages and their replies, oldest first, from all chats.

        The policy's window sets the number of messages, up to 500. Set `limit` to return fewer
        messages, and `chat` to return only messages of one chat. Excluded, erased and queued
        messages, messages without text and messages of temporary chats are not returned. Raises
        `NotFound` and `PolicyRefused`.
        """
        query = RecentQuery.read(request.query_params.dict())
        asking, chat_id = self.user, query.get("chat")
        if chat_id is not None:
            access.get_chat(user=asking, chat_id=chat_id)
        window = get_recent_window(user_id=asking.pk, chat_id=chat_id)
        most = min(query.get("limit") or window, window, MOST)
        rows = list_recent_messages(owner=asking, most=most, chat_id=chat_id)
        return Response({"data": serialize_rows(RecentMessageOut, rows), "window": window})

"""Search of the original messages that summaries and windows have replaced in the prompt."""

import uuid
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.chat_inputs import ArchiveQuery
from chats.api.chats.message_outputs import MessageOut
from chats.api.core.base import Endpoint
from chats.api.core.outputs import serialize_rows
from chats.compaction.people import summary_permissions
from chats.memory.search import index_progress
from chats.memory.search.search import check_question, search_archive
from chats.record import access


class ArchiveHitOut(serializers.Serializer[Any]):
    """Matching original messages of a chat, best match first."""

    data = MessageOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`
    missing = serializers.IntegerField(
        help_text=(
            "Number of messages that are not indexed yet. If it is not 0, search again in a minute."
        )
    )
    to_seq = serializers.IntegerField(
        help_text=(
            "Sequence number of the last message that is searched. 0: nothing is searched, because "
            "no compaction is active."
        )
    )


class ArchiveViewSet(Endpoint):
    serializer_class = ArchiveHitOut

    @extend_schema(
        operation_id="chats_archive_search",
        summary="Search the original messages of a chat",
        parameters=[ArchiveQuery],
    )
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Search the original messages of a chat for keywords.

        Searches the messages of the active branch that the active compaction (a summary or a
        window) replaced in prompts. `speaker` limits the search to one speaker. Excluded and erased
        messages are not found. The chat page returns the same results. Returns 403 `archive_closed`
        if the policy does not allow searching the originals.
        """
        branch = access.get_chat_branch(user=self.user, chat_id=chat_id)
        query = ArchiveQuery.read(request.query_params.dict())
        closed = summary_permissions.archive_lock(branch.chat)
        if closed is not None:
            raise closed
        check_question(query["q"])
        found = search_archive(
            branch, question=query["q"], most=query["limit"], speaker=query["speaker"]
        )
        told = {"missing": found.missing, "to_seq": index_progress.get_archived_seq(branch) or 0}
        return Response({"data": serialize_rows(MessageOut, found.rows), **told})

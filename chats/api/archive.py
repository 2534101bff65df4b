"""The search in the originals that a summary or a window stands for."""

import uuid
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.endpoint import Endpoint, person
from chats.api.inputs import ArchiveQuery
from chats.api.outputs import MessageOut, items
from chats.api.schema import READ_ERRORS, answers
from chats.compaction.people import rights
from chats.memory import archive
from chats.memory.search import check_question, search
from chats.record import access


class FoundOut(serializers.Serializer[Any]):
    """The originals that answer a question, best first."""

    data = MessageOut(many=True)  # type: ignore[assignment]  # the base class has another of its own
    missing = serializers.IntegerField(
        help_text="Messages that cannot be searched yet; ask again in a minute."
    )
    to_seq = serializers.IntegerField(
        help_text="The end of what was searched: later messages stand in the chat. 0: none is."
    )


class Archive(Endpoint):
    """The archive of a chat's active branch."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_archive_search",
        parameters=[ArchiveQuery],
        responses=answers({200: FoundOut}, errors=(*READ_ERRORS, 422)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Find originals by words, or only those of a speaker; excluded ones are not found.

        The page and the model's tool find the same. A policy may close the archive
        (`archive_closed`).
        """
        branch = access.branch_for(user=person(request), chat_id=chat_id)
        query = ArchiveQuery.read(request.query_params.dict())
        closed = rights.archive_lock(branch.chat)
        if closed is not None:
            raise closed
        check_question(query["q"])
        found = search(branch, question=query["q"], most=query["limit"], speaker=query["speaker"])
        told = {"missing": found.missing, "to_seq": archive.archived(branch) or 0}
        return Response({"data": items(MessageOut, found.rows), **told})

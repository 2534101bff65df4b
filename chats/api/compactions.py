"""Compactions of a chat: what was folded or left out, and which originals it stands for."""

import uuid
from typing import ClassVar

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats import access
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import PageQuery
from chats.api.outputs import CompactionOut, items, listed, one
from chats.api.pages import page_of
from chats.api.schema import READ_ERRORS, answers
from chats.models import Compaction


class Compactions(Endpoint):
    """All compactions of a chat, on every branch."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_compactions_list",
        parameters=[PageQuery],
        responses=answers({200: listed(CompactionOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """The compactions, newest first, with those that failed or were undone."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        query = PageQuery.read(request.query_params.dict())
        page = page_of(
            Compaction.objects.filter(branch__chat=chat),
            order=("-created_at", "-id"),
            name=f"compactions:{chat.pk}",
            **query,
        )
        data = items(CompactionOut, page.rows)
        return Response({"data": data, "next_cursor": page.next_cursor})


class OneCompaction(Endpoint):
    """One compaction."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_compactions_get",
        responses=answers({200: CompactionOut}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID, compaction_id: uuid.UUID) -> Response:
        """The compaction. Its originals: the chat's messages, `from_seq` to `to_seq`."""
        found = access.compaction_for(
            user=person(request), chat_id=chat_id, compaction_id=compaction_id
        )
        return Response(one(CompactionOut, found))

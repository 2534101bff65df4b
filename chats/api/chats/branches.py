"""Branches of a chat: list them, choose the active one."""

import uuid
from typing import ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import branching
from chats.api.core.base import Endpoint, get_request_user
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import BranchOut, build_page_serializer, serialize_row, serialize_rows
from chats.api.core.pages import paginate_rows
from chats.api.core.schema import READ_ERRORS, add_error_responses
from chats.models import Branch
from chats.record import access


class Branches(Endpoint):
    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_branches_list",
        summary="List branches",
        parameters=[PageQuery],
        responses=add_error_responses({200: build_page_serializer(BranchOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the branches of a chat, oldest first."""
        chat = access.get_chat(user=get_request_user(request), chat_id=chat_id)
        query = PageQuery.read(request.query_params.dict())
        page = paginate_rows(
            Branch.objects.filter(chat=chat).select_related("chat"),
            order=("created_at", "id"),
            name=f"branches:{chat.pk}",
            **query,
        )
        return Response(
            {"data": serialize_rows(BranchOut, page.rows), "next_cursor": page.next_cursor}
        )


class ChooseBranch(Endpoint):
    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(
        operation_id="chats_branches_choose",
        summary="Choose a branch",
        request=None,
        responses=add_error_responses({200: BranchOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID, branch_id: uuid.UUID) -> Response:
        """Make a branch the active one, to which new messages are added. Repeating the request has
        no effect.
        """
        chat = access.get_chat_with_model(user=get_request_user(request), chat_id=chat_id)
        EmptyBody.read(request.data)
        branch = branching.choose_branch(
            user=get_request_user(request), chat=chat, branch_id=branch_id, now=timezone.now()
        )
        return Response(serialize_row(BranchOut, branch))

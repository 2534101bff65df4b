"""Branches of a chat: list them, choose the active one."""

import uuid

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import branching
from chats.api.chats.chat_outputs import BranchOut
from chats.api.core.base import Endpoint
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer
from chats.models import Branch
from chats.record import access


class BranchViewSet(Endpoint):
    serializer_class = BranchOut
    lookup_url_kwarg = "branch_id"

    @extend_schema(
        summary="List branches", parameters=[PageQuery], responses=build_page_serializer(BranchOut)
    )
    def list(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the branches of a chat, oldest first."""
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        return self.respond_page(
            Branch.objects.filter(chat=chat).select_related("chat"),
            order=("created_at", "id"),
            name=f"branches:{chat.pk}",
        )

    @extend_schema(summary="Choose the active branch")
    @action(detail=True, methods=["post"])
    def choose(self, request: Request, chat_id: uuid.UUID, branch_id: uuid.UUID) -> Response:
        """Make a branch the active one, to which new messages are added.

        Repeating the request has no effect.
        """
        chat = access.get_chat_with_model(user=self.user, chat_id=chat_id)
        EmptyBody.read(request.data)
        branch = branching.choose_branch(
            user=self.user, chat=chat, branch_id=branch_id, now=timezone.now()
        )
        return self.respond(branch)

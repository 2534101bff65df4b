"""Chats: list, make, read, change, delete."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats import access, library, systemtext
from chats.api.endpoint import Endpoint, count_message, idempotency_key, key_of, person
from chats.api.inputs import ChatChange, NewChat, Nothing, PageQuery
from chats.api.outputs import (
    ChatOut,
    MessageOut,
    NewChatOut,
    OneChatOut,
    TurnOut,
    items,
    listed,
    one,
)
from chats.api.pages import page_of
from chats.api.schema import IDEMPOTENCY_KEY, READ_ERRORS, answers
from chats.idempotency import Keyed
from chats.models import ApiKey, Chat
from chats.turns.start import Accepted


class Chats(Endpoint):
    """All chats of the person."""

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}

    @extend_schema(
        operation_id="chats_list",
        parameters=[PageQuery],
        responses=answers({200: listed(ChatOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """The chats, last used first."""
        query = PageQuery.read(request.query_params.dict())
        rows = access.chats_visible_to(user=person(request))
        page = page_of(
            rows.select_related("model", "active_branch"),
            order=("-updated_at", "-id"),
            name="chats",
            **query,
        )
        return Response({"data": items(ChatOut, page.rows), "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="chats_create",
        request=NewChat,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({201: NewChatOut, 202: NewChatOut}),
    )
    def post(self, request: Request) -> Response:
        """Make a chat (201); with `text` also send its first message (202)."""
        values = NewChat.read(request.data)
        key = idempotency_key(request)
        if "text" not in values:
            chat = create(owner=person(request), key=key, **values)
            return Response({**one(ChatOut, chat), "message": None, "turn": None}, status=201)
        count_message(request)
        accepted = start(user=person(request), key=key, api_key=key_of(request), **values)
        chat = access.chat_for(user=person(request), chat_id=accepted.turn.branch.chat_id)
        message, turn = one(MessageOut, accepted.message), one(TurnOut, accepted.turn)
        return Response({**one(ChatOut, chat), "message": message, "turn": turn}, status=202)


class OneChat(Endpoint):
    """One chat."""

    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write", "DELETE": "chats:write"}

    @extend_schema(
        operation_id="chats_get", responses=answers({200: OneChatOut}, errors=READ_ERRORS)
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """The chat."""
        return Response(one(OneChatOut, access.chat_for(user=person(request), chat_id=chat_id)))

    @extend_schema(
        operation_id="chats_change", request=ChatChange, responses=answers({200: OneChatOut})
    )
    def patch(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Change the title, the model and the system text: all that are named, or none."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        values = ChatChange.read(request.data)
        marks: dict[str, Any] = {"actor": f"user:{request.user.pk}", "now": timezone.now()}
        with transaction.atomic():
            if "title" in values:
                chat = library.rename_chat(chat=chat, title=values["title"], **marks)
            if "model" in values:
                chat = library.choose_model(chat=chat, model_slug=values["model"], **marks)
            if "system_text" in values:
                chat = systemtext.write(chat=chat, text=values["system_text"], **marks)
        return Response(one(OneChatOut, chat))

    @extend_schema(operation_id="chats_delete", request=None, responses=answers({204: None}))
    def delete(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Delete the chat with everything said in it. Its audit events stay."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        Nothing.read(request.data)
        library.delete_chat(chat=chat, actor=f"user:{request.user.pk}", now=timezone.now())
        return Response(status=204)


def lock(user: User) -> None:
    """One after the other for this person: of two requests with one key, the second finds it."""
    User.objects.select_for_update(no_key=True).get(pk=user.pk)


@transaction.atomic
def create(*, owner: User, key: str, title: str, model: str) -> Chat:
    """An empty chat; the same key makes the same one. Raises what `library.create_chat` does."""
    lock(owner)
    now = timezone.now()
    keyed = Keyed(user=owner, route="chats:empty", key=key, body=f"{model}\n{title}")
    known = keyed.find(now=now)
    if known:
        return access.chat_for(user=owner, chat_id=uuid.UUID(known["chat"]))
    spec = library.find_model(model) if model else None
    chat = library.create_chat(owner=owner, now=now, title=title, model=spec)
    keyed.remember(result={"chat": str(chat.pk)}, now=now)
    return chat


@transaction.atomic
def start(
    *, user: User, key: str, api_key: ApiKey | None, text: str, title: str, model: str
) -> Accepted:
    """A chat with its first message; without a title the message gives it one."""
    lock(user)
    now = timezone.now()
    accepted = library.start_in_new_chat(
        user=user, text=text, now=now, model_slug=model, idempotency_key=key, api_key=api_key
    )
    if title and not accepted.repeated:
        chat = accepted.turn.branch.chat
        library.rename_chat(chat=chat, title=title, actor=f"user:{user.pk}", now=now)
    return accepted

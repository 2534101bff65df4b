"""Chats: list, make, read, change, delete, bring back."""

import uuid
from typing import Any, ClassVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import deletion, lifecycle, memory, organising, system_texts
from chats.api.endpoint import Endpoint, count_message, key_of, person
from chats.api.inputs import ChatChange, ChatsQuery, NewChat, Nothing
from chats.api.once import idempotency_key
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
from chats.api.parsing import MessageParser
from chats.api.schema import EDIT_ERRORS, IDEMPOTENCY_KEY, READ_ERRORS, answers
from chats.api.unchanged import Unchanged
from chats.models import ApiKey, Chat
from chats.record import access
from chats.record.idempotency import IdempotentRequest
from chats.teams import rosters
from chats.turns.start import Accepted

FILTERS = ("archived", "folder", "deleted")
PLACES = ("pinned", "archived", "folder")


class Chats(Endpoint):
    """All chats of the person."""

    parser_classes = (MessageParser,)

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}
    knows_repetitions = True

    @extend_schema(
        operation_id="chats_list",
        parameters=[ChatsQuery],
        responses=answers({200: listed(ChatOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List the chats, last used first."""
        query = ChatsQuery.read(request.query_params.dict())
        wanted = {name: query.pop(name) for name in FILTERS if name in query}
        rows = chosen(person(request), **wanted)
        page = page_of(
            rows.select_related("model", "active_branch"),
            order=("-updated_at", "-id"),
            name=f"chats:{sorted(wanted.items(), key=str)}",
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


class OneChat(Unchanged):
    """One chat."""

    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write", "DELETE": "chats:write"}

    def rows(self, _request: Request, *, chat_id: uuid.UUID) -> QuerySet[Chat]:
        """Return the chat."""
        return Chat.objects.filter(pk=chat_id)

    @extend_schema(
        operation_id="chats_get",
        responses=answers({200: OneChatOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read the chat."""
        return Response(one(OneChatOut, access.chat_for(user=person(request), chat_id=chat_id)))

    @extend_schema(
        operation_id="chats_change",
        request=ChatChange,
        responses=answers({200: OneChatOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Change what is named, all of it or nothing.

        Title, model, system text, and where the chat stands in the list.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        values = ChatChange.read(request.data)
        marks: dict[str, Any] = {"actor": f"user:{request.user.pk}", "now": timezone.now()}
        with transaction.atomic():
            if "title" in values:
                chat = lifecycle.rename_chat(chat=chat, title=values["title"], **marks)
            if "model" in values:
                chat = lifecycle.choose_model(chat=chat, model_slug=values["model"], **marks)
            if "team" in values:
                team_id, now = values["team"], timezone.now()
                chat = rosters.choose(user=person(request), chat=chat, team_id=team_id, now=now)
            if "system_text" in values:
                chat = system_texts.write(chat=chat, text=values["system_text"], **marks)
            if "memory" in values:
                chat = memory.set_memory_of_chat(chat=chat, remembers=values["memory"])
            places = {name: values[name] for name in PLACES if name in values}
            chat = organising.organise(chat=chat, user=person(request), **places)
        return Response(one(OneChatOut, chat))

    @extend_schema(
        operation_id="chats_delete",
        request=None,
        responses=answers({204: None}, errors=EDIT_ERRORS),
    )
    def delete(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Hide the chat at once; it is erased some days later, and can be brought back until then.

        A temporary chat is erased at once. Its audit events stay.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        Nothing.read(request.data)
        deletion.delete_chat(chat=chat, actor=f"user:{request.user.pk}", now=timezone.now())
        return Response(status=204)


class RestoreChat(Endpoint):
    """The return of a deleted chat."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(operation_id="chats_restore", request=None, responses=answers({200: OneChatOut}))
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Bring a deleted chat back, as it was. A chat that is not deleted stays as it is."""
        kept = access.kept_chat_for(user=person(request), chat_id=chat_id)
        Nothing.read(request.data)
        deletion.restore_chat(chat=kept, actor=f"user:{request.user.pk}", now=timezone.now())
        return Response(one(OneChatOut, access.chat_for(user=person(request), chat_id=chat_id)))


def chosen(
    user: User,
    *,
    deleted: bool,
    archived: bool | None = None,
    folder: uuid.UUID | None = None,
) -> QuerySet[Chat]:
    """Return the person's chats that a list asks for."""
    if deleted:
        kept = access.chats_kept_for(user=user)
        rows = kept.filter(deleted_at__isnull=False, temporary=False)
    else:
        rows = access.chats_visible_to(user=user)
    if archived is not None:
        rows = rows.filter(archived=archived)
    return rows.filter(folder=folder) if folder else rows


def lock(user: User) -> None:
    """Lock the person's row, so that their requests follow one another.

    Of two requests with one key, the second then finds the first.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)


@transaction.atomic
def create(
    *, owner: User, key: str, title: str, model: str, temporary: bool, team: uuid.UUID | None
) -> Chat:
    """Create an empty chat; the same key returns the same one.

    Raises what `lifecycle.create_chat` does.
    """
    lock(owner)
    now = timezone.now()
    body = f"{model}\n{title}" + "\ntemporary" * temporary + (f"\n{team}" if team else "")
    keyed = IdempotentRequest(user=owner, route="chats:empty", key=key, body=body)
    known = keyed.find(now=now)
    if known:
        return access.chat_for(user=owner, chat_id=uuid.UUID(known["chat"]))
    keyed.refuse_if_used(route="chats", now=now)
    spec = lifecycle.find_model(model) if model else None
    chosen_team = access.team_for(user=owner, team_id=team) if team else None
    chat = lifecycle.create_chat(
        owner=owner, now=now, title=title, model=spec, temporary=temporary, team=chosen_team
    )
    keyed.remember(result={"chat": str(chat.pk)}, now=now)
    return chat


@transaction.atomic
def start(
    *,
    user: User,
    key: str,
    api_key: ApiKey | None,
    text: str,
    title: str,
    model: str,
    temporary: bool,
    team: uuid.UUID | None,
) -> Accepted:
    """Start a chat with its first message; the same key returns the same one.

    Raises what `lifecycle.start_in_new_chat` does.
    """
    lock(user)
    now = timezone.now()
    keyed = IdempotentRequest(user=user, route="chats", key=key, body="")
    keyed.refuse_if_used(route="chats:empty", now=now)
    return lifecycle.start_in_new_chat(
        user=user,
        text=text,
        now=now,
        title=title,
        model_slug=model,
        temporary=temporary,
        team_id=team,
        idempotency_key=key,
        api_key=api_key,
    )

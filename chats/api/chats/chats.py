"""Chats: list, create, retrieve, update, delete, restore."""

import uuid
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions import deletion, lifecycle, memory, organising, system_texts
from chats.api.chats.chat_inputs import ChatChange, ChatsQuery, NewChat
from chats.api.chats.chat_outputs import ChatDetailOut, ChatOut, NewChatOut
from chats.api.chats.message_outputs import MessageOut
from chats.api.chats.turn_outputs import TurnOut
from chats.api.core.base import count_message_request, get_request_key
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.idempotency import build_replay_header, get_idempotency_key
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import build_page_serializer, serialize_row
from chats.api.core.schema import MESSAGE_KEY
from chats.api.core.strict_json import MessageParser, Parsers
from chats.files.inline import collect_file_ids
from chats.models import ApiKey, Chat
from chats.record import access
from chats.record.idempotency import IdempotentRequest
from chats.teams import rosters
from chats.turns.start import Accepted

FILTERS = ("archived", "folder", "deleted")
PLACES = ("pinned", "archived", "folder")


class ChatViewSet(ConditionalEndpoint):
    serializer_class = ChatDetailOut
    repeatable = ("create",)
    lookup_url_kwarg = "chat_id"

    def get_parsers(self) -> Parsers:
        """Return the parsers. A first message is never refused for lone surrogates."""
        is_new = self.action_map.get("post") == "create"
        return [MessageParser()] if is_new else super().get_parsers()

    def rows(self) -> QuerySet[Chat]:
        return Chat.objects.filter(pk=self.kwargs["chat_id"])

    @extend_schema(
        summary="List chats", parameters=[ChatsQuery], responses=build_page_serializer(ChatOut)
    )
    def list(self, request: Request) -> Response:
        """List your chats, most recently used first."""
        query = ChatsQuery.read(request.query_params.dict())
        wanted = {name: query.pop(name) for name in FILTERS if name in query}
        rows = filter_user_chats(self.user, **wanted)
        return self.respond_page(
            rows.select_related("model", "active_branch"),
            order=("-updated_at", "-id"),
            name=f"chats:{sorted(wanted.items(), key=str)}",
            query=query,
            kind=ChatOut,
        )

    @extend_schema(
        summary="Create a chat",
        request=NewChat,
        parameters=[MESSAGE_KEY],
        responses={201: NewChatOut, 202: NewChatOut},
    )
    def create(self, request: Request) -> Response:
        """Create a chat. Returns 201 with an empty chat if you send neither text nor files.

        If you send `text` or files, they become the first message and a reply starts. The request
        then returns 202 with the chat, the message and the turn. Follow the turn's events to
        receive the reply. Errors about messages, files and running replies occur only in this case.
        """
        values = NewChat.read(request.data)
        key = get_idempotency_key(request)
        if "text" not in values:
            values = {name: values[name] for name in ("title", "model", "temporary", "team")}
            chat, repeated = create_empty_chat(owner=self.user, key=key, **values)
            made = {**serialize_row(ChatOut, chat), "message": None, "turn": None}
            return Response(made, status=201, headers=build_replay_header(repeated=repeated))
        count_message_request(request)
        values["files"] = collect_file_ids(values, owner=self.user, now=timezone.now())
        del values["inline_files"]
        accepted = start_keyed_chat(
            user=self.user, key=key, api_key=get_request_key(request), **values
        )
        chat = access.get_chat(user=self.user, chat_id=accepted.turn.branch.chat_id)
        message, turn = (
            serialize_row(MessageOut, accepted.message),
            serialize_row(TurnOut, accepted.turn),
        )
        made = {**serialize_row(ChatOut, chat), "message": message, "turn": turn}
        return Response(made, status=202, headers=build_replay_header(repeated=accepted.repeated))

    @extend_schema(summary="Get a chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Retrieve one of your chats, including its settings and its own system text.

        Returns 404 while the chat is deleted.
        """
        return self.respond(access.get_chat(user=self.user, chat_id=chat_id))

    @extend_schema(summary="Update a chat", request=ChatChange)
    def partial_update(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Update the given fields of a chat. If one of them is invalid, nothing is changed.

        You can change the title, the model or team, the system text, the memory setting, the
        folder, and whether the chat is pinned or archived.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        values = ChatChange.read(request.data)
        marks: dict[str, Any] = {"actor": self.actor, "now": timezone.now()}
        with transaction.atomic():
            if "title" in values:
                chat = lifecycle.rename_chat(chat=chat, title=values["title"], **marks)
            if "model" in values:
                chat = lifecycle.choose_model(chat=chat, model_slug=values["model"], **marks)
            if "team" in values:
                team_id, now = values["team"], timezone.now()
                chat = rosters.set_chat_team(user=self.user, chat=chat, team_id=team_id, now=now)
            if "system_text" in values:
                chat = system_texts.set_system_text(chat=chat, text=values["system_text"], **marks)
            if "memory" in values:
                chat = memory.set_memory_of_chat(chat=chat, remembers=values["memory"])
            places = {name: values[name] for name in PLACES if name in values}
            chat = organising.organise_chat(chat=chat, user=self.user, **places)
        return self.respond(chat)

    @extend_schema(summary="Delete a chat")
    def destroy(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Delete a chat. You can restore it for 7 days (the default of `DELETED_CHAT_DAYS`).

        After that, the chat is erased. A temporary chat is erased immediately. A chat under a legal
        hold stays hidden, and is erased when the hold ends. Audit events are not deleted.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        EmptyBody.read(request.data)
        deletion.delete_chat(chat=chat, actor=self.actor, now=timezone.now())
        return Response(status=204)

    @extend_schema(summary="Restore a deleted chat")
    @action(detail=True, methods=["post"])
    def restore(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Restore a deleted chat. Has no effect on a chat that is not deleted.

        Returns 409 `chat_cannot_come_back` for a temporary chat, 409 `too_many_chats` if you have
        too many chats, and 404 once the chat is erased.
        """
        kept = access.get_chat_including_deleted(user=self.user, chat_id=chat_id)
        EmptyBody.read(request.data)
        deletion.restore_chat(chat=kept, actor=self.actor, now=timezone.now())
        return self.respond(access.get_chat(user=self.user, chat_id=chat_id))


def filter_user_chats(
    user: User, *, deleted: bool, archived: bool | None = None, folder: uuid.UUID | None = None
) -> QuerySet[Chat]:
    """Return the user's visible chats, or with `deleted` those that can be restored.

    None in `archived` or `folder` means no filter.
    """
    if deleted:
        kept = access.get_erasable_chats(user=user)
        rows = kept.filter(deleted_at__isnull=False, temporary=False)
    else:
        rows = access.get_visible_chats(user=user)
    if archived is not None:
        rows = rows.filter(archived=archived)
    return rows.filter(folder=folder) if folder else rows


def lock_user(user: User) -> None:
    """Lock the user's row, so that concurrent requests from one user run one at a time.

    If two requests have the same idempotency key, the second then finds the result of the first.
    """
    User.objects.select_for_update(no_key=True).get(pk=user.pk)


@transaction.atomic
def create_empty_chat(
    *, owner: User, key: str, title: str, model: str, temporary: bool, team: uuid.UUID | None
) -> tuple[Chat, bool]:
    """Create an empty chat, or find the one that the same key created.

    Returns the chat, and True if the key was used before. Raises `UnknownModel`, `NotFound` for an
    unknown team, `IdempotencyKeyReused`, and the errors of `lifecycle.create_chat`.
    """
    lock_user(owner)
    now = timezone.now()
    body = f"{model}\n{title}" + "\ntemporary" * temporary + (f"\n{team}" if team else "")
    keyed = IdempotentRequest(user=owner, route="chats:empty", key=key, body=body)
    known = keyed.find(now=now)
    if known:
        return access.get_chat(user=owner, chat_id=uuid.UUID(known["chat"])), True
    keyed.refuse_if_used(route="chats", now=now)
    spec = lifecycle.find_model(model) if model else None
    chosen_team = access.get_team(user=owner, team_id=team) if team else None
    chat = lifecycle.create_chat(
        owner=owner, now=now, title=title, model=spec, temporary=temporary, team=chosen_team
    )
    keyed.remember(result={"chat": str(chat.pk)}, now=now)
    return chat, False


@transaction.atomic
def start_keyed_chat(
    *,
    user: User,
    key: str,
    api_key: ApiKey | None,
    text: str,
    title: str,
    model: str,
    temporary: bool,
    team: uuid.UUID | None,
    files: Sequence[uuid.UUID],
    allow_unread: bool,
) -> Accepted:
    """Create a chat with its first message. The same key returns the same chat.

    Raises `IdempotencyKeyReused` and the errors of `lifecycle.start_in_new_chat`.
    """
    lock_user(user)
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
        files=files,
        unread=allow_unread,
    )

"""Team chats: task, messages, contexts of agents, and snapshots.

Field names match those of agent clients, such as `roleId` and `contextMessages`.
"""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.decorators import action
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.line_streams import stream_lines
from chats.api.core.base import Endpoint
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.idempotency import build_replay_header, get_idempotency_key
from chats.api.core.inputs import EmptyBody
from chats.api.core.outputs import build_page_serializer
from chats.api.core.pages import paginate_rows
from chats.api.core.schema import MESSAGE_KEY
from chats.api.core.strict_json import SnapshotParser
from chats.api.teams import team_inputs
from chats.api.teams.team_inputs import TeamMessagesQuery
from chats.api.teams.team_outputs import (
    AgentContextOut,
    AgentPromptOut,
    SnapshotOut,
    TeamMessageOut,
    TeamOut,
)
from chats.models import Chat, Message
from chats.prompt.tokenizer import O200kCounter
from chats.record import access
from chats.streams import lines
from chats.teams import conversation, lookup, snapshots
from chats.turns.start import get_active_branch
from contextpolicy.engine.team import team, team_state

# Filters of the message list.
LOOKED_FOR = ("id", "speaker", "since", "until")


def serialize_team_chat(chat: Chat, *, notice: str = "") -> dict[str, Any]:
    newest = conversation.find_newest_message(chat)
    branch = chat.active_branch
    return {
        "teamTask": chat.team_task,
        "notice": notice,
        "messageCount": branch.last_seq if branch else 0,
        "latestMessage": serialize_visible_message(newest, chat=chat) if newest else None,
    }


def serialize_visible_message(row: Message, *, chat: Chat) -> dict[str, Any]:
    """Return a message as the team sees it, with its UUID and time."""
    branch = chat.active_branch or row.branch
    seen = conversation.build_visible_message(row, branch=branch, chat=chat)
    return {
        **team_state.dump_team_message(seen),
        "message": str(row.pk),
        "createdAt": row.created_at,
    }


def stream_team_messages(
    request: Request, chat: Chat, rows: QuerySet[Message], *, name: str, cursor: str
) -> HttpResponseBase:
    """Stream messages as JSON lines from a cursor. Raises the errors of `stream_lines`."""
    writer = JSONRenderer()

    def part(after: int) -> tuple[bytes, int | None]:
        found = lookup.load_next_messages(rows, after=after)
        told = b"".join(
            writer.render(serialize_visible_message(row, chat=chat)) + b"\n" for row in found
        )
        return told, found[-1].seq if len(found) == lookup.PART else None

    return stream_lines(request, chat, part, name=name, cursor=cursor)


class TeamMessageViewSet(Endpoint):
    """The messages of the active branch, in the team's view."""

    serializer_class = TeamMessageOut
    repeatable = ("create",)

    @extend_schema(
        summary="List messages of a team chat",
        parameters=[TeamMessagesQuery],
        responses={
            200: build_page_serializer(TeamMessageOut),
            (200, lines.CONTENT_TYPE): OpenApiResponse(
                TeamMessageOut, "With `stream`: one message per line."
            ),
        },
    )
    def list(self, request: Request, chat_id: uuid.UUID) -> HttpResponseBase:
        """List the messages in a team chat, oldest first, optionally filtered.

        With `stream`, all messages are sent as lines. The stream ends early after 15 minutes (the
        default of `STREAM_SECONDS`), or if the server restarts or your access ends. The last line
        then has an `error` (`list_cut`) and the `next_cursor` of the remaining messages.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        query = TeamMessagesQuery.read(request.query_params.dict())
        wanted = {name: query.pop(name) for name in LOOKED_FOR if name in query}
        rows = lookup.select_team_messages(chat, **wanted)
        name = f"team:{get_active_branch(chat).pk}:{sorted(wanted.items())}"
        if query.pop("stream"):
            return stream_team_messages(request, chat, rows, name=name, cursor=query["cursor"])
        page = paginate_rows(rows, order=("seq",), name=name, **query)
        told = [serialize_visible_message(row, chat=chat) for row in page.rows]
        return Response({"data": told, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="chats_team_messages_add",
        summary="Add a message from a team member",
        request=team_inputs.NewTeamMessage,
        parameters=[MESSAGE_KEY],
    )
    def create(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Add a message from a team member to the active branch. No agent replies."""
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        added = conversation.add_message(
            user=self.user,
            chat=chat,
            data=team_inputs.NewTeamMessage.read(request.data)["message"],
            counter=O200kCounter(),
            now=timezone.now(),
            idempotency_key=get_idempotency_key(request),
        )
        told = {"message": str(added.row.pk), "createdAt": added.row.created_at}
        answer = {**team_state.dump_team_message(added.message), **told}
        return Response(answer, status=201, headers=build_replay_header(repeated=added.repeated))


class SnapshotViewSet(Endpoint):
    serializer_class = SnapshotOut
    parser_classes = (SnapshotParser,)

    @extend_schema(summary="Export a snapshot of a team chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Export the messages and the task of a team chat as a snapshot, version 1.

        Erased messages have empty text; queued ones are left out.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        return Response(snapshots.export_team_snapshot(chat=chat, now=timezone.now()))

    @extend_schema(
        operation_id="chats_team_snapshot_read",
        summary="Import a snapshot of a team chat",
        request=team_inputs.NewSnapshot,
        responses={200: TeamOut},
    )
    def create(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Replace the messages and the task of a team chat with a snapshot.

        If the snapshot is invalid, nothing changes. The earlier messages are kept on the branch
        that was active before.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        changed = snapshots.import_team_snapshot(
            chat=chat,
            snapshot=team_inputs.NewSnapshot.read(request.data)["snapshot"],
            counter=O200kCounter(),
            actor=self.actor,
            now=timezone.now(),
        )
        return Response(serialize_team_chat(changed))


class TeamChatViewSet(ConditionalEndpoint):
    """The task of a team chat, and the contexts of its agents."""

    serializer_class = TeamOut
    scopes: ClassVar = {"context": "chats:read", "prompt": "chats:read"}
    repeatable = ("context", "prompt")

    def rows(self) -> QuerySet[Chat]:
        return Chat.objects.filter(pk=self.kwargs["chat_id"])

    @extend_schema(summary="Get the task of a team chat")
    def retrieve(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Get the task of a team chat, the number of its messages and the latest message."""
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        return Response(serialize_team_chat(chat))

    @extend_schema(summary="Set the task of a team chat", request=team_inputs.TeamTask)
    def partial_update(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Set the task that is sent to every agent. A task over 5,120 bytes is truncated.

        If the task was truncated, `notice` contains the saved length.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        task = team_inputs.TeamTask.read(request.data)["teamTask"]
        changed = conversation.set_task(chat=chat, task=task, actor=self.actor, now=timezone.now())
        notice = conversation.cut_notice(task, kept=changed.team_task or "")
        return Response(serialize_team_chat(changed, notice=notice))

    @extend_schema(
        summary="Preview the context of an agent",
        request=team_inputs.AgentQuery,
        responses=AgentContextOut,
    )
    @action(detail=False, methods=["post"])
    def context(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Preview the context of an agent. Nothing is stored.

        The newest message is returned separately. The window counts the messages before it, without
        excluded, erased and incomplete ones. `leftOut` lists the omitted messages, each with the
        reason.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        context = conversation.assemble_agent_context(
            chat=chat, agent=parse_requested_agent(request.data)
        )
        left_out = [{"message": message, "reason": reason} for message, reason in context.left_out]
        return Response({**context.to_json(), "leftOut": left_out})

    @extend_schema(
        summary="Preview the prompt for an agent",
        request=team_inputs.AgentQuery,
        responses=AgentPromptOut,
    )
    @action(detail=False, methods=["post"])
    def prompt(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Preview the prompt for an agent, in the format of its client. Nothing is stored.

        If the prompt exceeds `maxBytes`, the oldest messages are left out and counted in `omitted`.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        prompt = conversation.build_agent_prompt(
            chat=chat, agent=parse_requested_agent(request.data)
        )
        return Response({**prompt.to_json(), "omitted": prompt.omitted})

    @extend_schema(summary="Clear a team chat")
    @action(detail=False, methods=["post"])
    def clear(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Clear the messages and the task of a team chat. The ids of new messages start at `msg-1`.

        The previous branch keeps its messages.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        EmptyBody.read(request.data)
        return Response(
            serialize_team_chat(
                snapshots.clear_team_chat(chat=chat, actor=self.actor, now=timezone.now())
            )
        )


def parse_requested_agent(data: Any) -> conversation.RequestedAgent:
    values: Mapping[str, Any] = team_inputs.AgentQuery.read(data)
    window = values["windowSizeOverride"]
    return conversation.RequestedAgent(
        agent_id=values["agentId"],
        agent_type=values["agentType"],
        window_size=team.WINDOW_SIZE if window is None else window,
        system_instruction=values["systemInstruction"],
        instruction_file_text=values["instructionFileText"],
    )

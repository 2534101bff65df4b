"""A chat as a team's: its task, what its members say, what each agent is shown, its snapshots.

Names of fields are those that programs for agents use: `roleId`, `contextMessages` and so on.
"""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api import team_inputs
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import Nothing, TeamMessagesQuery
from chats.api.line_streams import streamed
from chats.api.once import idempotency_key
from chats.api.outputs import listed
from chats.api.pages import page_of
from chats.api.parsing import SnapshotParser
from chats.api.schema import EDIT_ERRORS, IDEMPOTENCY_KEY, READ_ERRORS, answers
from chats.api.team_outputs import (
    AgentContextOut,
    AgentPromptOut,
    SnapshotOut,
    TeamMessageOut,
    TeamOut,
)
from chats.api.unchanged import Unchanged
from chats.models import Chat, Message
from chats.prompt.tokenizer import O200kCounter
from chats.record import access
from chats.streams import lines
from chats.teams import conversation, lookup, snapshots
from chats.turns.start import open_branch
from contextpolicy.engine import team, team_state

# How messages may be looked for.
LOOKED_FOR = ("id", "speaker", "since", "until")


def team_json(chat: Chat, *, notice: str = "") -> dict[str, Any]:
    """Return what is known of a chat as a team's."""
    newest = conversation.newest(chat)
    branch = chat.active_branch
    return {
        "teamTask": chat.team_task,
        "notice": notice,
        "messageCount": branch.last_seq if branch else 0,
        "latestMessage": message_json(newest, chat=chat) if newest else None,
    }


def message_json(row: Message, *, chat: Chat) -> dict[str, Any]:
    """Return a message as the team sees it, with the id of its row."""
    branch = chat.active_branch or row.branch
    seen = conversation.seen(row, branch=branch, chat=chat)
    return {
        **team_state.message_json(seen),
        "message": str(row.pk),
        "createdAt": row.created_at,
    }


def message_lines(
    request: Request, chat: Chat, rows: QuerySet[Message], *, name: str, cursor: str
) -> HttpResponseBase:
    """Return a list of messages as lines, from the cursor on. Raises as `streamed` does."""
    writer = JSONRenderer()

    def part(after: int) -> tuple[bytes, int | None]:
        found = lookup.next_part(rows, after=after)
        told = b"".join(writer.render(message_json(row, chat=chat)) + b"\n" for row in found)
        return told, found[-1].seq if len(found) == lookup.PART else None

    return streamed(request, chat, part, name=name, cursor=cursor)


class TeamOfChat(Unchanged):
    """The chat as a team's."""

    scopes: ClassVar = {"GET": "chats:read", "PATCH": "chats:write"}

    def rows(self, _request: Request, *, chat_id: uuid.UUID) -> QuerySet[Chat]:
        """Return the chat."""
        return Chat.objects.filter(pk=chat_id)

    @extend_schema(
        operation_id="chats_team_get",
        responses=answers({200: TeamOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Read the team's task and its newest message."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        return Response(team_json(chat))

    @extend_schema(
        operation_id="chats_team_change",
        request=team_inputs.TeamTask,
        responses=answers({200: TeamOut}, errors=EDIT_ERRORS),
    )
    def patch(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Set the task that every agent is told; of a longer one than 5,120 bytes the beginning.

        `notice` then says how much was kept.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        task = team_inputs.TeamTask.read(request.data)["teamTask"]
        changed = conversation.set_task(
            chat=chat, task=task, actor=f"user:{request.user.pk}", now=timezone.now()
        )
        notice = conversation.cut_notice(task, kept=changed.team_task or "")
        return Response(team_json(changed, notice=notice))


class TeamMessages(Endpoint):
    """The messages of the active branch, as the team sees them."""

    knows_repetitions = True
    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}

    @extend_schema(
        operation_id="chats_team_messages_list",
        parameters=[TeamMessagesQuery],
        responses=answers(
            {
                200: listed(TeamMessageOut),
                (200, lines.CONTENT_TYPE): OpenApiResponse(
                    TeamMessageOut, "With `stream`: one message a line."
                ),
            },
            errors=READ_ERRORS,
        ),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> HttpResponseBase:
        """List the messages, first to last, or those of a speaker, of a time, or of an id.

        With `stream` all of them come as lines. Permission is checked again on the way. A list that
        is ended early has as its last line an `error` (`list_cut`) and the `next_cursor` of the
        rest.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        query = TeamMessagesQuery.read(request.query_params.dict())
        wanted = {name: query.pop(name) for name in LOOKED_FOR if name in query}
        rows = lookup.messages_of(chat, **wanted)
        name = f"team:{open_branch(chat).pk}:{sorted(wanted.items())}"
        if query.pop("stream"):
            return message_lines(request, chat, rows, name=name, cursor=query["cursor"])
        page = page_of(rows, order=("seq",), name=name, **query)
        told = [message_json(row, chat=chat) for row in page.rows]
        return Response({"data": told, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="chats_team_messages_add",
        request=team_inputs.NewTeamMessage,
        parameters=[IDEMPOTENCY_KEY],
        responses=answers({201: TeamMessageOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Add what a member of the team said; no model of this server is asked for a reply."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        added = conversation.add_message(
            user=person(request),
            chat=chat,
            data=team_inputs.NewTeamMessage.read(request.data)["message"],
            counter=O200kCounter(),
            now=timezone.now(),
            idempotency_key=idempotency_key(request),
        )
        told = {"message": str(added.row.pk), "createdAt": added.row.created_at}
        return Response({**team_state.message_json(added.message), **told}, status=201)


class TeamContext(Endpoint):
    """The part of the chat that an agent is shown."""

    knows_repetitions = True
    scopes: ClassVar = {"POST": "chats:read"}

    @extend_schema(
        operation_id="chats_team_context",
        request=team_inputs.AgentQuery,
        responses=answers({200: AgentContextOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Choose what an agent is shown now; nothing is stored.

        The newest message stands apart, the window counts those before it. `leftOut` says why the
        others are not there.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        context = conversation.context_for(chat=chat, agent=agent_of(request.data))
        left_out = [{"message": message, "reason": reason} for message, reason in context.left_out]
        return Response({**context.to_json(), "leftOut": left_out})


class TeamPrompt(Endpoint):
    """The prompt of an agent."""

    knows_repetitions = True
    scopes: ClassVar = {"POST": "chats:read"}

    @extend_schema(
        operation_id="chats_team_prompt",
        request=team_inputs.AgentQuery,
        responses=answers({200: AgentPromptOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Write an agent's prompt in the form that its kind expects; nothing is stored.

        Over `maxBytes` the oldest messages go first; `omitted` counts them.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        prompt = conversation.prompt_for(chat=chat, agent=agent_of(request.data))
        return Response({**prompt.to_json(), "omitted": prompt.omitted})


class TeamSnapshot(Endpoint):
    """The chat as a snapshot."""

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}
    parser_classes = (SnapshotParser,)

    @extend_schema(
        operation_id="chats_team_snapshot_get",
        responses=answers({200: SnapshotOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Write messages and task down as a snapshot of version 1."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        return Response(snapshots.export(chat=chat, now=timezone.now()))

    @extend_schema(
        operation_id="chats_team_snapshot_read",
        request=team_inputs.NewSnapshot,
        responses=answers({200: TeamOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Replace what the team sees by a snapshot, whole or not at all.

        What was said before stays on the branch that was active until now.
        """
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        changed = snapshots.read(
            chat=chat,
            snapshot=team_inputs.NewSnapshot.read(request.data)["snapshot"],
            counter=O200kCounter(),
            actor=f"user:{request.user.pk}",
            now=timezone.now(),
        )
        return Response(team_json(changed))


class ClearTeam(Endpoint):
    """The new beginning of a team's chat."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(operation_id="chats_team_clear", request=None, responses=answers({200: TeamOut}))
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Begin again at `msg-1`, without messages and task; what was said stays on its branch."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        Nothing.read(request.data)
        actor = f"user:{request.user.pk}"
        return Response(team_json(snapshots.clear(chat=chat, actor=actor, now=timezone.now())))


def agent_of(data: Any) -> conversation.RequestedAgent:
    """Return the agent that a body names."""
    values: Mapping[str, Any] = team_inputs.AgentQuery.read(data)
    window = values["windowSizeOverride"]
    return conversation.RequestedAgent(
        agent_id=values["agentId"],
        agent_type=values["agentType"],
        window_size=team.WINDOW_SIZE if window is None else window,
        system_instruction=values["systemInstruction"],
        instruction_file_text=values["instructionFileText"],
    )

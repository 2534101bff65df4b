"""Teams of agents, and the rounds in which the agents of a chat reply."""

import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api import team_inputs
from chats.api.endpoint import Endpoint, count_message, key_of, person
from chats.api.inputs import EmptyBody, PageQuery
from chats.api.outputs import TurnOut, listed, one
from chats.api.pages import page_of
from chats.api.schema import EDIT_ERRORS, READ_ERRORS, answers
from chats.api.team_outputs import AgentContextOut, RosterOut, RoundOut, SavedRosterOut
from chats.api.unchanged import Unchanged
from chats.models import Round, Team
from chats.record import access
from chats.teams import conversation, play, rosters
from chats.turns.roster import roster_of
from chats.turns.start import open_branch
from contextpolicy.engine import team


def draft_from(data: Any, *, known: Team | None = None) -> rosters.TeamDraft:
    """Return the complete team that a request body describes.

    A prompt form, window or byte limit that the body leaves out keeps the value of the `known`
    team.
    """
    values = team_inputs.TeamBody.read(data)
    values.pop("shared", None)
    before = rosters.draft_of(known.current) if known and known.current else None
    agents = {agent.role_id: agent for agent in before.agents} if before else {}
    if values["max_bytes"] is None:
        values["max_bytes"] = before.max_bytes if before else team.MAX_BYTES
    drafts = [
        agent_from(agent, known=agents.get(agent["role_id"])) for agent in values.pop("agents")
    ]
    return rosters.TeamDraft(agents=drafts, **values)


def agent_from(
    values: Mapping[str, Any], *, known: rosters.AgentDraft | None
) -> rosters.AgentDraft:
    """Return the agent that a request body describes. `known` is the stored agent."""
    form, window = values["prompt_form"], values["window_size"]
    if not form:
        form = known.prompt_form if known else rosters.form_for(values["agent_type"])
    if window is None:
        window = known.window_size if known else team.WINDOW_SIZE
    return rosters.AgentDraft(**{**values, "prompt_form": form, "window_size": window})


def team_json(team: Team) -> dict[str, Any]:
    """Return a team with its rules and agents as JSON."""
    version = team.current
    if version is None:
        raise ValueError(f"team {team.pk} has no version")
    draft = rosters.draft_of(version)
    rules = {name: getattr(draft, name) for name in rosters.RULES}
    return {
        "id": str(team.pk),
        "name": version.name,
        "version": version.number,
        "shared": team.owner_id is None,
        **rules,
        "agents": [
            {name: getattr(agent, name) for name in agent.__slots__} for agent in draft.agents
        ],
    }


class Rosters(Endpoint):
    """The teams that the user can use."""

    scopes: ClassVar = {"GET": "chats:read", "POST": "chats:write"}

    @extend_schema(
        operation_id="teams_list",
        summary="List teams",
        parameters=[PageQuery],
        responses=answers({200: listed(RosterOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request) -> Response:
        """List your own teams and the shared ones, oldest first."""
        query = PageQuery.read(request.query_params.dict())
        rows = access.teams_visible_to(user=person(request)).select_related("current")
        page = page_of(rows, order=("created_at", "id"), name="teams", **query)
        told = [team_json(team) for team in page.rows]
        return Response({"data": told, "next_cursor": page.next_cursor})

    @extend_schema(
        operation_id="teams_create",
        summary="Create a team",
        request=team_inputs.TeamBody,
        responses=answers({201: SavedRosterOut}),
    )
    def post(self, request: Request) -> Response:
        """Create a team. Only administrators can set `shared`, which makes it available to all."""
        shared = team_inputs.TeamBody.read(request.data)["shared"]
        saved = rosters.create(
            user=person(request), draft=draft_from(request.data), shared=shared, now=timezone.now()
        )
        return Response({**team_json(saved.team), "warnings": saved.warnings}, status=201)


class OneRoster(Unchanged):
    """One team."""

    scopes: ClassVar = {"GET": "chats:read", "PUT": "chats:write", "DELETE": "chats:write"}
    http_method_names: ClassVar = [  # type: ignore[misc]  # the base class declares no ClassVar
        *Endpoint.http_method_names,
        "put",
    ]

    def rows(self, _request: Request, *, team_id: uuid.UUID) -> QuerySet[Team]:
        """Return the team."""
        return Team.objects.filter(pk=team_id)

    @extend_schema(
        operation_id="teams_get",
        summary="Get a team",
        responses=answers({200: RosterOut, 304: None}, errors=READ_ERRORS),
    )
    def get(self, request: Request, team_id: uuid.UUID) -> Response:
        """Retrieve a team."""
        return Response(team_json(access.team_for(user=person(request), team_id=team_id)))

    @extend_schema(
        operation_id="teams_change",
        summary="Replace a team",
        request=team_inputs.TeamBody,
        responses=answers({200: SavedRosterOut}, errors=EDIT_ERRORS),
    )
    def put(self, request: Request, team_id: uuid.UUID) -> Response:
        """Replace a team by a new version. A running round keeps the version it started with.

        An agent without a `role_id` is created.
        """
        known = access.team_for(user=person(request), team_id=team_id)
        saved = rosters.change(
            user=person(request),
            team_id=team_id,
            draft=draft_from(request.data, known=known),
            now=timezone.now(),
        )
        return Response({**team_json(saved.team), "warnings": saved.warnings})

    @extend_schema(
        operation_id="teams_delete",
        summary="Delete a team",
        request=None,
        responses=answers({204: None}, errors=EDIT_ERRORS),
    )
    def delete(self, request: Request, team_id: uuid.UUID) -> Response:
        """Delete a team. Chats that use it keep it; new chats cannot choose it."""
        EmptyBody.read(request.data)
        rosters.delete(user=person(request), team_id=team_id, now=timezone.now())
        return Response(status=204)


class CopyRoster(Endpoint):
    """Copy of a team."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(
        operation_id="teams_copy",
        summary="Copy a team",
        request=None,
        responses=answers({201: SavedRosterOut}),
    )
    def post(self, request: Request, team_id: uuid.UUID) -> Response:
        """Copy a team, with its agents, into a new team of yours."""
        EmptyBody.read(request.data)
        saved = rosters.copy(user=person(request), team_id=team_id, now=timezone.now())
        return Response({**team_json(saved.team), "warnings": saved.warnings}, status=201)


class ContextOfAgent(Endpoint):
    """The context of an agent in a chat."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_agents_context",
        summary="Get the context of an agent",
        responses=answers({200: AgentContextOut}, errors=(*READ_ERRORS, 409)),
    )
    def get(self, request: Request, chat_id: uuid.UUID, role_id: str) -> Response:
        """Get the current context of an agent, with its own window and instructions."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        agent = play.agent_in(chat, role_id=role_id)
        context = conversation.context_for(chat=chat, agent=play.as_asked(agent))
        left_out = [{"message": message, "reason": reason} for message, reason in context.left_out]
        return Response({**context.to_json(), "leftOut": left_out})


def round_json(made: Round) -> dict[str, Any]:
    """Return a round with its status and the next agents as JSON."""
    roster = roster_of(made.version)
    return {
        "id": str(made.pk),
        "status": made.status,
        "reason": made.reason,
        "team_version": made.version.number,
        "opening": str(made.opening_id) if made.opening_id else None,
        "speakers": roster.names(made.speakers),
        "next": roster.names(made.queue),
        "hops": made.hops,
        "hop_limit": made.version.hop_limit,
        "tokens": made.tokens,
        "unknown_names": made.unknown,
        "started_at": made.started_at,
        "finished_at": made.finished_at,
    }


class Rounds(Endpoint):
    """The rounds of a chat's active branch."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="chats_rounds_list",
        summary="List rounds",
        parameters=[PageQuery],
        responses=answers({200: listed(RoundOut)}, errors=READ_ERRORS),
    )
    def get(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the rounds, newest first."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        query = PageQuery.read(request.query_params.dict())
        branch = open_branch(chat)
        page = page_of(
            Round.objects.filter(branch=branch).select_related("version"),
            order=("-started_at", "-id"),
            name=f"rounds:{branch.pk}",
            **query,
        )
        told = [round_json(made) for made in page.rows]
        return Response({"data": told, "next_cursor": page.next_cursor})


class GoOn(Endpoint):
    """Continue a round that ended early."""

    scopes: ClassVar = {"POST": "chats:write"}

    @extend_schema(
        operation_id="chats_rounds_go_on",
        summary="Continue a round",
        request=None,
        responses=answers({202: TurnOut}),
    )
    def post(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Continue the latest round, with its limits reset. 202: follow the turn."""
        chat = access.chat_for(user=person(request), chat_id=chat_id)
        EmptyBody.read(request.data)
        count_message(request)
        now = timezone.now()
        turn = play.go_on(user=person(request), chat=chat, now=now, api_key=key_of(request))
        return Response(one(TurnOut, turn), status=202)

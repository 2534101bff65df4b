"""Teams of agents, and the rounds in which the agents of a chat reply."""

import uuid
from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.chats.turn_outputs import TurnOut
from chats.api.core.base import Endpoint, count_message_request, get_request_key
from chats.api.core.conditional import ConditionalEndpoint
from chats.api.core.inputs import EmptyBody, PageQuery
from chats.api.core.outputs import build_page_serializer, serialize_row
from chats.api.core.pages import paginate_rows
from chats.api.teams import team_inputs
from chats.api.teams.team_outputs import AgentContextOut, RosterOut, RoundOut, SavedRosterOut
from chats.models import Round, Team
from chats.record import access
from chats.teams import conversation, play, rosters, team_drafts
from chats.turns.roster import load_roster, split_uncalled_names
from chats.turns.start import get_active_branch
from contextpolicy.engine.team import team


def parse_team_body(data: Any, *, known: Team | None = None) -> team_drafts.TeamDraft:
    """Return the team that a request body describes completely.

    If the body leaves out a prompt form, window or byte limit, the value of the `known` team is
    kept.
    """
    values = team_inputs.TeamBody.read(data)
    values.pop("shared", None)
    before = team_drafts.build_version_draft(known.current) if known and known.current else None
    agents = {agent.role_id: agent for agent in before.agents} if before else {}
    if values["max_bytes"] is None:
        values["max_bytes"] = before.max_bytes if before else team.MAX_BYTES
    drafts = [
        parse_agent_body(agent, known=agents.get(agent["role_id"]))
        for agent in values.pop("agents")
    ]
    return team_drafts.TeamDraft(agents=drafts, **values)


def parse_agent_body(
    values: Mapping[str, Any], *, known: team_drafts.AgentDraft | None
) -> team_drafts.AgentDraft:
    """Return the agent that a request body describes.

    If the body leaves out the prompt form or the window, the value of `known` (the stored agent) is
    kept. A new agent gets the defaults.
    """
    form, window = values["prompt_form"], values["window_size"]
    if not form:
        form = known.prompt_form if known else team_drafts.choose_prompt_form(values["agent_type"])
    if window is None:
        window = known.window_size if known else team.WINDOW_SIZE
    return team_drafts.AgentDraft(**{**values, "prompt_form": form, "window_size": window})


def serialize_team(team: Team) -> dict[str, Any]:
    """Return a team with its rules and agents as JSON. Raises ValueError if it has no version."""
    version = team.current
    if version is None:
        raise ValueError(f"team {team.pk} has no version")
    draft = team_drafts.build_version_draft(version)
    rules = {name: getattr(draft, name) for name in team_drafts.RULES}
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


class RosterViewSet(ConditionalEndpoint):
    serializer_class = RosterOut
    lookup_url_kwarg = "team_id"

    def rows(self) -> QuerySet[Team]:
        return Team.objects.filter(pk=self.kwargs["team_id"])

    @extend_schema(
        summary="List teams", parameters=[PageQuery], responses=build_page_serializer(RosterOut)
    )
    def list(self, request: Request) -> Response:
        """List your teams and the shared teams, oldest first, in their current version."""
        query = PageQuery.read(request.query_params.dict())
        rows = access.get_visible_teams(user=self.user).select_related("current")
        page = paginate_rows(rows, order=("created_at", "id"), name="teams", **query)
        told = [serialize_team(team) for team in page.rows]
        return Response({"data": told, "next_cursor": page.next_cursor})

    @extend_schema(summary="Create a team", request=team_inputs.TeamBody, responses=SavedRosterOut)
    def create(self, request: Request) -> Response:
        """Create a team. Only administrators can create shared teams, which everyone can use."""
        shared = team_inputs.TeamBody.read(request.data)["shared"]
        saved = rosters.create_team(
            user=self.user, draft=parse_team_body(request.data), shared=shared, now=timezone.now()
        )
        return Response({**serialize_team(saved.team), "warnings": saved.warnings}, status=201)

    @extend_schema(summary="Get a team")
    def retrieve(self, request: Request, team_id: uuid.UUID) -> Response:
        """Retrieve the current version of one of your teams, or of a shared team."""
        return Response(serialize_team(access.get_team(user=self.user, team_id=team_id)))

    @extend_schema(summary="Replace a team", request=team_inputs.TeamBody, responses=SavedRosterOut)
    def update(self, request: Request, team_id: uuid.UUID) -> Response:
        """Replace a team with a new version. A running round continues with its own version.

        An agent without a known `role_id` is created; agents that the body leaves out are removed.
        """
        known = access.get_team(user=self.user, team_id=team_id)
        saved = rosters.update_team(
            user=self.user,
            team_id=team_id,
            draft=parse_team_body(request.data, known=known),
            now=timezone.now(),
        )
        return Response({**serialize_team(saved.team), "warnings": saved.warnings})

    @extend_schema(summary="Delete a team")
    def destroy(self, request: Request, team_id: uuid.UUID) -> Response:
        """Delete a team. Chats that use the team keep it; new chats cannot choose it."""
        EmptyBody.read(request.data)
        rosters.delete_team(user=self.user, team_id=team_id, now=timezone.now())
        return Response(status=204)

    @extend_schema(summary="Copy a team", responses={201: SavedRosterOut})
    @action(detail=True, methods=["post"])
    def copy(self, request: Request, team_id: uuid.UUID) -> Response:
        """Copy one of your teams or a shared team with its agents. The copy belongs to you."""
        EmptyBody.read(request.data)
        saved = rosters.copy_team(user=self.user, team_id=team_id, now=timezone.now())
        return Response({**serialize_team(saved.team), "warnings": saved.warnings}, status=201)


class AgentViewSet(Endpoint):
    """The context of an agent in a chat."""

    @extend_schema(summary="Get the context of an agent", responses=AgentContextOut)
    @action(detail=False)
    def context(self, request: Request, chat_id: uuid.UUID, role_id: str) -> Response:
        """Get the context that an agent would receive for the next message.

        The context includes the agent's window and instructions.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        agent = play.find_team_agent(chat, role_id=role_id)
        context = conversation.assemble_agent_context(
            chat=chat, agent=play.build_requested_agent(agent)
        )
        left_out = [{"message": message, "reason": reason} for message, reason in context.left_out]
        return Response({**context.to_json(), "leftOut": left_out})


def serialize_round(made: Round) -> dict[str, Any]:
    """Return a round as JSON, with the names of its past and next agents."""
    roster = load_roster(made.version)
    uncalled = split_uncalled_names(made, roster=roster)
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
        "unknown_names": uncalled.unknown,
        "inactive_names": uncalled.inactive,
        "started_at": made.started_at,
        "finished_at": made.finished_at,
    }


class RoundViewSet(Endpoint):
    serializer_class = RoundOut

    @extend_schema(
        summary="List rounds", parameters=[PageQuery], responses=build_page_serializer(RoundOut)
    )
    def list(self, request: Request, chat_id: uuid.UUID) -> Response:
        """List the rounds of a team chat on the active branch, newest first.

        Each round contains the replies to one message.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        query = PageQuery.read(request.query_params.dict())
        branch = get_active_branch(chat)
        page = paginate_rows(
            Round.objects.filter(branch=branch).select_related("version"),
            order=("-started_at", "-id"),
            name=f"rounds:{branch.pk}",
            **query,
        )
        told = [serialize_round(made) for made in page.rows]
        return Response({"data": told, "next_cursor": page.next_cursor})

    @extend_schema(summary="Continue a round", responses={202: TurnOut})
    @action(detail=False, methods=["post"], url_path="go-on")
    def go_on(self, request: Request, chat_id: uuid.UUID) -> Response:
        """Continue the latest round if it ended early. Its limits are reset.

        Returns 202 with the turn of the next agent; follow its events to receive the reply.
        """
        chat = access.get_chat(user=self.user, chat_id=chat_id)
        EmptyBody.read(request.data)
        count_message_request(request)
        now = timezone.now()
        turn = play.continue_round(
            user=self.user, chat=chat, now=now, api_key=get_request_key(request)
        )
        return Response(serialize_row(TurnOut, turn), status=202)

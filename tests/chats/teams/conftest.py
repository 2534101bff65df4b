"""Fixtures: teams of agents and their chats."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Agent, Chat, Team, TeamVersion
from chats.teams import rosters
from chats.teams.team_drafts import AgentDraft
from contextpolicy.models import ModelSpec
from tests.support.team_rounds import TeamPlay, Teams, Work, draft_team


@pytest.fixture
def team_of(alice: User, now: datetime) -> Callable[..., Team]:
    """Create a team of Alice from the names of its agents and the values of its rules."""

    def make(*names: str, humans: tuple[str, ...] = (), **rules: Any) -> Team:
        team = Team.objects.create(owner=alice, created_at=now)
        version = TeamVersion.objects.create(
            team=team, number=1, name="Team", created_at=now, **rules
        )
        for place, name in enumerate((*names, *humans)):
            Agent.objects.create(
                version=version,
                place=place,
                role_id=name.lower(),
                name=name,
                type="human" if name in humans else "ai",
                instruction=f"Act as {name.lower()} here.",
            )
        team.current = version
        team.save()
        return team

    return make


@pytest.fixture
def made(alice: User, demo_model: ModelSpec, now: datetime) -> Callable[..., Team]:
    """Create a team of Alice with the function that the pages use."""

    def make(*agents: str | AgentDraft, **values: Any) -> Team:
        found = rosters.create_team(
            user=alice, draft=draft_team(*agents, **values), shared=False, now=now
        )
        return found.team

    return make


@pytest.fixture
def play(chat: Chat, alice: User, work: Work, team_of: Teams) -> Callable[..., TeamPlay]:
    """Create a chat of a team."""

    def make(*names: str, **rules: Any) -> TeamPlay:
        chat.team = team_of(*names, **rules)
        chat.save()
        return TeamPlay(chat, alice, work)

    return make

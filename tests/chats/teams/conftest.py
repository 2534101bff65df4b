"""Fixtures: teams of agents and their chats."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Agent, Chat, Message, Team, TeamVersion


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


def said(chat: Chat) -> list[tuple[str, str]]:
    """Return (speaker, text) of the chat's active branch, in order, with waiting messages last."""
    rows = Message.objects.filter(branch__chat=chat).order_by("accepted")
    return [(row.said_by, row.text) for row in rows if row.seq]

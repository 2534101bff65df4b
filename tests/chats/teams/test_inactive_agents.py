"""If a person calls an inactive agent by name, a notice states that it does not reply."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Agent, TeamVersion
from chats.web.thread.round_state import round_state
from tests.chats.api.conftest import of_alice, program
from tests.chats.api.programs import Program
from tests.support.team_rounds import TeamPlay

__all__ = ["of_alice", "program"]
Plays = Callable[..., TeamPlay]


@pytest.mark.team_case(19)
def test_a_person_who_calls_a_resting_agent_is_told(
    play: Plays, of_alice: Program, client: Client, alice: User
) -> None:
    game = play("Critic", "Critic Two", "Writer", routing="person")
    Agent.objects.filter(name="Critic Two").update(rests=True)
    # The longest name counts, although its agent is inactive.
    game.ask("@Critic Two, what do you say?")
    assert game.round().unknown == ["Critic Two"]
    assert game.answer("One.") == ["Critic"]
    state = round_state(game.chat)
    assert state is not None
    assert "The agent Critic Two is inactive and does not reply." in state.body
    client.force_login(alice)
    assert (
        "The agent Critic Two is inactive" in client.get(f"/chats/{game.chat.pk}/").content.decode()
    )
    (row,) = of_alice.get(f"chats/{game.chat.pk}/rounds").json()["data"]
    assert (row["inactive_names"], row["unknown_names"]) == (["Critic Two"], [])


@pytest.mark.team_case(19)
def test_a_resting_agent_that_is_called_during_a_round_is_told(play: Plays) -> None:
    game = play("Planner", "Critic", "Sleeper")
    Agent.objects.filter(name="Sleeper").update(rests=True)
    game.ask("Go.")
    game.ask("@Sleeper too.")
    assert game.round().unknown == ["Sleeper"]
    game.ask("@all go. @Critic first. @Sleeper last.")
    assert game.round().unknown == ["Sleeper"]
    game.answer("One.", "Two.")
    game.ask("@all again.")
    assert game.round().unknown == []


def publish_version(game: TeamPlay, *, inactive: str) -> None:
    """Publish a version of the team in which this agent is inactive. A new name is added."""
    team = game.chat.team
    assert team is not None
    agents = list(team.current.agents.order_by("place")) if team.current else []
    version = TeamVersion.objects.create(
        team=team, number=2, name="Team", created_at=game.now, routing=TeamVersion.Routing.ALL
    )
    agent: Any
    for agent in agents:
        agent.pk, agent.version, agent.rests = None, version, agent.name == inactive
        agent.save()
    if inactive not in {agent.name for agent in agents}:
        Agent.objects.create(
            version=version, place=9, role_id=inactive.lower(), name=inactive, rests=True
        )
    team.current = version
    team.save()


@pytest.mark.team_case(19)
def test_an_agent_that_is_deactivated_during_a_round_still_replies_in_it(play: Plays) -> None:
    game = play("Planner", "Critic", "Sleeper")
    game.ask("Go.")
    publish_version(game, inactive="Sleeper")
    game.ask("@Sleeper too.")
    assert game.round().unknown == []
    assert game.answer("One.", "Two.", "Three.") == ["Planner", "Critic", "Sleeper"]
    state = round_state(game.chat)
    assert state is not None
    assert "inactive" not in state.body


@pytest.mark.team_case(19)
def test_an_agent_that_is_added_as_inactive_during_a_round_is_called_inactive(
    play: Plays, of_alice: Program
) -> None:
    game = play("Planner", "Critic")
    game.ask("Go.")
    publish_version(game, inactive="Newcomer")
    game.ask("@Newcomer too.")
    state = round_state(game.chat)
    assert state is not None
    assert "The agent Newcomer is inactive and does not reply." in state.body
    (row,) = of_alice.get(f"chats/{game.chat.pk}/rounds").json()["data"]
    assert (row["inactive_names"], row["unknown_names"]) == (["Newcomer"], [])


@pytest.mark.team_case(19)
def test_an_inactive_person_is_not_called_an_agent(play: Plays) -> None:
    game = play("Planner", "Critic", humans=("Ann",))
    Agent.objects.filter(name="Ann").update(rests=True)
    game.ask("Go.")
    game.answer("[NEXT:Ann] [NEXT:Bob] What do you say?")
    state = round_state(game.chat)
    assert state is not None
    assert "Ann is inactive, so the round" in state.body
    assert "The agent Ann" not in state.body
    assert "This chat has no agent named Bob." in state.body

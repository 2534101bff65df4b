"""If a person calls an inactive agent by name, a notice states that it does not reply."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Agent
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

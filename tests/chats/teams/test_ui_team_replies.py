"""Replies of a team that a front end with `useChat` regenerates."""

from typing import Any

import pytest
from django.utils import timezone

from chats.exchange.ui_chats import reply_to_ui_request
from chats.exchange.ui_requests import UIRequest
from chats.models import Agent, Branch, Message, Turn
from contextpolicy.models import ModelSpec
from tests.support.team_rounds import Plays, TeamPlay


def regenerate(team: TeamPlay, named: object, **more: Any) -> Turn:
    """Regenerate a reply as a front end does."""
    asked = UIRequest(str(team.chat.pk), "regenerate-message", str(named), **more)
    return reply_to_ui_request(asked, user=team.user, now=team.now).turn


def get_reply_turn(name: str) -> Turn:
    """Return the only turn of an agent."""
    return Turn.objects.get(agent__name=name)


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("name", ["Ann", "Bob", "Cleo"])
def test_a_repeated_regeneration_gets_the_reply_of_the_same_agent(
    play: Plays, name: str, is_running: bool
) -> None:
    team = play("Ann", "Bob", "Cleo")
    team.ask()
    team.answer("A plan.", "A map.", "A list.")
    named = get_reply_turn(name)
    again = regenerate(team, named.pk)
    if not is_running:
        assert team.answer("Another one.") == [name]
    assert regenerate(team, named.pk) == again
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 4)
    # Another agent's reply is another request.
    assert regenerate(team, get_reply_turn("Ann" if name != "Ann" else "Bob").pk) != again


def test_a_repeated_regeneration_ignores_the_model_of_an_agent(play: Plays) -> None:
    other = ModelSpec.objects.get()
    other.pk, other.slug, other.name, other.is_default = None, "other", "other", False
    other.save(force_insert=True)
    team = play("Ann", "Bob")
    Agent.objects.filter(name="Bob").update(model=other)
    team.ask()
    team.answer("A plan.", "A map.")
    named = get_reply_turn("Bob")
    again = regenerate(team, named.pk, model="demo")
    assert again.model == other
    assert regenerate(team, named.pk, model="demo") == again
    # An agent without a model uses that of the chat.
    named = get_reply_turn("Ann")
    first = regenerate(team, named.pk, model="demo")
    second = regenerate(team, named.pk, model="other")
    assert (first.model_name, second.model_name) == ("demo", "other")
    assert regenerate(team, named.pk, model="other") == second


def test_a_stopping_agent_replies_again_in_a_new_branch(play: Plays) -> None:
    team = play("Ann", "Bob")
    turn = team.ask()
    now = timezone.now()
    Message.objects.filter(triggered=turn).update(seq=1, turn=turn)
    Branch.objects.update(last_seq=1)
    Turn.objects.filter(pk=turn.pk).update(
        status="running", attempt=1, step=1, lease_token="t", lease_until=now, stop_requested_at=now
    )
    again = regenerate(team, turn.pk)
    assert (again.agent, again.hop, again.branch_id != turn.branch_id) == (turn.agent, 1, True)
    assert team.answer("A plan.") == ["Ann"]

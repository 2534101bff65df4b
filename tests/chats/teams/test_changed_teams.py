"""Rounds of a team that no longer replies in the chat: none of its agents follows."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.models import Chat, Round, Team, Turn
from chats.providers.base import ProviderError
from chats.teams.rosters import set_chat_team
from chats.turns.follow_up_turns import retry_turn
from tests.chats.api.conftest import of_alice, program
from tests.chats.api.programs import Program
from tests.support.error_codes import read_status_and_code
from tests.support.team_rounds import TeamPlay, Teams, script_reply

__all__ = ["of_alice", "program"]
Plays = Callable[..., TeamPlay]


def wait_for_ann(play: Plays) -> TeamPlay:
    """Return a chat whose round waits for Ann, before Writer."""
    game = play("Planner", "Writer", humans=("Ann",))
    game.ask("@Planner plan it.")
    game.answer("[NEXT:Ann] [NEXT:Writer]")
    assert game.round().status == Round.Status.WAITING
    return game


def read_team(team: Team | None) -> str:
    return str(team.pk) if team else ""


@pytest.mark.parametrize("has_team", [True, False])
def test_no_agent_of_the_former_team_follows(
    has_team: bool, play: Plays, team_of: Teams, of_alice: Program, client: Client, alice: User
) -> None:
    game = wait_for_ann(play)
    former = game.round()
    team = team_of("Planner", "Writer", humans=("Ann",)) if has_team else None
    client.force_login(alice)
    address = reverse("chats:chat-team", args=[game.chat.pk])
    assert client.post(address, {"team": read_team(team)}).status_code == 302
    former.refresh_from_db()
    assert former.status == Round.Status.REPLACED
    refused = of_alice.post(f"chats/{game.chat.pk}/rounds/go-on")
    assert read_status_and_code(refused) == (409, "round_not_resumable")
    if team is not None:
        # The person has the same role in both teams.
        assert game.ask("Rome.", as_role="ann").round != former
        assert game.round().version.team == team


def test_a_team_that_is_chosen_again_keeps_its_round(play: Plays, alice: User) -> None:
    game = wait_for_ann(play)
    game.chat.refresh_from_db()
    set_chat_team(user=alice, chat=game.chat, team_id=game.chat.team_id, now=game.now)
    assert game.ask("Rome.", as_role="ann").round == game.round()
    assert game.answer("Written.") == ["Writer"]


@pytest.mark.parametrize("status", ["waiting", "limit", "pair", "stopped", "failed"])
def test_a_round_of_another_team_is_not_resumed(
    status: str, play: Plays, team_of: Teams, of_alice: Program, client: Client, alice: User
) -> None:
    game = wait_for_ann(play)
    former = game.round()
    # As stored by versions that did not end the rounds of the former team.
    Chat.objects.update(team=team_of("Planner", "Writer", humans=("Ann",)))
    Round.objects.update(status=status)
    refused = of_alice.post(f"chats/{game.chat.pk}/rounds/go-on")
    assert read_status_and_code(refused) == (409, "round_not_resumable")
    client.force_login(alice)
    page = client.get(reverse("chats:chat", args=[game.chat.pk])).content.decode()
    assert reverse("chats:round-go-on", args=[game.chat.pk]) not in page
    assert game.ask("Rome.", as_role="ann").round != former


def test_an_agent_of_the_former_team_replies_again_alone(play: Plays, alice: User) -> None:
    game = play("Planner", "Critic", goes_on_after_failure=False)
    turn = game.ask()
    game.work(turn, [ProviderError("provider_rejected", status=400)])
    game.chat.refresh_from_db()
    set_chat_team(user=alice, chat=game.chat, team_id=None, now=game.now)
    again = retry_turn(user=alice, turn=Turn.objects.get(pk=turn.pk), now=game.now)
    game.work(again, script_reply("Now."))
    assert (game.queued(), game.round().status) == (None, Round.Status.SETTLED)

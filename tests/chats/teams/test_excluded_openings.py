"""A round is not resumed if prompts may not contain the message that opened it."""

from collections.abc import Callable

import pytest
from django.test import Client

from chats.actions import erasure, marks
from chats.models import Message, Round, Turn
from chats.turns import round_again
from tests.support.team_rounds import TeamPlay

pytestmark = pytest.mark.django_db


@pytest.fixture
def limited(play: Callable[..., TeamPlay]) -> TeamPlay:
    """A round that ended at its limit."""
    game = play("Planner", "Critic", hop_limit=2)
    game.ask("@Planner begin.")
    game.answer("One. [NEXT:Critic]", "Two. [NEXT:Planner]")
    assert game.round().status == Round.Status.LIMIT
    return game


@pytest.mark.parametrize("mark", ["excluded", "erased"])
def test_a_round_is_not_resumed_without_its_message(
    limited: TeamPlay, client: Client, mark: str
) -> None:
    opening = limited.round().opening
    assert opening is not None
    if mark == "excluded":
        marks.exclude_message(message=opening, actor="user:1", now=limited.now)
    else:
        erasure.erase_message(user=limited.user, message=opening, now=limited.now)
    client.force_login(limited.user)
    address = f"/api/v1/chats/{limited.chat.pk}/rounds/go-on"
    refused = client.post(address, {}, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, f"message_{mark}")
    assert Round.objects.count() == 1


def test_a_resumed_round_ends_if_its_message_is_excluded_before_it_runs(
    limited: TeamPlay,
) -> None:
    opening = limited.round().opening
    assert opening is not None
    limited.chat.refresh_from_db()
    branch = limited.chat.active_branch
    assert branch is not None
    turn = round_again.resume_round(
        chat=limited.chat, branch=branch, actor="user:1", now=limited.now
    )
    marks.exclude_message(message=opening, actor="user:1", now=limited.now)
    worker = limited.work(turn)
    turn.refresh_from_db()
    assert worker.scripted.requests == []
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "message_excluded")
    assert limited.round().status != Round.Status.RUNNING
    assert limited.queued() is None


def test_a_later_agent_answers_other_agents_without_the_excluded_message(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic")
    game.ask("@Planner begin the secret plan.")
    game.answer("One. [NEXT:Critic]")
    opening = Message.objects.get(branch__chat=game.chat, role="user")
    marks.exclude_message(message=opening, actor="user:1", now=game.now)
    assert game.answer("Two.") == ["Critic"]
    assert "secret plan" not in "\n".join(text for _, text in game.prompts[-1])

"""Excerpts in an agent's prompt: messages outside its window, in the form the agent sees."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.memory.search import archive
from chats.models import AccountSettings, Agent, Branch, Message, Receipt, TurnReference
from chats.prompt.reconstruction import rebuild_request
from contextpolicy.models import ContextPolicy, PolicyVersion
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.team_rounds import TeamPlay

pytestmark = [pytest.mark.requirement("S1.2"), pytest.mark.usefixtures("built_again")]
FACT = (
    "The ferry to Hven leaves Landskrona at 07:40. [NEXT:Critic]\n[FROM:Critic] The ferry is late."
)
ASKED = "When does the ferry to Hven leave Landskrona?"
# 14 hours ahead of UTC.
LATEST = "Pacific/Kiritimati"
Plays = Callable[..., TeamPlay]


@pytest.fixture(autouse=True)
def excerpts(db: None, now: datetime) -> None:
    """Assign an instance-wide policy with excerpts."""
    values: dict[str, Any] = {"references": True, "reference_share": 0.4, "reference_floor": 1}
    values |= {"reference_scope": "chat", "token_budget": 6_000, "reserve_tokens": 500}
    policy = create_policy(slug="recall", name="Recall", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


def index(game: TeamPlay) -> None:
    game.chat.refresh_from_db()
    assert game.chat.active_branch
    archive.index_branch(Branch.objects.get(pk=game.chat.active_branch.pk))


def long_game(play: Plays, *, form: str = "messages") -> TeamPlay:
    """A game whose first reply names a time, long before the windows of its agents."""
    game = play("Planner", "Critic", hop_limit=2)
    Agent.objects.update(window_size=2, prompt_form=form)
    game.ask("Find a ferry.")
    game.answer(FACT, "Good.")
    for number in range(3):
        game.ask(f"Write line {number} of the poem.")
        game.answer("The river bends.", "The willow waits.")
    index(game)
    return game


@pytest.mark.parametrize("form", ["messages", "claude-code", "plain"])
def test_the_question_brings_back_the_reply_with_its_day_and_speaker(
    play: Plays, form: str
) -> None:
    game = long_game(play, form=form)
    game.ask(ASKED)
    game.answer("At 07:40.")
    sent = "\n".join(text for _, text in game.prompts[-1])
    assert "(Planner) The ferry to Hven leaves Landskrona at 07:40." in sent
    # Markers, and text that the agent addressed to another agent, are hidden from all agents.
    assert "[NEXT:Critic]" not in sent
    assert "The ferry is late." not in sent
    receipt = Receipt.objects.latest("created_at")
    assert [s[1] for s in receipt.segments if s[0] == "tail"].count("references") == 1
    assert rebuild_request(receipt).fault == ""


@pytest.mark.parametrize("form", ["messages", "claude-code", "plain"])
def test_an_excerpt_keeps_its_day_after_a_change_of_zone(
    play: Plays, form: str, now: datetime
) -> None:
    policy = ContextPolicy.objects.get(slug="recall")
    dated = {**policy.current.values, "dates": True} if policy.current else {}
    policy.current = PolicyVersion.objects.create(
        policy=policy, number=2, values=dated, created_at=now
    )
    policy.save()
    live_in(LATEST)
    game = long_game(play, form=form)
    # Another day in every zone than in the zone of the person, and not the day of other excerpts.
    at = (timezone.now() - timedelta(days=10)).replace(hour=18)
    Message.objects.filter(branch__chat=game.chat, seq=2).update(created_at=at)
    day = f"{at + timedelta(days=1):%Y-%m-%d}]\nAssistant: (Planner) The ferry to Hven"
    game.ask(ASKED)
    game.answer("At 07:40.", "Good.")
    assert day in "\n".join(text for _, text in game.prompts[-2])
    live_in("Pacific/Pago_Pago")
    game.ask(f"Once more: {ASKED}")
    game.answer("At 07:40.")
    assert day in "\n".join(text for _, text in game.prompts[-1])
    assert all(rebuild_request(row).fault == "" for row in Receipt.objects.all())


def live_in(zone: str) -> None:
    """Store the time zone of the browsers of all users."""
    for user in User.objects.all():
        AccountSettings.objects.update_or_create(owner=user, defaults={"time_zone": zone})


def test_a_mates_question_is_looked_up_too(play: Plays) -> None:
    game = long_game(play)
    game.ask("Write line 4 of the poem.")
    game.answer(f"Critic, {ASKED} [NEXT:Critic]", "At 07:40.")
    sent = "\n".join(text for _, text in game.prompts[-1])
    assert "leaves Landskrona at 07:40." in sent
    turn = Receipt.objects.latest("created_at").turn
    assert turn.trigger is not None
    assert turn.trigger.text == "Write line 4 of the poem."
    found = TurnReference.objects.filter(turn=turn).select_related("message")
    assert 2 in [row.message.seq for row in found]
    assert not {row.message.seq for row in found} & {
        s[2] for s in Receipt.objects.latest("created_at").segments if s[2]
    }


def test_thanks_bring_nothing(play: Plays) -> None:
    game = long_game(play)
    game.ask("Thank you!")
    game.answer("Welcome.")
    turn = Receipt.objects.latest("created_at").turn
    assert not TurnReference.objects.filter(turn=turn).exists()


def test_a_reply_that_only_speaks_for_another_is_no_excerpt(play: Plays) -> None:
    game = play("Planner", "Critic", hop_limit=2)
    Agent.objects.update(window_size=2)
    game.ask("Find a ferry.")
    game.answer("[FROM:Critic] The ferry to Hven leaves Landskrona at 07:40.", "Good.")
    for number in range(3):
        game.ask(f"Write line {number} of the poem.")
        game.answer("The river bends.", "The willow waits.")
    index(game)
    game.ask(ASKED)
    game.answer("I do not know.")
    assert "07:40" not in "\n".join(text for _, text in game.prompts[-1])

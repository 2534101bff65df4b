"""Consent to tool calls in a team: the wait does not count towards the round's time limit."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone

from chats.background.due_jobs import run_due_job
from chats.models import Round, ToolCall, Turn
from chats.providers.base import Finished, TextDelta
from chats.turns.consents import decide_tool_call
from contextpolicy.models import ToolServer
from tests.chats.teams.conftest import play, team_of
from tests.support.team_rounds import Plays
from tests.support.tool_calls import call_echo

__all__ = ["play", "team_of"]
pytestmark = pytest.mark.django_db
DONE = [TextDelta("Done."), Finished("stop")]


@pytest.mark.parametrize(("worked", "status"), [(10, "running"), (700, "limit")])
def test_only_the_time_without_the_wait_counts(
    play: Plays,
    alice: User,
    connect: Callable[..., ToolServer],
    allow: Callable[..., None],
    work: Callable[..., Any],
    worked: int,
    status: str,
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    team = play("Planner", "Writer", seconds_limit=600)
    turn = team.ask()
    work(turn, call_echo("words"))
    # The person decides an hour later.
    hour = timedelta(hours=1)
    Turn.objects.filter(pk=turn.pk).update(queued_at=F("queued_at") - hour)
    began = timezone.now() - hour - timedelta(seconds=worked)
    Round.objects.update(started_at=began)
    turn.refresh_from_db()
    call = ToolCall.objects.get(turn=turn)

    decide_tool_call(user=alice, turn=turn, call_id=call.pk, decision="once", now=timezone.now())
    work(turn, DONE)

    assert Round.objects.get().status == status
    assert (team.queued() is not None) is (status == "running")


def test_a_round_of_a_deactivated_owner_does_not_go_on_after_its_wait_for_consent(
    play: Plays,
    alice: User,
    connect: Callable[..., ToolServer],
    allow: Callable[..., None],
    work: Callable[..., Any],
) -> None:
    connect(asks=True)
    allow(tools=["files/*"])
    team = play("Planner", "Writer")
    turn = team.ask()
    work(turn, call_echo("words"))
    turn.refresh_from_db()
    assert turn.awaits_consent
    User.objects.filter(pk=alice.pk).update(is_active=False)
    run_due_job("replies", now=timezone.now())
    # A worker stores the text so far, and calls no model.
    assert work(turn, DONE).scripted.requests == []
    assert (turn.status, turn.awaits_consent) == (Turn.Status.STOPPED, False)
    assert Round.objects.get().status == Round.Status.STOPPED
    assert team.queued() is None

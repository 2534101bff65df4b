"""Tokens and cost of a round: of all model calls of its turns, however they end."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.models import Round, Turn
from chats.providers.base import Finished, ToolCallDelta, UsageReport
from chats.teams.ahead import list_reply_costs
from chats.turns import attempt_state, recover
from chats.turns.stop import stop_turn
from contextpolicy.models import ModelSpec
from tests.support.team_rounds import TeamPlay, script_reply

Plays = Callable[..., TeamPlay]


def script_tool_step() -> list[Any]:
    """Return the script of a step that calls a tool, with 15 reported tokens."""
    call = ToolCallDelta(index=0, call_id="c1", name="no_such_tool", arguments="{}")
    return [call, UsageReport(10, 5, 0, 0), Finished("tool_calls")]


def ask_first(game: TeamPlay) -> Turn:
    game.ask()
    turn = game.queued()
    assert turn is not None
    return turn


def test_the_token_limit_counts_every_step_of_a_turn(play: Plays) -> None:
    game = play("Planner", "Critic", token_limit=40)
    first = ask_first(game)
    game.work(first, script_tool_step(), script_tool_step(), script_reply("One."))
    made = game.round()
    assert (made.tokens, made.status, made.reason) == (45, Round.Status.LIMIT, "tokens")
    assert game.queued() is None


def test_the_cost_of_a_round_is_that_of_every_step(play: Plays, demo_model: ModelSpec) -> None:
    game = play("Planner")
    game.work(ask_first(game), script_tool_step(), script_reply("One."))
    ModelSpec.objects.filter(pk=demo_model.pk).update(input_price=200, output_price=1000)
    costs = [cost or 0 for cost in list_reply_costs(game.chat)]
    assert [float(cost) for cost in costs] == [0.007, 0.007]


def test_a_stopped_turn_counts_its_earlier_steps(play: Plays, alice: User) -> None:
    game = play("Planner", "Critic")
    turn = ask_first(game)

    async def presses_stop(worker: Any) -> None:
        await worker.db(stop_turn, user=alice, turn=turn, now=game.now)
        worker.runs[turn.pk].interrupt(attempt_state.STOP)
        await asyncio.sleep(5)

    game.work(turn, script_tool_step(), [presses_stop])
    assert (game.round().status, game.round().tokens) == (Round.Status.STOPPED, 15)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_turn_that_lost_its_worker_counts_its_earlier_steps(
    play: Plays, alice: User, settings: Any, *, is_stopped: bool
) -> None:
    settings.MAX_ATTEMPTS = 1
    game = play("Planner")
    turn = ask_first(game)

    async def is_lost(worker: Any) -> None:
        await worker.db(lose, turn=turn, stopper=alice if is_stopped else None)
        worker.runs[turn.pk].interrupt(attempt_state.LOST)
        await asyncio.sleep(5)

    game.work(turn, script_tool_step(), [is_lost])
    turn.refresh_from_db()
    assert turn.status == (Turn.Status.STOPPED if is_stopped else Turn.Status.FAILED)
    assert game.round().tokens == 15


def lose(*, turn: Turn, stopper: User | None) -> None:
    """Expire a turn's lease and run the sweep. With `stopper`, this user stops the turn first."""
    if stopper is not None:
        stop_turn(user=stopper, turn=Turn.objects.get(pk=turn.pk), now=timezone.now())
    Turn.objects.filter(pk=turn.pk).update(lease_until=timezone.now() - timedelta(minutes=5))
    assert recover.release_expired(now=timezone.now()) == 1


def test_impossible_counts_of_a_server_end_the_round_at_its_limit(play: Plays) -> None:
    game = play("Planner", "Critic")
    turn = ask_first(game)
    call, _, finished = script_tool_step()
    much = [call, UsageReport(10**9, 10**9, 0, 0), finished]
    game.work(turn, much, much, script_reply("One."))
    made = game.round()
    assert (made.tokens, made.status, made.reason) == (10**9, Round.Status.LIMIT, "tokens")

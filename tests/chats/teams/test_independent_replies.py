"""Independent teams: replies are written in parallel and stored in the order of the agents."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from chats.actions.branching import regenerate_reply
from chats.models import Chat, Message, Receipt, Round, Turn
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from chats.record import history
from chats.turns import attempt_state, lanes, recover, round_again
from chats.turns.follow_up_turns import retry_turn
from chats.turns.lease import claim_turn
from chats.turns.stop import stop_all, stop_turn
from tests.support.scripted_worker import InlineWorker, ScriptedProvider
from tests.support.team_rounds import TeamPlay, list_said, script_reply

Plays = Callable[..., TeamPlay]
Script = list[Any]


class ByAgent(ScriptedProvider):
    """A provider that plays the script of the prompt's agent and records the order of calls."""

    def __init__(self, scripts: Mapping[str, Sequence[Script]]) -> None:
        super().__init__([])
        self.of_agent = {name: list(found) for name, found in scripts.items()}
        self.asked: list[str] = []
        self.prompts: dict[str, list[str]] = {}

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        system = request.messages[0].content
        name = next(name for name in self.of_agent if f"You are {name}," in system)
        self.asked.append(name)
        self.prompts.setdefault(name, []).append(str(request.messages))
        self.scripts = [self.of_agent[name].pop(0)]
        async for event in super().stream(request):
            yield event


def at_once(*turns: Turn, **scripts: Script | Sequence[Script]) -> ByAgent:
    """Process turns in parallel in one worker until they end. Scripts are given by agent."""
    several: dict[str, Any] = {
        name: script if script and isinstance(script[0], list) else [script]
        for name, script in scripts.items()
    }
    provider = ByAgent(several)
    worker = InlineWorker(provider)

    async def all_of_them() -> None:
        await asyncio.gather(*(worker.turn(turn.pk) for turn in turns))

    async_to_sync(all_of_them)()
    return provider


def lanes_of(game: TeamPlay) -> list[Turn]:
    """Return the lanes of the newest round."""
    return list(Turn.objects.filter(round=game.round(), lane__gt=0).order_by("lane"))


def until_waits(name: str, *, once: bool = False) -> Callable[[Any], Any]:
    """Return a script step that waits until an agent's finished reply waits for its position.

    With `once`, it also stops waiting if the turn has ended.
    """

    async def wait(worker: Any) -> None:
        for _ in range(200):
            if any(
                run_.turn.lane == "_ABC".index(name)
                and run_.call
                and run_.call.finish != "incomplete"
                for run_ in worker.runs.values()
            ):
                return
            lanes_now = {run_.turn.lane for run_ in worker.runs.values()}
            if once and "_ABC".index(name) not in lanes_now:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} did not finish")

    return wait


@pytest.mark.requirement("S3.11")
def test_all_begin_with_the_first_and_stand_in_their_order(play: Plays) -> None:
    game = play("A", "B", "C", independent=True)
    first = game.ask("Guess a number.")
    turns = lanes_of(game)
    assert [(turn.lane, turn.hop, turn.agent.name if turn.agent else "") for turn in turns] == [
        (1, 1, "A"),
        (2, 2, "B"),
        (3, 3, "C"),
    ]
    assert turns[0].pk == first.pk

    told = at_once(
        *turns,
        A=[until_waits("B"), until_waits("C"), TextDelta("1"), Finished("stop")],
        B=script_reply("2"),
        C=script_reply("3"),
    )

    assert sorted(told.asked) == ["A", "B", "C"]
    assert list_said(game.chat)[1:] == [("A", "1"), ("B", "2"), ("C", "3")]
    assert all("Guess a number." in prompt for (prompt,) in told.prompts.values())
    made = game.round()
    assert (made.status, made.hops, made.tokens) == (Round.Status.SETTLED, 3, 30)
    assert {turn.seen_to for turn in lanes_of(game)} == {1}
    receipts = Receipt.objects.filter(turn__in=turns).order_by("turn__lane")
    assert [receipt.left_out for receipt in receipts] == [[], [], []]


@pytest.mark.requirement("S3.11")
def test_whoever_begins_first_takes_the_message_up_for_all(play: Plays) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    first, second = lanes_of(game)
    at_once(second, first, A=script_reply("1"), B=script_reply("2"))
    assert list_said(game.chat) == [("You", "Guess."), ("A", "1"), ("B", "2")]
    assert Message.objects.get(branch__chat=game.chat, seq=1).turn_id in {first.pk, second.pk}


def test_no_more_begin_together_than_the_limit_allows(play: Plays) -> None:
    game = play("A", "B", "C", independent=True, hop_limit=2)
    game.ask("Guess.")
    turns = lanes_of(game)
    assert [turn.lane for turn in turns] == [1, 2]
    at_once(*turns, A=script_reply("1"), B=script_reply("2"))
    made = game.round()
    assert (made.status, made.reason, made.hops) == (Round.Status.LIMIT, "hops", 2)
    assert len(made.queue) == 1


def test_a_team_in_which_each_reads_the_others_has_no_lanes(play: Plays) -> None:
    game = play("A", "B")
    game.ask("Guess.")
    assert lanes_of(game) == []
    assert Turn.objects.filter(round=game.round()).count() == 1


def test_a_step_with_a_tool_takes_its_place_too(play: Plays) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    call = ToolCallDelta(index=0, call_id="c1", name="no_such_tool", arguments="{}")
    at_once(
        *lanes_of(game),
        A=[until_waits("B"), TextDelta("1"), Finished("stop")],
        B=[[call, Finished("tool_calls")], script_reply("2")],
    )
    rows = Message.objects.filter(branch__chat=game.chat, seq__gt=1).order_by("seq")
    assert [(row.speaker or {})["roleName"] for row in rows] == ["A", "B", "B"]
    assert [row.text for row in rows] == ["1", "", "2"]


def test_calls_are_answered_behind_all_and_by_nobody_twice(play: Plays) -> None:
    game = play("A", "B", "C", "D", independent=True)
    game.ask("@A @B guess.")
    turns = lanes_of(game)
    assert len(turns) == 2
    at_once(*turns, A=script_reply("1 [NEXT:B] [NEXT:C]"), B=script_reply("2 [NEXT:Nobody]"))
    assert game.round().unknown == ["Nobody"]
    assert game.answer("3") == ["C"]
    assert game.queued() is None
    assert game.round().status == Round.Status.SETTLED


def test_a_failure_lets_the_others_reply_and_ends_a_team_that_ends_with_one(play: Plays) -> None:
    game = play("A", "B", "C", independent=True, goes_on_after_failure=False)
    game.ask("Guess.")
    fault = ProviderError("provider_rejected", sentence="No.")
    at_once(*lanes_of(game), A=[fault], B=script_reply("2 [NEXT:A]"), C=script_reply("3"))
    made = game.round()
    assert (made.status, made.hops) == (Round.Status.FAILED, 3)
    assert list_said(game.chat)[1:] == [("B", "2 [NEXT:A]"), ("C", "3")]
    assert game.queued() is None


def test_the_last_that_failed_is_asked_again_and_sees_what_it_saw(play: Plays) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)
    at_once(*turns, A=script_reply("1"), B=[ProviderError("provider_rejected", sentence="No.")])
    again = retry_turn(user=game.user, turn=turns[1], now=game.now)
    assert (again.lane, again.seen_to) == (0, 1)
    told = at_once(again, B=script_reply("2"))
    assert "[FROM:A]" not in told.prompts["B"][0]
    assert list_said(game.chat)[1:] == [("A", "1"), ("B", "2")]
    assert game.round().status == Round.Status.SETTLED


def test_one_that_replies_again_on_a_branch_sees_what_it_saw(play: Plays) -> None:
    game = play("A", "B", "C", independent=True)
    game.ask("Guess.")
    at_once(*lanes_of(game), A=script_reply("1"), B=script_reply("2"), C=script_reply("3"))
    second = Message.objects.get(branch__chat=game.chat, seq=3)
    again = regenerate_reply(user=game.user, message=second, now=game.now)
    told = at_once(again, B=script_reply("two"))
    assert "[FROM:A]" not in told.prompts["B"][0]


@pytest.mark.parametrize("first", [0, 1])
def test_another_reply_of_who_took_the_message_up_stands_behind_it(play: Plays, first: int) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)
    at_once(turns[first], turns[1 - first], A=script_reply("1"), B=script_reply("2"))
    replies = Message.objects.filter(branch__chat=game.chat, role="assistant").order_by("seq")
    again = regenerate_reply(user=game.user, message=replies[0], now=game.now, play_on=True)
    assert again.seen_to == 1
    branch = Chat.objects.get(pk=game.chat.pk).active_branch
    assert branch is not None
    assert [row.text for row in history.select_path_messages(branch, after=0, before=9)] == [
        "Guess."
    ]


@pytest.mark.parametrize("which", [0, 1])
def test_one_button_stops_all_and_the_round_goes_on_with_who_said_nothing(
    play: Plays, which: int
) -> None:
    game = play("A", "B", "C", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)

    async def stops(worker: Any) -> None:
        asked = {"user": game.user, "turn": turns[which], "now": game.now}
        await worker.db(stop_turn, **asked, with_others=True)
        for current in worker.runs.values():
            current.interrupt(attempt_state.STOP)
        await asyncio.sleep(5)

    at_once(*turns[:2], A=[TextDelta("On"), until_runs("B"), stops], B=[wait_for_ever])
    found = {turn.lane: turn.status for turn in lanes_of(game)}
    assert found == dict.fromkeys((1, 2, 3), Turn.Status.STOPPED)
    assert list_said(game.chat)[1:] == [("A", "On")]
    made = game.round()
    assert made.status == Round.Status.STOPPED
    branch = game.chat.active_branch
    assert branch is not None
    branch.refresh_from_db()
    game.chat.refresh_from_db()
    round_again.resume_round(chat=game.chat, branch=branch, actor="user:1", now=game.now)
    assert {turn.agent.name for turn in lanes_of(game) if turn.agent} == {"B", "C"}
    at_once(*lanes_of(game), B=script_reply("2"), C=script_reply("3"))
    assert {name for name, _ in list_said(game.chat)[2:]} == {"B", "C"}
    assert game.round().status == Round.Status.SETTLED


def test_messages_sent_while_all_replies_stop_keep_a_turn(play: Plays) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)
    for turn in turns:
        assert claim_turn(turn_id=turn.pk, worker="w", now=game.now)
    game.ask("Wait.")
    stop_turn(user=game.user, turn=Turn.objects.get(pk=turns[0].pk), now=game.now, with_others=True)
    assert game.round().status == Round.Status.STOPPED
    game.ask("Guess again.")
    rows = Turn.objects.filter(branch__chat=game.chat, lane=0)
    assert [row.status for row in rows] == [Turn.Status.QUEUED]


def test_one_answer_alone_is_stopped_and_the_others_go_on(play: Plays) -> None:
    game = play("A", "B", "C", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)

    async def stops(worker: Any) -> None:
        await worker.db(stop_turn, user=game.user, turn=turns[2], now=game.now)
        worker.runs[turns[2].pk].interrupt(attempt_state.STOP)

    at_once(
        *turns,
        A=[until_runs("C"), stops, TextDelta("1"), Finished("stop")],
        B=script_reply("2"),
        C=[TextDelta("On"), wait_for_ever],
    )
    found = [turn.status for turn in lanes_of(game)]
    assert found == ["completed", "completed", "stopped"]
    assert list_said(game.chat)[1:] == [("A", "1"), ("B", "2"), ("C", "On")]
    made = game.round()
    assert (made.status, made.queue) == (Round.Status.SETTLED, [])


def test_who_deletes_the_chat_ends_its_round_and_nobody_follows(play: Plays) -> None:
    game = play("A", "B", "C", independent=True)
    game.ask("@A @B guess.")

    async def deletes(worker: Any) -> None:
        await worker.db(stop_all, chat=game.chat, actor="user:1", now=game.now)
        for current in worker.runs.values():
            current.interrupt(attempt_state.STOP)

    at_once(
        *lanes_of(game),
        A=script_reply("1 [NEXT:C]"),
        B=[TextDelta("On"), until_waits("A", once=True), deletes, wait_for_ever],
    )
    assert not Turn.objects.filter(status__in=["queued", "running"]).exists()
    assert game.round().status == Round.Status.STOPPED


def until_runs(name: str) -> Callable[[Any], Any]:
    """Return a script step that waits until an agent's call is running."""

    async def wait(worker: Any) -> None:
        lane = "_ABC".index(name)
        for _ in range(200):
            if any(run_.turn.lane == lane and run_.call for run_ in worker.runs.values()):
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{name} did not begin")

    return wait


async def wait_for_ever(worker: Any) -> None:
    """Wait until an interruption."""
    del worker
    await asyncio.sleep(60)


@pytest.mark.parametrize("text", ["Be quick.", "@C be quick."])
def test_what_is_written_before_anybody_began_is_seen_by_all_or_those_named(
    play: Plays, text: str
) -> None:
    game = play("A", "B", "C", independent=True)
    first = game.ask("Guess.")
    assert game.ask(text).pk == first.pk
    waiting = Turn.objects.filter(status=Turn.Status.QUEUED).order_by("accepted")
    names = [turn.agent.name for turn in waiting if turn.agent]
    assert names == (["C"] if "@" in text else ["A", "B", "C"])
    told = at_once(*waiting, A=script_reply("1"), B=script_reply("2"), C=script_reply("3"))
    assert all("quick" in prompt for (prompt,) in told.prompts.values())
    assert len(told.asked) == len(names)
    assert not Turn.objects.filter(status__in=["queued", "running"]).exists()
    assert game.round().status == Round.Status.SETTLED
    assert not Message.objects.filter(branch__chat=game.chat, seq=None).exists()


@pytest.mark.parametrize("text", ["Be quick.", "@C be quick."])
def test_what_is_written_meanwhile_is_answered_behind_all_or_by_those_named(
    play: Plays, text: str
) -> None:
    game = play("A", "B", "C", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)
    later: list[Turn] = []

    async def writes(worker: Any) -> None:
        later.append(await worker.db(game.ask, text=text))

    at_once(
        *turns[:1] if "@" in text else turns,
        A=[writes, TextDelta("1"), Finished("stop")],
        B=script_reply("2"),
        C=script_reply("3"),
    )
    if "@" in text:
        # Agents that had not started are not called.
        assert [turn.status for turn in turns_again(turns)] == ["completed", "absorbed", "absorbed"]
        told = at_once(later[0], C=script_reply("Three."))
    else:
        assert list_said(game.chat)[1:4] == [("A", "1"), ("B", "2"), ("C", "3")]
        told = at_once(
            *lanes_of(game), A=script_reply("1."), B=script_reply("2."), C=script_reply("3.")
        )
        assert len(told.asked) == 3
    assert all("quick" in prompt for (prompt,) in told.prompts.values())
    assert game.round().status == Round.Status.SETTLED
    assert not Turn.objects.filter(status__in=["queued", "running"]).exists()


def turns_again(turns: Sequence[Turn]) -> list[Turn]:
    """Reload the turns."""
    return [Turn.objects.get(pk=turn.pk) for turn in turns]


def test_a_lost_lane_is_written_again_beside_the_others_with_the_same_prompt(
    play: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)
    sent: list[str] = []

    async def is_lost(worker: Any) -> None:
        sent.extend(worker.scripted.prompts["A"])
        await worker.db(lose, turn=turns[0])
        worker.runs[turns[0].pk].interrupt(attempt_state.LOST)
        await asyncio.sleep(1)

    at_once(turns[0], A=[TextDelta("On"), is_lost])
    monkeypatch.setattr("chats.turns.attempt.PLACE_EVERY", 0.01)
    told = at_once(turns[1], turns[0], A=script_reply("1"), B=script_reply("2"))
    assert told.prompts["A"] == sent
    assert list_said(game.chat)[1:] == [("A", "1"), ("B", "2")]


def lose(*, turn: Turn) -> None:
    """Expire a turn's lease and run the sweep."""
    Turn.objects.filter(pk=turn.pk).update(lease_until=timezone.now() - timedelta(minutes=5))
    assert recover.release_expired(now=timezone.now()) == 1


def test_a_reply_does_not_wait_for_ever_for_one_that_no_worker_begins(
    play: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chats.turns.attempt.UNBEGUN_SECONDS", 0.05)
    monkeypatch.setattr("chats.turns.attempt.PLACE_EVERY", 0.01)
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)
    at_once(turns[1], B=script_reply("2"))
    assert list_said(game.chat)[1:] == [("B", "2")]
    assert game.round().status == Round.Status.RUNNING
    at_once(turns[0], A=script_reply("1"))
    assert list_said(game.chat)[1:] == [("B", "2"), ("A", "1")]
    assert game.round().status == Round.Status.SETTLED


def test_a_worker_that_ends_hands_back_what_waits_for_its_place(play: Plays) -> None:
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)

    async def ends(worker: Any) -> None:
        await until_waits("B")(worker)
        for current in list(worker.runs.values()):
            current.interrupt(attempt_state.SHUTDOWN)
        await asyncio.sleep(5)

    at_once(*turns, A=[ends], B=script_reply("2"))
    assert [turn.status for turn in turns_again(turns)] == ["queued", "queued"]
    assert list_said(game.chat)[1:] == []
    at_once(*turns, A=script_reply("1"), B=script_reply("two"))
    assert list_said(game.chat)[1:] == [("A", "1"), ("B", "two")]


def test_no_other_turn_runs_beside_lanes(play: Plays) -> None:
    """A turn of another round, or without a lane, waits until the lanes end."""
    game = play("A", "B", independent=True)
    game.ask("Guess.")
    turns = lanes_of(game)

    async def others_begin(worker: Any) -> None:
        later = await worker.db(game.ask, text="@A once more.")
        await worker.turn(later.pk)
        assert (await worker.db(Turn.objects.get, pk=later.pk)).status == Turn.Status.QUEUED

    at_once(
        *turns,
        A=[until_runs("B"), others_begin, TextDelta("1"), Finished("stop")],
        B=[until_runs("A"), TextDelta("2"), Finished("stop")],
    )
    assert list_said(game.chat)[1:3] == [("A", "1"), ("B", "2")]
    made = game.round()
    assert lanes.select_unfinished_lanes(made).count() == 0
    assert made.status == Round.Status.RUNNING

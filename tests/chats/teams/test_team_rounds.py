"""Rounds of a team: order of replies, prompt of each agent, and end of a round."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions.branching import regenerate_reply
from chats.models import Chat, Message, Receipt, Round, Turn
from chats.prompt import agents
from chats.prompt.reconstruction import rebuild_request
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.record import history
from chats.turns import round_again, round_messages
from chats.turns.follow_up_turns import retry_turn
from chats.turns.roster import load_current_roster
from chats.turns.stop import stop_all, stop_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.team.team_view import Viewer
from contextpolicy.models import AuditEvent
from tests.support.team_rounds import TeamPlay, list_said, script_reply

# Rebuild the prompts of every test from rows at teardown.
pytestmark = pytest.mark.usefixtures("built_again")


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(12)
def test_each_agent_replies_once_in_order_and_sees_those_before(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Plan a trip to Rome.")
    assert game.answer("Day one.", "Too short.", "Done.") == ["Planner", "Critic", "Writer"]
    assert game.queued() is None
    assert list_said(game.chat) == [
        ("You", "Plan a trip to Rome."),
        ("Planner", "Day one."),
        ("Critic", "Too short."),
        ("Writer", "Done."),
    ]
    made = game.round()
    assert (made.status, made.hops, made.tokens) == (Round.Status.SETTLED, 3, 45)
    system, *rest = game.prompts[2]
    assert system[0] == "system"
    assert "Act as writer here." in system[1]
    assert "Your mates are Planner, Critic." in system[1]
    assert rest == [
        (
            "user",
            "[FROM:alice]\nPlan a trip to Rome.\n\n[FROM:Planner]\nDay one."
            "\n\n[FROM:Critic]\nToo short.",
        )
    ]


@pytest.mark.team_case(12)
def test_own_replies_are_an_agents_own_in_its_next_prompt(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic")
    game.ask("One.")
    game.answer("A1", "B1")
    game.ask("Two.")
    game.answer("A2", "B2")
    assert [part for part in game.prompts[2] if part[0] != "system"] == [
        ("user", "[FROM:alice]\nOne."),
        ("assistant", "A1"),
        ("user", "[FROM:Critic]\nB1\n\n[FROM:alice]\nTwo."),
    ]


@pytest.mark.requirement("S3.11")
def test_the_persons_addressees_speak_and_a_reply_calls_the_next(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("@critic and @Planner, what do you say?")
    assert game.answer("Fine. [NEXT:Writer]", "Yes.") == ["Critic", "Planner"]
    assert game.answer("Written.") == ["Writer"]
    first = Message.objects.get(branch__chat=game.chat, seq=1)
    second = Message.objects.get(branch__chat=game.chat, seq=2)
    assert (first.addressees, second.addressees) == (["Critic", "Planner"], ["Writer"])
    assert game.round().status == Round.Status.SETTLED


def test_full_width_markers_and_mentions_call_agents_too(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic", "Writer", routing="person")
    game.ask("请＠Critic看看。")
    assert game.answer("不错。【NEXT：Writer，Planner】", "好。", "好。") == [
        "Critic",
        "Writer",
        "Planner",
    ]
    # Prompts do not show the markers.
    assert "NEXT" not in game.prompts[1][-1][1]


@pytest.mark.team_case(2)
def test_a_name_in_code_or_a_quotation_calls_nobody(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic", routing="person")
    game.ask("@Planner explain routing.")
    game.answer("Write `[NEXT:Critic]`, as in\n> [NEXT:Critic]\n```\n[NEXT:Critic]\n```\nDone.")
    assert game.queued() is None


def test_an_unknown_name_is_noted_and_the_round_goes_on(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic")
    game.ask()
    assert game.answer("Hm. [NEXT:Ghost]", "Ok.") == ["Planner", "Critic"]
    assert game.round().unknown == ["Ghost"]


@pytest.mark.requirement("S3.11")
@pytest.mark.team_case(3)
def test_the_hop_limit_ends_a_round_and_says_who_was_called(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic", hop_limit=2)
    game.ask("@Planner begin.")
    game.answer("One. [NEXT:Critic]", "Two. [NEXT:Planner]")
    made = game.round()
    assert (made.status, made.reason, made.queue) == (Round.Status.LIMIT, "hops", ["planner"])
    assert game.queued() is None
    game.chat.refresh_from_db()
    branch = game.chat.active_branch
    assert branch is not None
    round_again.resume_round(chat=game.chat, branch=branch, actor="user:1", now=game.now)
    assert game.answer("Three.") == ["Planner"]
    assert game.round().status == Round.Status.SETTLED


@pytest.mark.team_case(1)
def test_two_agents_who_only_answer_each_other_stop_before_the_limit(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer", hop_limit=20)
    game.ask("@Planner begin.")
    thanks = [
        "Thanks! [NEXT:Critic]",
        "Thank you. [NEXT:Planner]",
        "You are welcome. [NEXT:Critic]",
        "Likewise. [NEXT:Planner]",
        "Glad to help. [NEXT:Critic]",
        "The same here. [NEXT:Planner]",
    ]
    game.answer(*thanks)
    assert (game.round().status, game.queued()) == (Round.Status.PAIR, None)


def test_a_token_limit_ends_a_round(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic", token_limit=15)
    game.ask()
    game.answer("One.")
    assert (game.round().status, game.round().reason) == (Round.Status.LIMIT, "tokens")


def test_agents_in_turn_go_on_until_the_limit_and_pass(play: Callable[..., TeamPlay]) -> None:
    game = play("A", "B", "C", routing="round_robin", hop_limit=7)
    game.ask()
    assert game.answer("1", "2", "3", "4") == ["A", "B", "C", "A"]
    assert game.answer("[NEXT:]", "[NEXT:]", "[NEXT:]") == ["B", "C", "A"]
    assert game.round().status == Round.Status.SETTLED


@pytest.mark.team_case(19)
def test_a_pass_is_not_in_the_next_prompt(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.", "[NEXT:]", "Two.")
    assert game.prompts[2][-1] == ("user", "[FROM:alice]\nGo.\n\n[FROM:Planner]\nOne.")


@pytest.mark.team_case(18)
def test_what_a_person_writes_meanwhile_is_taken_up_by_the_next_agent(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer")
    first = game.ask("Go.")

    async def interrupts(worker: Any) -> None:
        await worker.db(game.ask, text="In German, please.")

    worker = game.work(first, [TextDelta("One."), interrupts, Finished("stop")])
    assert len(worker.scripted.requests) == 1
    assert game.answer("Zwei.", "Drei.") == ["Critic", "Writer"]
    assert list_said(game.chat) == [
        ("You", "Go."),
        ("You", "In German, please."),
        ("Planner", "One."),
        ("Critic", "Zwei."),
        ("Writer", "Drei."),
    ]
    assert "In German" in game.prompts[0][-1][1]
    assert game.queued() is None
    assert Round.objects.count() == 1


@pytest.mark.parametrize("routing", ["all", "independent"])
@pytest.mark.parametrize("again", ["meanwhile", "afterwards", "never"])
def test_a_message_that_is_stopped_before_its_agent_is_chosen_ends_no_round(
    play: Callable[..., TeamPlay], alice: User, again: str, routing: str
) -> None:
    values = {"independent": True} if routing == "independent" else {}
    game = play("Planner", **values) if values else play("Planner", "Critic")
    first = game.ask("Go.")
    waits: list[Turn] = []

    def interrupt() -> None:
        waits.append(game.ask("Also."))
        assert waits[0].agent is None
        stop_turn(user=alice, turn=waits[0], now=game.now)
        if again == "meanwhile":
            waits.append(retry_turn(user=alice, turn=waits[0], now=game.now))

    async def interrupts(worker: Any) -> None:
        await worker.db(interrupt)

    game.work(first, [TextDelta("One."), interrupts, Finished("stop")])
    assert game.round().hops <= 1
    if not values:
        assert game.answer("Two.") == ["Critic"]
        assert game.round().status == Round.Status.SETTLED
        assert "Also." in str(game.prompts)
        return
    if again == "meanwhile":
        assert game.answer("Two.") == ["Planner"]
    elif again == "afterwards":
        waits[0].refresh_from_db()
        turn = retry_turn(user=alice, turn=waits[0], now=game.now)
        assert turn.agent is not None
        assert game.answer("Two.") == ["Planner"]
        assert "Also." in str(game.prompts)
    assert game.queued() is None
    assert game.round().status == Round.Status.SETTLED


@pytest.mark.team_case(18)
def test_a_message_with_an_addressee_replaces_those_who_were_to_follow(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer")
    first = game.ask("Go.")

    async def interrupts(worker: Any) -> None:
        await worker.db(game.ask, text="@Writer finish it.")

    game.work(first, [TextDelta("One."), interrupts, Finished("stop")])
    assert game.answer("Finished.") == ["Writer"]
    assert game.queued() is None
    assert sorted(Round.objects.values_list("status", "hops")) == [
        ("replaced", 1),
        ("settled", 1),
    ]


def test_a_message_between_two_replies_opens_the_round_that_it_asks_for(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.")
    game.ask("@Writer finish it.")
    made = game.round()
    assert made.opening is not None
    assert made.opening.text == "@Writer finish it."
    assert game.answer("Finished.") == ["Writer"]


def test_a_message_between_two_replies_lets_a_pair_count_anew(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", hop_limit=20)
    game.ask("@Planner begin.")
    thanks = ["Thanks! [NEXT:Critic]", "Thank you. [NEXT:Planner]"]
    game.answer(*thanks, *thanks)
    game.ask("Go on.")
    game.answer(*thanks)
    assert game.round().status == Round.Status.RUNNING
    assert game.queued() is not None


def test_whoever_stops_all_leaves_no_round_to_a_message_behind_a_lost_reply(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic")
    turn = game.ask("Go.")

    async def breaks_off(worker: Any) -> None:
        await worker.db(game.ask, text="Later.")
        worker.runs[turn.pk].interrupt("shutdown")

    game.work(turn, [TextDelta("On"), breaks_off, Finished("stop")])
    stop_all(chat=game.chat, actor="user:1", now=game.now)
    assert not Turn.objects.filter(status=Turn.Status.QUEUED)
    assert not Round.objects.filter(status=Round.Status.RUNNING)


def test_what_was_written_during_the_last_reply_opens_a_round_of_its_own(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic")
    game.ask("Go.")
    game.answer("One.")
    last = game.queued()
    assert last is not None

    async def interrupts(worker: Any) -> None:
        await worker.db(game.ask, text="Again.")

    game.work(last, [TextDelta("Two."), interrupts, Finished("stop")])
    assert game.answer("Three.", "Four.") == ["Planner", "Critic"]
    assert Round.objects.filter(status=Round.Status.SETTLED).count() == 2
    assert not Turn.objects.filter(status=Turn.Status.QUEUED)


@pytest.mark.team_case(4)
def test_stop_ends_the_round_and_nobody_follows(play: Callable[..., TeamPlay], alice: User) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask()
    game.answer("One.")
    waits = game.queued()
    assert waits is not None
    stop_turn(user=alice, turn=waits, now=game.now)
    assert (game.queued(), game.round().status) == (None, Round.Status.STOPPED)
    assert len(list_said(game.chat)) == 2


@pytest.mark.team_case(15)
@pytest.mark.parametrize(
    ("goes_on", "status", "follows"),
    [(True, Round.Status.SETTLED, ["Critic"]), (False, Round.Status.FAILED, [])],
)
def test_a_failing_agent_leaves_its_failure_and_the_rule_decides(
    play: Callable[..., TeamPlay], goes_on: bool, status: str, follows: list[str]
) -> None:
    game = play("Planner", "Critic", goes_on_after_failure=goes_on)
    turn = game.ask()
    game.work(turn, [ProviderError("provider_rejected", status=400)])
    turn.refresh_from_db()
    assert turn.status == Turn.Status.FAILED
    assert game.answer(*("Fine.",) * len(follows)) == follows
    assert game.round().status == status


@pytest.mark.team_case(15)
def test_a_failed_reply_is_tried_again_and_the_round_goes_on(
    play: Callable[..., TeamPlay], alice: User
) -> None:
    game = play("Planner", "Critic", goes_on_after_failure=False)
    turn = game.ask()
    game.work(turn, [ProviderError("provider_rejected", status=400)])
    turn.refresh_from_db()
    again = retry_turn(user=alice, turn=turn, now=game.now)
    assert again.agent == turn.agent
    assert game.answer("Now.", "Fine.") == ["Planner", "Critic"]
    assert (game.round().status, game.round().hops) == (Round.Status.SETTLED, 2)


@pytest.mark.parametrize("is_independent", [False, True])
def test_the_time_until_a_reply_is_tried_again_does_not_count(
    play: Callable[..., TeamPlay], alice: User, *, is_independent: bool
) -> None:
    game = play("Planner", "Critic", goes_on_after_failure=False, independent=is_independent)
    game.ask("@Planner go.")
    turn = game.queued()
    assert turn is not None
    game.work(turn, [ProviderError("provider_rejected", status=400)])
    made = game.round()
    hours = timedelta(hours=3)
    Round.objects.filter(pk=made.pk).update(
        started_at=made.started_at - hours, finished_at=game.now - hours
    )
    retry_turn(user=alice, turn=Turn.objects.get(pk=turn.pk), now=game.now)
    assert game.answer("Now. [NEXT:Critic]", "Fine.") == ["Planner", "Critic"]
    assert (game.round().status, game.round().reason) == (Round.Status.SETTLED, "")


@pytest.mark.team_case(14)
@pytest.mark.parametrize(("play_on", "follows"), [(False, []), (True, ["Writer"])])
def test_a_reply_in_the_middle_is_asked_for_again_in_its_place(
    play: Callable[..., TeamPlay], alice: User, play_on: bool, follows: list[str]
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.", "Two.", "Three.")
    middle = Message.objects.get(branch__chat=game.chat, seq=3)
    regenerate_reply(user=alice, message=middle, now=game.now, play_on=play_on)
    assert game.answer("Two again.", *("Three again.",) * len(follows)) == ["Critic", *follows]
    assert game.prompts[3][-1] == ("user", "[FROM:alice]\nGo.\n\n[FROM:Planner]\nOne.")
    assert game.queued() is None
    assert game.round().status == Round.Status.SETTLED


@pytest.mark.team_case(14)
@pytest.mark.parametrize("play_on", [False, True])
def test_another_first_reply_stands_behind_the_message_that_it_replies_to(
    play: Callable[..., TeamPlay], alice: User, play_on: bool
) -> None:
    game = play("Planner", "Critic")
    game.ask("Go.")
    game.answer("One.", "Two.")
    first = Message.objects.get(branch__chat=game.chat, seq=2)
    regenerate_reply(user=alice, message=first, now=game.now, play_on=play_on)
    game.answer("One again.", *(["Two again."] if play_on else []))
    assert game.prompts[2] == game.prompts[0]
    assert on_branch(game) == ["Go.", "One again.", *(["Two again."] if play_on else [])]


@pytest.mark.team_case(14)
def test_another_reply_stands_behind_what_a_person_wrote_during_the_round(
    play: Callable[..., TeamPlay], alice: User
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.")
    game.ask("By train, please.")
    game.answer("Two.", "Three.")
    assert on_branch(game) == ["Go.", "One.", "By train, please.", "Two.", "Three."]
    second = Message.objects.get(branch__chat=game.chat, seq=4)
    regenerate_reply(user=alice, message=second, now=game.now)
    assert game.answer("Two again.") == ["Critic"]
    assert game.prompts[3] == game.prompts[1]
    assert on_branch(game) == ["Go.", "One.", "By train, please.", "Two again."]


@pytest.mark.team_case(14)
def test_another_reply_that_fails_and_is_tried_again_calls_nobody(
    play: Callable[..., TeamPlay], alice: User
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.", "Two.", "Three.")
    second = Message.objects.get(branch__chat=game.chat, seq=3)
    turn = regenerate_reply(user=alice, message=second, now=game.now)
    game.work(turn, [ProviderError("provider_rejected", status=400)])
    turn.refresh_from_db()
    retry_turn(user=alice, turn=turn, now=game.now)
    assert game.answer("Two again. [NEXT:Writer]") == ["Critic"]
    assert game.queued() is None
    assert game.round().status == Round.Status.SETTLED


def on_branch(game: TeamPlay) -> list[str]:
    """Return the texts of the active branch, in order."""
    game.chat.refresh_from_db()
    assert game.chat.active_branch
    path = history.select_path_messages(game.chat.active_branch, after=0, before=99).order_by("seq")
    return [row.text for row in path]


@pytest.mark.team_case(14)
def test_a_reply_on_a_branch_is_asked_for_again_behind_those_of_its_branch(
    play: Callable[..., TeamPlay], alice: User
) -> None:
    """The opening message is on the parent branch, which has different replies."""
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.", "Two.", "Three.")
    middle = Message.objects.get(branch__chat=game.chat, seq=3)
    regenerate_reply(user=alice, message=middle, now=game.now, play_on=True)
    game.answer("Two again.", "Three again.")
    game.chat.refresh_from_db()
    assert game.chat.active_branch
    last = Message.objects.get(branch=game.chat.active_branch, seq=4)
    regenerate_reply(user=alice, message=last, now=game.now)
    assert game.answer("Three for the third time.") == ["Writer"]
    assert "Two again." in game.prompts[-1][-1][1]
    assert on_branch(game) == ["Go.", "One.", "Two again.", "Three for the third time."]


def test_independent_replies_do_not_see_each_other(play: Callable[..., TeamPlay]) -> None:
    game = play("A", "B", "C", independent=True)
    game.ask("Guess a number.")
    assert game.answer("1", "2", "3") == ["A", "B", "C"]
    assert {prompt[-1] for prompt in game.prompts} == {("user", "[FROM:alice]\nGuess a number.")}
    receipt = Receipt.objects.order_by("-created_at").first()
    assert receipt is not None
    assert receipt.left_out == [[2, 3, "not_seen"]]


def test_the_opening_goes_along_when_the_window_has_moved_past_it(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("A", "B", "C", "D")
    assert game.chat.team is not None
    assert game.chat.team.current is not None
    game.chat.team.current.agents.update(window_size=1)
    game.ask("What is the question?")
    game.answer("1", "2", "3", "4")
    last = "\n".join(content for _, content in game.prompts[3][1:])
    assert "What is the question?" in last
    assert "[FROM:A]" not in last
    receipt = Receipt.objects.order_by("-created_at", "-turn__hop").first()
    assert receipt is not None
    assert "round_opening" in receipt.notes


@pytest.mark.team_case(16)
def test_a_later_attempt_composes_the_same_prompt(
    play: Callable[..., TeamPlay], alice: User
) -> None:
    game = play("A", "B")
    turn = game.ask("Go.")

    async def fails(worker: Any) -> None:
        await worker.db(game.ask, text="Later.")
        worker.runs[turn.pk].interrupt("shutdown")

    first = game.work(turn, [TextDelta("On"), fails, Finished("stop")])
    turn.refresh_from_db()
    assert turn.status == Turn.Status.QUEUED
    second = game.work(turn, script_reply("One."))
    assert first.scripted.requests[0].messages == second.scripted.requests[0].messages
    assert game.answer("Two.") == ["B"]
    assert "Later." in game.prompts[0][-1][1]


def test_where_the_person_decides_the_first_agent_answers_what_names_nobody(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", routing="person")
    game.ask("Who am I talking to?")
    assert game.answer("Me.") == ["Planner"]
    assert game.queued() is None
    game.ask("@all speak.")
    assert game.answer("1", "2") == ["Planner", "Critic"]


def test_a_round_waits_for_a_person_of_the_team(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", humans=("Ann",))
    game.ask()
    game.answer("Ask Ann. [NEXT:Ann]")
    made = game.round()
    assert (made.status, made.queue, game.queued()) == (Round.Status.WAITING, ["ann"], None)
    game.ask("Ann says yes.")
    assert game.answer("Good.") == ["Planner"]


def test_rounds_are_in_the_ledger(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("One.", "Two.")
    told = AuditEvent.objects.filter(type__startswith="round.").order_by("pk")
    assert list(told.values_list("type", flat=True)) == ["round.started", "round.ended"]
    assert told[0].data["speakers"] == ["Planner", "Critic"]
    assert (told[1].data["status"], told[1].data["hops"]) == ("settled", 2)


def test_a_person_of_the_team_answers_and_the_round_goes_on(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Writer", humans=("Ann",))
    game.ask("@Planner plan it.")
    game.answer("Ann has to say. [NEXT:Ann]")
    waiting = game.round()
    turn = game.ask("Rome it is. [NEXT:Writer]", as_role="ann")
    assert (turn.round, turn.hop) == (waiting, 2)
    assert game.answer("Written.") == ["Writer"]
    assert list_said(game.chat)[2] == ("Ann", "Rome it is. [NEXT:Writer]")
    assert "[FROM:Ann]\nRome it is." in game.prompts[-1][-1][1]
    assert (game.round().pk, game.round().status, game.round().hops) == (
        waiting.pk,
        Round.Status.SETTLED,
        2,
    )


def test_the_time_of_a_wait_does_not_count(play: Callable[..., TeamPlay]) -> None:
    game = play("Planner", "Writer", humans=("Ann",), seconds_limit=60)
    game.ask("@Planner plan it.")
    game.answer("[NEXT:Ann] decide.")
    hours = timedelta(hours=3)
    made = game.round()
    Round.objects.filter(pk=made.pk).update(
        started_at=made.started_at - hours, finished_at=game.now - hours
    )
    assert game.ask("@Writer, yes.", as_role="ann").round == made


def test_an_answer_that_nobody_follows_opens_a_round_of_its_own(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", humans=("Ann",))
    game.ask()
    game.answer("[NEXT:Ann] decide.")
    waiting = game.round()
    turn = game.ask("Yes.", as_role="ann")
    waiting.refresh_from_db()
    assert (turn.round == waiting, waiting.status) == (False, Round.Status.REPLACED)
    assert game.answer("Then so.") == ["Planner"]


def test_nobody_answers_in_the_name_of_an_agent_or_where_there_is_no_team(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", humans=("Ann",))
    for role in ("planner", "bob"):
        with pytest.raises(round_messages.NoSuchSeat):
            game.ask(as_role=role)
    Chat.objects.update(team=None)
    with pytest.raises(round_messages.NoSuchSeat):
        game.ask(as_role="ann")
    assert not Message.objects.exists()


@pytest.mark.requirement("S3.6")
def test_what_an_agent_repeats_is_sent_once_and_what_a_person_repeats_twice(
    play: Callable[..., TeamPlay],
) -> None:
    game = play("Planner", "Critic", "Writer", humans=("Ann",), routing="person")
    game.ask("@Planner go.")
    game.answer("The same.")
    game.ask("@Planner again.")
    game.answer("The same.")
    asked = Message.objects.get(branch__chat=game.chat, seq=3)
    asked.excluded = True
    asked.save()
    game.ask("@Critic", as_role="ann")
    game.answer("[NEXT:Ann]")
    Message.objects.filter(branch__chat=game.chat, seq=6).update(excluded=True)
    game.ask("@Critic", as_role="ann")
    game.answer("Fine.")
    assert game.prompts[-1][-1][1].count("[FROM:Ann]") == 2
    game.chat.refresh_from_db()
    Message.objects.filter(branch__chat=game.chat, seq__gte=5).delete()
    branch = game.chat.active_branch
    assert branch is not None
    branch.last_seq = 4
    branch.save()
    view = agents.build_agent_view(
        load_current_roster(game.chat).agents[1],
        chat=game.chat,
        team=load_current_roster(game.chat).agents,
    )
    counter = ApproximateCounter()
    *_, duplicate = agents.load_newest_seen(view, branch=branch, border=4, counter=counter)
    assert duplicate == 2


def test_prompts_of_earlier_versions_keep_full_width_markers(
    play: Callable[..., TeamPlay], monkeypatch: pytest.MonkeyPatch
) -> None:
    game = play("Planner", "Writer")
    with monkeypatch.context() as patch:
        patch.setattr(agents, "Viewer", partial(Viewer, only_ascii=True))
        game.ask("Plan it.")
        game.answer("好。【NEXT：Writer】", "写。")
    assert any("【NEXT：Writer】" in text for _, text in game.prompts[-1])
    assert [rebuild_request(row).fault for row in Receipt.objects.all()] == ["", ""]

"""One turn, from its claim to its end."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.fixtures import Settings

from chats.background import due_jobs
from chats.ground.leases import LeaseLost
from chats.models import Chat, Message, Receipt, Turn
from chats.providers.base import (
    Finished,
    ProviderError,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from chats.turns import lease
from chats.turns.attempt_state import SHUTDOWN, STOP
from chats.turns.follow_up_turns import continue_reply, retry_turn
from chats.turns.start import start_turn
from chats.turns.stop import stop_turn
from contextpolicy.engine.compose.assembly import ComposeInput
from contextpolicy.engine.compose.assembly import compose_context as assemble
from contextpolicy.engine.policy.budget import TurnTooLarge
from contextpolicy.models import AuditEvent

Work = Callable[..., Any]


def ask(alice: User, chat: Chat, now: datetime, text: str = "Hello") -> Turn:
    return start_turn(user=alice, chat=chat, text=text, now=now).turn


def texts(chat: Chat) -> list[tuple[int | None, str, str]]:
    rows = Message.objects.filter(branch__chat=chat).order_by("seq")
    return [(row.seq, row.role, row.text) for row in rows]


def events(turn: Turn) -> list[str]:
    rows = AuditEvent.objects.filter(turn_id=turn.pk).order_by("id")
    return list(rows.values_list("type", flat=True))


def test_a_reply_is_stored_whole_with_its_receipt(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    work(
        turn,
        [
            ReasoningDelta("hm"),
            TextDelta("Good "),
            TextDelta("day"),
            UsageReport(12, 3, 0, 0),
            Finished("stop"),
        ],
    )
    assert turn.status == Turn.Status.COMPLETED
    assert texts(chat) == [(1, "user", "Hello"), (2, "assistant", "Good day")]
    assert turn.reply is not None
    assert turn.reply.parts[0] == {"type": "reasoning", "text": "hm"}
    receipt = Receipt.objects.get(turn=turn)
    assert (receipt.outcome, receipt.usage["input"], receipt.last_seq) == ("ok", 12, 1)
    assert [segment[0] for segment in receipt.segments] == ["question"]
    assert events(turn) == ["turn.started", "turn.completed"]


def test_frames_carry_offsets_that_add_up(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    worker = work(ask(alice, chat, now), [TextDelta("ab"), TextDelta("cde"), Finished("stop")])
    said = [(f.offset, f.text) for f in worker.frames if f.kind == "text"]
    assert said == [(0, "ab"), (2, "cde")]
    assert worker.frames[-1].kind == "end"


def test_the_next_turn_sends_the_history(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    work(ask(alice, chat, now), [TextDelta("Hi"), Finished("stop")])
    worker = work(ask(alice, chat, now, "And now?"))
    sent = [(m.role, m.content) for m in worker.scripted.requests[0].messages]
    assert sent == [("user", "Hello"), ("assistant", "Hi"), ("user", "And now?")]


def test_a_message_that_arrives_meanwhile_is_taken_up_by_the_running_turn(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    other: list[Turn] = []

    async def arrives(worker: Any) -> None:
        other.append(await worker.db(start_one_more))

    def start_one_more() -> Turn:
        return ask(alice, chat, now, "One more thing")

    worker = work(
        turn,
        [TextDelta("First"), arrives, Finished("stop")],
        [TextDelta("Second"), Finished("stop")],
    )
    assert texts(chat) == [
        (1, "user", "Hello"),
        (2, "assistant", "First"),
        (3, "user", "One more thing"),
        (4, "assistant", "Second"),
    ]
    other[0].refresh_from_db()
    assert (other[0].status, other[0].absorbed_by) == (Turn.Status.ABSORBED, turn)
    assert turn.reply is not None
    assert turn.reply.text == "Second"
    sent = [m.content for m in worker.scripted.requests[1].messages]
    assert sent == ["Hello", "First", "One more thing"]


def test_a_passing_fault_before_the_first_token_is_tried_again(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    fault = ProviderError("provider_unavailable", status=503, retry_after=0.01)
    worker = work(turn, [fault], [TextDelta("Here"), Finished("stop")])
    assert turn.status == Turn.Status.COMPLETED
    assert len(worker.scripted.requests) == 2
    outcomes = Receipt.objects.filter(turn=turn).order_by("call").values_list("outcome", flat=True)
    assert list(outcomes) == ["failed", "ok"]


def test_a_worker_that_ends_while_a_turn_waits_for_the_provider_hands_it_back(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)

    async def ends_soon(worker: Any) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, worker.runs[turn.pk].interrupt, SHUTDOWN)

    work(turn, [ends_soon, ProviderError("provider_rate_limited", status=429, retry_after=30)])
    assert (turn.status, turn.error_code, turn.handed_back) == (Turn.Status.QUEUED, "", True)
    work(turn, [TextDelta("Here"), Finished("stop")])
    assert turn.status == Turn.Status.COMPLETED


def test_after_the_first_token_nothing_is_tried_again(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    worker = work(turn, [TextDelta("Half"), ProviderError("provider_unavailable")])
    assert len(worker.scripted.requests) == 1
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "provider_unavailable")
    assert turn.reply is not None
    assert (turn.reply.text, turn.reply.finish) == ("Half", "incomplete")


def test_an_incomplete_reply_stays_out_of_later_prompts(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    work(ask(alice, chat, now), [TextDelta("Half"), ProviderError("provider_unavailable")])
    turn = ask(alice, chat, now, "Again")
    worker = work(turn)
    assert [m.content for m in worker.scripted.requests[0].messages] == ["Hello", "Again"]
    assert [2, 2, "incomplete"] in Receipt.objects.get(turn=turn).left_out


def test_a_stream_without_a_finish_reason_is_incomplete(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    work(turn, [TextDelta("Half"), Finished("none")])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "reply_incomplete")


def test_an_empty_answer_is_tried_once_more_and_then_said(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    worker = work(turn, [TextDelta("  "), Finished("stop")], [Finished("stop")])
    assert len(worker.scripted.requests) == 2
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "empty_reply")
    assert turn.reply is None


def test_of_an_answer_without_words_nothing_is_said(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    empty = [TextDelta(" "), TextDelta("\n"), Finished("stop")]
    worker = work(
        turn, empty, [TextDelta("\n"), TextDelta("Good "), TextDelta("day"), Finished("stop")]
    )
    said = [(f.offset, f.text) for f in worker.frames if f.kind == "text"]
    assert said == [(0, "\nGood "), (6, "day")]
    assert texts(chat)[1:] == [(2, "assistant", "\nGood day")]


def test_a_reply_cut_by_length_is_complete_and_can_be_continued(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    work(turn, [TextDelta("Once upon"), Finished("length")])
    assert turn.status == Turn.Status.COMPLETED
    assert turn.reply is not None
    assert turn.reply.finish == "length"
    onward = continue_reply(user=alice, turn=turn, now=now)
    worker = work(onward, [TextDelta(" a time"), Finished("stop")])
    sent = [(m.role, m.content) for m in worker.scripted.requests[0].messages]
    assert sent[:2] == [("user", "Hello"), ("assistant", "Once upon")]
    assert sent[2][0] == "user"
    assert texts(chat)[-1] == (3, "assistant", " a time")


def test_continuing_an_incomplete_reply_sends_it(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    work(turn, [TextDelta("Half"), Finished("none")])
    worker = work(continue_reply(user=alice, turn=turn, now=now))
    assert [m.content for m in worker.scripted.requests[0].messages][:2] == ["Hello", "Half"]


def test_a_retry_answers_the_same_message(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    work(turn, [ProviderError("provider_rejected", status=404)])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "provider_rejected")
    again = retry_turn(user=alice, turn=turn, now=now)
    work(again, [TextDelta("Now"), Finished("stop")])
    assert again.status == Turn.Status.COMPLETED
    assert texts(chat) == [(1, "user", "Hello"), (2, "assistant", "Now")]


def test_a_tool_call_is_answered_and_the_turn_goes_on(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)
    worker = work(
        turn,
        [ToolCallDelta(0, "c1", "delete_all", "{}"), Finished("tool_calls")],
        [TextDelta("I cannot"), Finished("stop")],
    )
    assert turn.status == Turn.Status.COMPLETED
    step = Message.objects.get(branch__chat=chat, seq=2)
    assert [part["type"] for part in step.parts] == ["tool_call", "tool_result"]
    roles = [m.role for m in worker.scripted.requests[1].messages]
    assert roles == ["user", "assistant", "tool"]


def test_stop_keeps_the_text_so_far_and_cancels_the_call(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, chat, now)

    async def press_stop(worker: Any) -> None:
        await worker.db(stop_turn, user=alice, turn=turn, now=now)
        worker.runs[turn.pk].interrupt(STOP)
        await asyncio.sleep(30)

    worker = work(turn, [TextDelta("So far"), press_stop, TextDelta("never")])
    assert turn.status == Turn.Status.STOPPED
    assert turn.reply is not None
    assert (turn.reply.text, turn.reply.finish) == ("So far", "stopped")
    assert worker.scripted.cancelled == 1
    assert events(turn) == ["turn.started", "turn.stop_requested", "turn.stopped"]


def test_stop_ends_a_queued_turn_at_once(alice: User, chat: Chat, now: datetime) -> None:
    turn = stop_turn(user=alice, turn=ask(alice, chat, now), now=now)
    assert turn.status == Turn.Status.STOPPED


def test_an_overflow_leads_to_exactly_one_smaller_try(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    for number in range(4):
        work(ask(alice, chat, now, f"Question {number}"), [TextDelta("A. " * 50), Finished("stop")])
    turn = ask(alice, chat, now)
    overflow = ProviderError("context_overflow", status=400, limit=500, actual=1000)
    worker = work(turn, [overflow], [overflow], [TextDelta("never"), Finished("stop")])
    assert len(worker.scripted.requests) == 2
    assert len(worker.scripted.requests[1].messages) < len(worker.scripted.requests[0].messages)
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "context_overflow")


def test_a_second_claim_finds_nothing(alice: User, chat: Chat, now: datetime) -> None:
    turn = ask(alice, chat, now)
    assert lease.claim_turn(turn_id=turn.pk, worker="a", now=now) is not None
    assert lease.claim_turn(turn_id=turn.pk, worker="b", now=now) is None


def test_a_task_that_comes_twice_does_not_take_a_turn_whose_lease_ran_out(
    alice: User, chat: Chat, now: datetime
) -> None:
    turn = ask(alice, chat, now)
    assert lease.claim_turn(turn_id=turn.pk, worker="a", now=now) is not None
    Turn.objects.filter(pk=turn.pk).update(lease_until=timezone.now() - timedelta(minutes=1))
    assert lease.claim_turn(turn_id=turn.pk, worker="b", now=now) is None
    due_jobs.run_all_due_jobs(now=now)
    assert lease.claim_turn(turn_id=turn.pk, worker="b", now=now) is not None
    turn.refresh_from_db()
    assert (turn.attempt, turn.losses) == (2, 1)


def test_the_last_attempt_that_dies_ends_with_a_sentence(
    alice: User, chat: Chat, now: datetime, settings: Settings
) -> None:
    settings.MAX_ATTEMPTS = 2
    turn = ask(alice, chat, now)
    for _ in range(2):
        assert lease.claim_turn(turn_id=turn.pk, worker="a", now=now) is not None
        Turn.objects.filter(pk=turn.pk).update(lease_until=timezone.now() - timedelta(minutes=1))
        due_jobs.run_all_due_jobs(now=now)
    turn.refresh_from_db()
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "worker_lost")
    assert "memory" in turn.error_sentence
    assert lease.claim_turn(turn_id=turn.pk, worker="a", now=now) is None


def test_a_worker_that_lost_its_lease_writes_nothing(
    alice: User, chat: Chat, now: datetime
) -> None:
    turn = ask(alice, chat, now)
    mine = lease.claim_turn(turn_id=turn.pk, worker="a", now=now)
    assert mine is not None
    Turn.objects.filter(pk=turn.pk).update(lease_token="another")
    with pytest.raises(LeaseLost):
        lease.update_held_turn(mine, partial_text="too late")
    turn.refresh_from_db()
    assert turn.partial_text == ""


def test_a_branch_has_one_running_turn(alice: User, chat: Chat, now: datetime) -> None:
    first, second = ask(alice, chat, now), ask(alice, chat, now, "Two")
    assert lease.claim_turn(turn_id=first.pk, worker="a", now=now) is not None
    assert lease.claim_turn(turn_id=second.pk, worker="b", now=now) is None


def test_a_step_that_cannot_be_composed_does_not_store_the_one_before_it_again(
    alice: User, chat: Chat, now: datetime, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = ask(alice, chat, now)

    def refusing(given: ComposeInput) -> Any:
        if given.steps:
            raise TurnTooLarge("The newest step does not fit.")
        return assemble(given)

    monkeypatch.setattr("chats.prompt.composition.assemble", refusing)
    work(turn, [TextDelta("Looking"), ToolCallDelta(0, "c1", "f", "{}"), Finished("tool_calls")])
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "turn_too_large")
    assert turn.error_sentence == "The newest step does not fit."
    assert texts(chat) == [(1, "user", "Hello"), (2, "assistant", "Looking")]
    assert turn.reply is None

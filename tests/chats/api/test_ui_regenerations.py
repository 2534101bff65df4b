"""Regenerations of `useChat` by the ids of turns and steps, during stops and after failures."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import branching, marks
from chats.exchange.ui_actions import UIMessageNotFound
from chats.exchange.ui_chats import reply_to_ui_request
from chats.exchange.ui_requests import UIRequest
from chats.models import Branch, Chat, Message, Turn
from chats.prompt.turn_question import QuestionExcluded
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.turns.follow_up_turns import continue_reply, retry_turn
from contextpolicy.engine.messages.ui_messages import parse_ui_message
from tests.support.ui_streams import build_user_message

Work = Callable[..., Any]
Request = Callable[..., Turn]

FAILURE = ProviderError("provider_rejected", status=404)


@pytest.fixture
def request_turn(chat: Chat, alice: User, now: datetime) -> Request:
    """Execute a request of `useChat` and return its turn."""

    def requesting(text: str = "", named: str | None = None, own_id: str = "m1") -> Turn:
        last = parse_ui_message(build_user_message(text, own_id))[0] if text else None
        trigger: Any = "submit-message" if text else "regenerate-message"
        asked = UIRequest(str(chat.pk), trigger, named, last=last, count=1)
        return reply_to_ui_request(asked, user=alice, now=now).turn

    return requesting


def answer(work: Work, turn: Turn, text: str = "An answer.", finish: Any = "stop") -> Turn:
    """Let the model answer a turn."""
    work(turn, [TextDelta(text), Finished(finish)])
    return Turn.objects.get(pk=turn.pk)


def list_texts(chat: Chat) -> list[str]:
    """Return the texts of the newest branch's own messages."""
    rows = Message.objects.filter(branch=Chat.objects.get(pk=chat.pk).active_branch)
    return [row.text for row in rows.order_by("seq")]


def store_accepted_message(turn: Turn, absorbed: Turn) -> Message:
    """Store the rows of a turn that accepted a second message between two steps.

    Returns its last step.
    """
    branch = turn.branch
    first, second = Message.objects.filter(branch=branch, role="user").order_by("accepted")
    step = {"branch": branch, "turn": turn, "role": "assistant", "created_at": turn.queued_at}
    for message, seq in ((first, 1), (second, 3)):
        message.seq, message.turn = seq, turn
        message.save(update_fields=["seq", "turn"])
    for seq, text in ((2, "Let me see."), (4, "Both.")):
        parts = [{"type": "text", "text": text}]
        last = Message.objects.create(seq=seq, accepted=seq * 10, parts=parts, **step)
    Branch.objects.update(last_seq=4)
    Chat.objects.update(accepted_count=100)
    Turn.objects.filter(pk=turn.pk).update(status="completed", reply=last)
    Turn.objects.filter(pk=absorbed.pk).update(status="absorbed", absorbed_by=turn)
    return last


@pytest.mark.parametrize("is_running", [True, False])
def test_a_repeated_regeneration_of_a_continuation_makes_one_reply(
    request_turn: Request, work: Work, chat: Chat, alice: User, now: datetime, is_running: bool
) -> None:
    first = answer(work, request_turn("one"), "Begin", "length")
    rest = answer(work, continue_reply(user=alice, turn=first, now=now), " and end.")
    again = request_turn(named=str(rest.pk))
    assert (again.trigger_id, again.continues_id) == (None, first.pk)
    if not is_running:
        answer(work, again, " and another end.")
    assert request_turn(named=str(rest.pk)) == again
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 3)


def test_a_continuation_that_failed_is_started_again(
    request_turn: Request, work: Work, chat: Chat, alice: User, now: datetime
) -> None:
    first = answer(work, request_turn("one"), "Begin", "length")
    rest = answer(work, continue_reply(user=alice, turn=first, now=now), " and end.")
    failed = request_turn(named=str(rest.pk))
    work(failed, [FAILURE])
    for named in (rest, failed):
        retried = request_turn(named=str(named.pk))
        assert retried.continues_id == first.pk
        assert retried.pk not in (rest.pk, failed.pk)
    answer(work, retried, " and another end.")
    assert list_texts(chat) == [" and another end."]
    # The chat has gone on.
    answer(work, request_turn("two", own_id="m2"))
    with pytest.raises(UIMessageNotFound):
        request_turn(named=str(rest.pk))


@pytest.mark.parametrize("is_running", [True, False])
@pytest.mark.parametrize("name", ["turn", "step", "absorbed"])
def test_a_reply_to_a_message_accepted_during_a_turn_is_regenerated_once(
    request_turn: Request, work: Work, chat: Chat, is_running: bool, name: str
) -> None:
    turn = request_turn("one")
    absorbed = request_turn("two", own_id="m2")
    step = store_accepted_message(turn, absorbed)
    named = str({"turn": turn, "step": step, "absorbed": absorbed}[name].pk)
    again = request_turn(named=named)
    if not is_running:
        answer(work, again)
    assert request_turn(named=named) == again
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 3)


def stop_running(turn: Turn, now: datetime) -> None:
    """Store a turn as running, with a request to stop that its worker has not seen yet."""
    Message.objects.filter(triggered=turn).update(seq=1, turn=turn)
    Branch.objects.filter(pk=turn.branch_id).update(last_seq=1)
    Turn.objects.filter(pk=turn.pk).update(
        status="running", attempt=1, step=1, lease_token="t", lease_until=now, stop_requested_at=now
    )


@pytest.mark.parametrize("name", ["nothing", "message", "turn", "edit"])
def test_a_reply_that_is_stopping_is_not_a_repetition(
    request_turn: Request, work: Work, chat: Chat, now: datetime, name: str
) -> None:
    turn = request_turn("one")
    stop_running(turn, now)
    named = {"nothing": None, "message": "m1", "turn": str(turn.pk), "edit": "m1"}[name]
    text = "one" if name == "edit" else ""
    again = request_turn(text, named)
    assert again != turn
    # The new reply is in progress, so a repeated request gets it.
    assert request_turn(text, named) == again
    answer(work, again, "Anew.")
    assert list_texts(chat) == ["Anew."]
    assert (Branch.objects.count(), Turn.objects.count()) == (2, 2)


def test_a_stopped_reply_is_started_again_in_the_branch_that_a_person_chose(
    request_turn: Request, work: Work, chat: Chat, alice: User, now: datetime
) -> None:
    stopped = request_turn("one")
    stop_running(stopped, now)
    answer(work, request_turn(named=str(stopped.pk)))
    Turn.objects.filter(pk=stopped.pk).update(status="stopped", lease_token="", lease_until=None)
    branching.choose_branch(user=alice, chat=chat, branch_id=stopped.branch_id, now=now)
    assert request_turn(named="m1").branch_id == stopped.branch_id


@pytest.mark.parametrize("is_running", [True, False])
def test_a_repeated_edit_gets_the_retry_of_a_reply_that_failed_with_text(
    request_turn: Request, work: Work, alice: User, now: datetime, is_running: bool
) -> None:
    failed = request_turn("one")
    work(failed, [TextDelta("So f"), FAILURE])
    assert Message.objects.filter(turn=failed, role="assistant").exists()
    retried = retry_turn(user=alice, turn=Turn.objects.get(pk=failed.pk), now=now)
    if not is_running:
        answer(work, retried)
    assert request_turn("one", "m1") == retried
    if is_running:
        assert request_turn(named="m1") == retried
    assert (Branch.objects.count(), Turn.objects.count()) == (1, 2)


@pytest.mark.parametrize("names", ["question", "reply", ""])
def test_a_reply_to_an_excluded_message_is_not_regenerated(
    request_turn: Request, work: Work, chat: Chat, now: datetime, names: str
) -> None:
    first = answer(work, request_turn("one"))
    assert first.trigger is not None
    marks.exclude_message(message=first.trigger, actor="user:1", now=now)
    named = {"question": str(first.trigger_id), "reply": str(first.reply_id), "": None}[names]
    with pytest.raises(QuestionExcluded):
        request_turn(named=named)
    assert Turn.objects.count() == 1

"""The fast path that opens a plain turn in one transaction, and its fallback to the run."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from chats.models import Chat, Receipt, Turn
from chats.prompt import composition
from chats.providers.base import Finished, TextDelta
from chats.turns import call_receipts, opening
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec

Work = Callable[..., Any]
REPLY = [TextDelta("Good day"), Finished("stop")]


@pytest.fixture
def turn(alice: User, chat: Chat, now: datetime) -> Turn:
    return start_turn(user=alice, chat=chat, text="Hello", now=now).turn


def opened(turn: Turn, now: datetime) -> opening.ClaimedTurn | None:
    return opening.open_turn(turn_id=turn.pk, worker="a", counter=ApproximateCounter(), now=now)


def test_a_plain_turn_begins_with_its_call_booked(turn: Turn, now: datetime) -> None:
    begun = opened(turn, now)
    assert begun is not None
    assert begun.prompt is not None
    assert begun.receipt_id == Receipt.objects.get(turn=turn, outcome="open").pk
    assert opened(turn, now) is None


def test_a_turn_of_one_step_goes_to_the_database_twice(turn: Turn, work: Work) -> None:
    assert work(turn, REPLY).ways == ["open_turn", "close_step"]


def test_a_database_that_fails_behind_the_claim_does_not_cost_the_turn(
    turn: Turn, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(**_given: Any) -> None:
        raise OperationalError("the connection broke")

    monkeypatch.setattr(call_receipts, "create_receipt", once(gone, call_receipts.create_receipt))
    work(turn, REPLY)
    assert turn.status == Turn.Status.COMPLETED
    assert Receipt.objects.filter(turn=turn).count() == 1


def test_a_refusal_of_the_first_prompt_is_told_by_the_turn(turn: Turn, work: Work) -> None:
    ModelSpec.objects.update(context_window=10)
    work(turn, REPLY)
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "policy_impossible")


def test_what_nobody_foresaw_is_told_at_once(
    turn: Turn, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(**_given: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(composition, "compose_prompt", broken)
    work(turn, REPLY)
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "internal_error")


def test_a_turn_taken_away_while_it_begins_is_left_alone(
    turn: Turn, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stolen(**given: Any) -> Any:
        Turn.objects.filter(pk=turn.pk).update(lease_token="another")
        return compose(**given)

    compose = composition.compose_prompt
    monkeypatch.setattr(composition, "compose_prompt", stolen)
    worker = work(turn, REPLY)
    assert (worker.scripted.requests, worker.frames) == ([], [])
    assert not Receipt.objects.filter(turn=turn)


def once(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose first call differs from all later calls."""
    rest = iter([first])
    return lambda **given: next(rest, then)(**given)

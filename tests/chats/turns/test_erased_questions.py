"""A reply whose question was erased is not written again: its prompt would have no question."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from chats.actions import branching, erasure
from chats.models import Chat, Message, Turn
from chats.prompt.turn_question import QuestionErased
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.turns.follow_up_turns import NothingToContinue, continue_reply, retry_turn
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec

pytestmark = pytest.mark.django_db
Work = Callable[..., Any]
DONE = [TextDelta("Done."), Finished("stop")]
CUT = [TextDelta("Half a"), Finished("length")]


@pytest.fixture
def ask(
    alice: User, chat: Chat, demo_model: ModelSpec, work: Work
) -> Callable[[str, list[Any]], Turn]:
    """Ask a question, which gets a scripted reply."""
    del demo_model

    def asking(text: str, script: list[Any]) -> Turn:
        turn = start_turn(user=alice, chat=chat, text=text, now=timezone.now()).turn
        work(turn, script)
        turn.refresh_from_db()
        return turn

    return asking


def erase_question(turn: Turn, user: User) -> None:
    assert turn.trigger is not None
    erasure.erase_message(user=user, message=turn.trigger, now=timezone.now())


def test_a_failed_reply_is_not_tried_again(alice: User, ask: Callable[..., Turn]) -> None:
    ask("first", DONE)
    failed = ask("second", [ProviderError("provider_rejected")])
    erase_question(failed, alice)
    with pytest.raises(QuestionErased) as refused:
        retry_turn(user=alice, turn=failed, now=timezone.now())
    assert (refused.value.code, refused.value.status) == ("message_erased", 409)
    assert Turn.objects.count() == 2


def test_a_reply_is_not_regenerated(alice: User, ask: Callable[..., Turn]) -> None:
    ask("first", DONE)
    turn = ask("second", DONE)
    erase_question(turn, alice)
    reply = Message.objects.get(pk=str(turn.reply_id))
    with pytest.raises(QuestionErased):
        branching.regenerate_reply(user=alice, message=reply, now=timezone.now())
    assert Turn.objects.count() == 2


def test_a_reply_is_continued_without_its_question(
    alice: User, ask: Callable[..., Turn], work: Work
) -> None:
    turn = ask("first", CUT)
    erase_question(turn, alice)
    again = continue_reply(user=alice, turn=turn, now=timezone.now())
    (request, *_) = work(again, DONE).scripted.requests
    assert request.messages[-1].role == "user"


def test_an_erased_reply_is_not_continued(alice: User, ask: Callable[..., Turn]) -> None:
    turn = ask("first", CUT)
    reply = Message.objects.get(turn=turn, role=Message.Role.ASSISTANT)
    erasure.erase_message(user=alice, message=reply, now=timezone.now())
    turn.refresh_from_db()
    with pytest.raises(NothingToContinue):
        continue_reply(user=alice, turn=turn, now=timezone.now())


def test_a_failed_continuation_of_an_erased_reply_is_not_tried_again(
    alice: User, ask: Callable[..., Turn], work: Work
) -> None:
    turn = ask("first", CUT)
    again = continue_reply(user=alice, turn=turn, now=timezone.now())
    work(again, [ProviderError("provider_rejected")])
    reply = Message.objects.get(turn=turn, role=Message.Role.ASSISTANT)
    erasure.erase_message(user=alice, message=reply, now=timezone.now())
    again.refresh_from_db()
    with pytest.raises(QuestionErased):
        retry_turn(user=alice, turn=again, now=timezone.now())


def test_a_turn_that_also_answers_another_message_is_tried_again(
    alice: User, chat: Chat, ask: Callable[..., Turn], work: Work
) -> None:
    del ask
    turn = start_turn(user=alice, chat=chat, text="first", now=timezone.now()).turn
    start_turn(user=alice, chat=chat, text="second", now=timezone.now())
    work(turn, [ProviderError("provider_rejected")])
    turn.refresh_from_db()
    erase_question(turn, alice)
    again = retry_turn(user=alice, turn=turn, now=timezone.now())
    (request, *_) = work(again, DONE).scripted.requests
    assert [message.content for message in request.messages] == ["second"]

"""A message that a user excluded from prompts is not sent to be answered again."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.actions import branching, marks
from chats.models import Chat, Message, Turn
from chats.prompt.turn_question import QuestionExcluded
from chats.providers.base import Finished, ProviderError, TextDelta, ToolCallDelta
from chats.turns.follow_up_turns import continue_reply, retry_turn
from chats.turns.start import start_turn
from contextpolicy.models import ModelSpec

pytestmark = pytest.mark.django_db
Work = Callable[..., Any]
DONE = [TextDelta("Done."), Finished("stop")]
CUT = [TextDelta("Half a"), Finished("length")]
FAILED = [ProviderError("provider_rejected")]


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


def exclude(message: Message | None) -> None:
    assert message is not None
    marks.exclude_message(message=message, actor="user:1", now=timezone.now())


def include(message: Message | None) -> None:
    assert message is not None
    marks.include_message(message=message, actor="user:1", now=timezone.now())


def test_a_reply_is_regenerated_once_its_question_is_included_again(
    alice: User, ask: Callable[..., Turn], work: Work
) -> None:
    turn = ask("first", DONE)
    exclude(turn.trigger)
    reply = Message.objects.get(pk=str(turn.reply_id))
    with pytest.raises(QuestionExcluded) as refused:
        branching.regenerate_reply(user=alice, message=reply, now=timezone.now())
    assert (refused.value.code, refused.value.status) == ("message_excluded", 409)
    assert Turn.objects.count() == 1
    include(turn.trigger)
    again = branching.regenerate_reply(user=alice, message=reply, now=timezone.now())
    (request, *_) = work(again, DONE).scripted.requests
    assert [message.content for message in request.messages] == ["first"]


def test_the_page_says_why_a_reply_is_not_regenerated(
    alice: User, chat: Chat, client: Client, ask: Callable[..., Turn]
) -> None:
    turn = ask("first", DONE)
    exclude(turn.trigger)
    client.force_login(alice)
    address = f"/chats/{chat.pk}/messages/{turn.reply_id}/regenerate"
    answer = client.post(address, HTTP_HX_REQUEST="true")
    assert answer.status_code == 409
    assert Turn.objects.count() == 1


def test_a_failed_reply_is_not_tried_again(alice: User, ask: Callable[..., Turn]) -> None:
    failed = ask("first", FAILED)
    exclude(failed.trigger)
    with pytest.raises(QuestionExcluded):
        retry_turn(user=alice, turn=failed, now=timezone.now())


def test_an_excluded_reply_is_not_continued(alice: User, ask: Callable[..., Turn]) -> None:
    turn = ask("first", CUT)
    turn.refresh_from_db()
    exclude(turn.reply)
    turn.refresh_from_db()
    with pytest.raises(QuestionExcluded):
        continue_reply(user=alice, turn=turn, now=timezone.now())


def test_a_reply_that_is_excluded_before_its_continuation_runs_ends_it(
    alice: User, ask: Callable[..., Turn], work: Work
) -> None:
    turn = ask("first", CUT)
    again = continue_reply(user=alice, turn=turn, now=timezone.now())
    exclude(turn.reply)
    worker = work(again, DONE)
    again.refresh_from_db()
    assert worker.scripted.requests == []
    assert (again.status, again.error_code) == (Turn.Status.FAILED, "message_excluded")


def test_a_retry_that_waits_is_not_sent_once_its_question_is_excluded(
    alice: User, ask: Callable[..., Turn], work: Work
) -> None:
    failed = ask("first", FAILED)
    again = retry_turn(user=alice, turn=failed, now=timezone.now())
    exclude(failed.trigger)
    worker = work(again, DONE)
    again.refresh_from_db()
    assert worker.scripted.requests == []
    assert (again.status, again.error_code) == (Turn.Status.FAILED, "message_excluded")


def test_a_question_that_is_excluded_between_tool_steps_ends_the_turn(
    alice: User, chat: Chat, demo_model: ModelSpec, work: Work
) -> None:
    del demo_model
    turn = start_turn(user=alice, chat=chat, text="first", now=timezone.now()).turn

    async def exclude_now(worker: Any) -> None:
        await worker.db(lambda: exclude(turn.trigger and Message.objects.get(pk=turn.trigger.pk)))

    calls = [
        ToolCallDelta(0, "call_1", "chat_history_search", '{"query": "x"}'),
        exclude_now,
        Finished("tool_calls"),
    ]
    worker = work(turn, calls, DONE)
    turn.refresh_from_db()
    assert len(worker.scripted.requests) == 1
    assert (turn.status, turn.error_code) == (Turn.Status.FAILED, "message_excluded")


def test_the_included_one_of_two_messages_is_answered_again(
    alice: User, chat: Chat, demo_model: ModelSpec, work: Work
) -> None:
    del demo_model
    turn = start_turn(user=alice, chat=chat, text="first", now=timezone.now()).turn
    later = start_turn(user=alice, chat=chat, text="second", now=timezone.now()).message
    work(turn, FAILED)
    turn.refresh_from_db()
    exclude(turn.trigger)
    again = retry_turn(user=alice, turn=turn, now=timezone.now())
    (request, *_) = work(again, DONE).scripted.requests
    assert [message.content for message in request.messages] == ["second"]
    reply = Message.objects.get(turn=again, role=Message.Role.ASSISTANT)
    include(turn.trigger)
    exclude(later)
    with pytest.raises(QuestionExcluded):
        branching.regenerate_reply(user=alice, message=reply, now=timezone.now())


def test_a_regenerated_reply_answers_the_included_one_of_two_messages(
    alice: User, chat: Chat, demo_model: ModelSpec, work: Work
) -> None:
    del demo_model
    turn = start_turn(user=alice, chat=chat, text="first", now=timezone.now()).turn
    later = start_turn(user=alice, chat=chat, text="second", now=timezone.now()).message
    work(turn, DONE)
    turn.refresh_from_db()
    exclude(later)
    reply = Message.objects.get(pk=str(turn.reply_id))
    again = branching.regenerate_reply(user=alice, message=reply, now=timezone.now())
    (request, *_) = work(again, DONE).scripted.requests
    assert [message.content for message in request.messages] == ["first"]

"""The event `context.compressed`: content, time of writing, and related turn."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, Receipt, Turn
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.turns.start import start_turn
from contextpolicy import ledger
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

pytestmark = pytest.mark.requirement("S0.5")
Work = Callable[..., Any]
Say = Callable[..., Turn]
ANSWER = [TextDelta("Like this."), Finished("stop")]


@pytest.fixture
def simple(demo_model: object, now: datetime) -> None:
    """A policy that sends four messages of at most 50 characters."""
    values = {"strategy": "simple", "window_size": 4, "max_chars_per_message": 50}
    policy = create_policy(slug="p", name="P", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)


@pytest.fixture
def say(alice: User, chat: Chat, now: datetime, work: Work) -> Say:
    """Run a turn. By default the model answers in one step."""

    def saying(text: str, *scripts: list[Any]) -> Turn:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        work(turn, *(scripts or (ANSWER,)))
        assert turn.status == Turn.Status.COMPLETED
        return turn

    return saying


def told(turn: Turn) -> list[AuditEvent]:
    """Return the ledger rows of a turn, in order."""
    return list(AuditEvent.objects.filter(turn_id=turn.pk).order_by("id"))


@pytest.mark.usefixtures("simple")
def test_it_stands_between_the_start_of_its_turn_and_the_call(
    chat: Chat, say: Say, now: datetime
) -> None:
    for number in range(3):
        say(f"Question {number}")
    known: list[str] = []

    async def look(worker: Any) -> None:
        known.extend(await worker.db(types))

    def types() -> list[str]:
        newest = Turn.objects.latest("accepted")
        return [event.type for event in told(newest)]

    turn = say("And now?", [look, *ANSWER])

    # The event is written before the model call, and no other event is.
    assert known == ["turn.started", "context.compressed"]
    events = told(turn)
    assert [event.type for event in events] == [*known, "turn.completed"]
    assert [event.seq for event in events] == list(range(events[0].seq, events[0].seq + 3))
    event = events[1]
    receipt = Receipt.objects.get(turn=turn)
    assert event.data == {
        "original_count": 6,
        "compressed_count": 4,
        "truncated_count": 0,
        "max_messages": 4,
        "max_chars_per_message": 50,
        "receipt": str(receipt.pk),
    }
    assert (event.turn_id, event.chat_id, event.actor) == (turn.pk, chat.pk, "worker")
    assert event.scope == f"chat:{chat.pk}"
    assert receipt.created_at == event.at
    assert list(ledger.find_ledger_breaks(scope=event.scope)) == []


@pytest.mark.usefixtures("simple")
def test_a_cut_message_alone_is_told(say: Say) -> None:
    assert [event.type for event in told(say("x" * 60))] == ["turn.started", "turn.completed"]
    event = told(say("And now?"))[1]
    counts = ("original_count", "compressed_count", "truncated_count")
    assert event.type == "context.compressed"
    assert [event.data[name] for name in counts] == [2, 2, 1]


@pytest.mark.usefixtures("simple")
def test_nothing_is_told_of_a_context_that_is_whole(say: Say) -> None:
    for number in range(2):
        turn = say(f"Question {number}")
        assert [event.type for event in told(turn)] == ["turn.started", "turn.completed"]


@pytest.mark.usefixtures("simple")
def test_a_turn_of_several_steps_is_told_once(say: Say) -> None:
    for number in range(3):
        say(f"Question {number}")
    call = [ToolCallDelta(0, "c1", "nothing", "{}"), Finished("tool_calls")]
    turn = say("And now?", call, ANSWER)
    assert Receipt.objects.filter(turn=turn).count() == 2
    found = [event for event in told(turn) if event.type == "context.compressed"]
    first = Receipt.objects.get(turn=turn, step=1)
    assert [event.data["receipt"] for event in found] == [str(first.pk)]

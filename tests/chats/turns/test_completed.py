"""Strategies of packages are notified of complete turns. Their errors do not affect the turn."""

import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.background.strategy_hooks import tell_strategy
from chats.ground import queue
from chats.models import Chat, Message, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.turns.start import start_turn
from contextpolicy import plugins
from contextpolicy.engine.messages.messages import Message as Value
from contextpolicy.engine.messages.messages import extract_message_text
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.window import HistoryView, WindowChoice
from contextpolicy.models import AuditEvent
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

pytestmark = pytest.mark.requirement("S2.1")
COUNTER = ApproximateCounter()
Work = Callable[..., Any]


class Listening:
    """A strategy that sends everything and records each completed turn."""

    name = "listening"

    def __init__(self) -> None:
        self.heard: list[list[str]] = []
        self.error: Exception | None = None

    def choose(self, view: HistoryView) -> WindowChoice:
        """Choose all messages."""
        return WindowChoice(tuple(range(len(view.entries))), ())

    def on_turn_complete(self, new_history: Sequence[Value]) -> None:
        """Store the notification."""
        self.heard.append([extract_message_text(message) for message in new_history])
        if self.error:
            raise self.error


LISTENER = Listening()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """The strategy, installed as by a package."""
    LISTENER.__init__()  # type: ignore[misc]  # one object for the entry point
    point = EntryPoint("listening", f"{__name__}:LISTENER", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda group: [point])
    plugins.load_strategy_plugins.cache_clear()
    yield LISTENER
    plugins.load_strategy_plugins.cache_clear()


@pytest.fixture
def under_it(listener: Listening, now: datetime, demo_model: object) -> Listening:
    """An instance-wide policy that uses the strategy."""
    policy = create_policy(
        slug="p", name="P", values={"strategy": "listening"}, actor="system", now=now
    )
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    return listener


@pytest.fixture
def say(alice: User, chat: Chat, now: datetime, work: Work) -> Callable[..., Turn]:
    """Run a turn with this answer."""

    def saying(text: str, *answer: Any) -> Turn:
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        work(turn, list(answer) or [TextDelta(f"To {text}"), Finished("stop")])
        return turn

    return saying


Sent = list[tuple[str, dict[str, str]]]


def test_a_strategy_hears_of_each_complete_turn_in_the_background(
    under_it: Listening,
    say: Callable[..., Turn],
    sent: Sent,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        turns = [say("One"), say("Two")]
    assert under_it.heard == []
    told = [arguments for task, arguments in sent if task == queue.TELL_STRATEGY]
    assert told == [{"turn_id": str(turn.pk)} for turn in turns]
    for turn in turns:
        tell_strategy(turn_id=turn.pk, counter=COUNTER)
    assert under_it.heard == [["One", "To One"], ["One", "To One", "Two", "To Two"]]


def test_what_fails_in_it_is_logged_and_the_turn_stands(
    under_it: Listening, say: Callable[..., Turn], caplog: pytest.LogCaptureFixture
) -> None:
    under_it.error = RuntimeError("the words of a chat")
    turn = say("One")
    before = [list(rows.values()) for rows in (Turn.objects, Message.objects, AuditEvent.objects)]
    with caplog.at_level(logging.WARNING):
        tell_strategy(turn_id=turn.pk, counter=COUNTER)
    assert f"strategy listening failed after turn {turn.pk}: RuntimeError" in caplog.text
    assert "the words of a chat" not in caplog.text
    after = [list(rows.values()) for rows in (Turn.objects, Message.objects, AuditEvent.objects)]
    assert after == before
    assert say("Two").status == Turn.Status.COMPLETED


def test_a_failed_turn_is_not_complete(
    under_it: Listening,
    say: Callable[..., Turn],
    sent: Sent,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        say("One", TextDelta("Half"), ProviderError("provider_unavailable"))
    assert queue.TELL_STRATEGY not in [task for task, _ in sent]


def test_no_task_is_sent_for_a_strategy_that_ships(
    demo_model: object,
    say: Callable[..., Turn],
    sent: Sent,
    django_capture_on_commit_callbacks: Any,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        say("One")
    assert queue.TELL_STRATEGY not in [task for task, _ in sent]


def test_a_strategy_that_is_gone_by_then_is_not_missed(
    under_it: Listening, say: Callable[..., Turn], monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = say("One")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [])
    plugins.load_strategy_plugins.cache_clear()
    tell_strategy(turn_id=turn.pk, counter=COUNTER)
    Turn.objects.filter(pk=turn.pk).delete()
    tell_strategy(turn_id=turn.pk, counter=COUNTER)
    assert under_it.heard == []

"""A message that fits no prompt does not hide the conversation before it."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.models import Chat, Message, Receipt, Turn
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

FACT = "The gate code is 4711."
HUGE = "Minutes of a long meeting, word for word. " * 600
Say = Callable[..., Turn]


@pytest.fixture
def govern(now: datetime) -> Callable[..., None]:
    """Assign an instance-wide policy with a small prompt."""

    def governing(slug: str, **values: Any) -> None:
        wanted = {"reserve_tokens": 500, "references": False, **values}
        policy = create_policy(slug=slug, name=slug, values=wanted, actor="system", now=now)
        assign_policy(policy=policy, level="instance", actor="system", now=now)

    return governing


@pytest.fixture
def say(alice: User, chat: Chat, work: Callable[..., Any], now: datetime) -> Say:
    """Send a message, process it, and return its turn with the texts of the model request."""

    def saying(text: str) -> Any:
        chat.refresh_from_db()
        turn = start_turn(user=alice, chat=chat, text=text, now=now).turn
        worker = work(turn, [TextDelta("Noted."), Finished("stop")])
        turn.refresh_from_db()
        requests = worker.scripted.requests
        return turn, "\n".join(m.content for m in requests[0].messages) if requests else ""

    return saying


@pytest.mark.parametrize(
    "values",
    [
        {"strategy": "sliding_window"},
        {"strategy": "simple", "max_chars_per_message": None},
        {"strategy": "dynamic_summary", "summary_max_tokens": 800},
    ],
    ids=lambda values: values["strategy"],
)
def test_a_refused_message_hides_nothing(
    govern: Callable[..., None], say: Callable[..., Any], values: dict[str, Any]
) -> None:
    govern("small", token_budget=2_500, **values)
    say(FACT)
    refused, _ = say(HUGE)
    assert refused.error_code == "message_too_large"
    answered, sent = say("Repeat the gate code.")
    assert answered.status == Turn.Status.COMPLETED
    assert FACT in sent
    assert "Minutes of a long meeting" not in sent
    seq = Message.objects.get(turn=refused, role="user").seq
    assert [seq, seq, "budget"] in Receipt.objects.get(turn=answered).left_out


def test_a_smaller_prompt_leaves_out_only_what_it_cannot_hold(
    govern: Callable[..., None], say: Callable[..., Any]
) -> None:
    """Many large messages do not end the loading of the history either."""
    govern("large", strategy="sliding_window", token_budget=100_000)
    say(FACT)
    for number in range(6):
        answered, _ = say(f"Part {number}. {HUGE}")
        assert answered.status == Turn.Status.COMPLETED
    govern("small", strategy="sliding_window", token_budget=2_500)
    answered, sent = say("Repeat the gate code.")
    assert answered.status == Turn.Status.COMPLETED
    assert FACT in sent
    assert "Part 5" not in sent

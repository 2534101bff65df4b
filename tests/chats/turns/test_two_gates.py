"""Context overflow: one smaller retry, one reply, and a token limit stored for the model."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from chats.models import Chat, Message, Receipt, Turn
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from chats.turns import overflow_learning
from chats.turns.start import start_turn
from contextpolicy.models import AuditEvent, ModelSpec
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy

Work = Callable[..., Any]
ANSWER = [TextDelta("Here."), UsageReport(500, 10, 0, 0), Finished("stop")]


@pytest.fixture
def talked(alice: User, chat: Chat, now: datetime, work: Work) -> Chat:
    """A chat with about 8,000 tokens that can leave the prompt."""
    for number in range(8):
        turn = start_turn(user=alice, chat=chat, text=f"Question {number}", now=now).turn
        work(turn, [TextDelta("So it goes on. " * 270), Finished("stop")])
    return chat


def ask(user: User, chat: Chat, now: datetime) -> Turn:
    """Send another question."""
    return start_turn(user=user, chat=chat, text="And now?", now=now).turn


def replies(turn: Turn) -> list[str]:
    """Return the texts of the turn's assistant messages."""
    return [m.text for m in Message.objects.filter(turn=turn, role="assistant")]


@pytest.mark.requirement("S4.3")
@pytest.mark.parametrize(
    "overflow",
    [
        ProviderError("context_overflow", status=400, limit=6000, actual=9000),
        ProviderError("context_overflow", status=413),
        ProviderError("context_overflow", status=429, limit=6000, actual=8000),
        ProviderError("context_overflow"),
    ],
    ids=["400", "413", "429-TPM", "200-stream"],
)
def test_inv_49_each_kind_of_overflow_leads_to_one_smaller_call_and_one_reply(
    overflow: ProviderError, alice: User, talked: Chat, now: datetime, work: Work
) -> None:
    turn = ask(alice, talked, now)
    worker = work(turn, [overflow], ANSWER)
    assert (turn.status, replies(turn)) == ("completed", ["Here."])
    first, second = worker.scripted.requests
    assert len(str(second.messages)) < len(str(first.messages))
    codes = Receipt.objects.filter(turn=turn).order_by("call").values_list("error_code", flat=True)
    assert list(codes) == ["context_overflow", ""]


def test_inv_49_a_bill_above_the_window_is_an_overflow(
    alice: User, talked: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(context_window=16_000)
    turn = ask(alice, talked, now)
    cut = [TextDelta("Half blind."), UsageReport(20_000, 10, 0, 0), Finished("stop")]
    worker = work(turn, cut, ANSWER)
    assert (turn.status, replies(turn)) == ("completed", ["Here."])
    assert turn.usage["input"] == 500
    said = [(frame.kind, frame.offset, frame.text) for frame in worker.frames]
    assert said == [
        ("step", 0, ""),
        ("text", 0, "Half blind."),
        ("anew", 0, ""),
        ("text", 0, "Here."),
        ("end", 0, ""),
    ]
    demo_model.refresh_from_db()
    assert demo_model.learned_window is not None
    assert demo_model.learned_window < 16_000


def test_inv_49_a_second_bill_above_the_window_is_answered_all_the_same(
    alice: User, talked: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(context_window=16_000)
    turn = ask(alice, talked, now)
    cut = [TextDelta("Half blind."), UsageReport(20_000, 10, 0, 0), Finished("stop")]
    worker = work(turn, cut, cut, cut)
    assert len(worker.scripted.requests) == 2
    assert replies(turn) == ["Half blind."]


def test_inv_49_what_cannot_shrink_ends_with_the_overflow(
    alice: User, chat: Chat, now: datetime, work: Work
) -> None:
    turn = start_turn(user=alice, chat=chat, text="word " * 6000, now=now).turn
    overflow = ProviderError("context_overflow", status=400, limit=2000, actual=8000)
    worker = work(turn, [overflow], ANSWER)
    assert len(worker.scripted.requests) == 1
    assert (turn.status, turn.error_code, replies(turn)) == ("failed", "context_overflow", [])


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.0, 1.4, 2.0])
@pytest.mark.parametrize("named", [{}, {"limit": 6000, "actual": 9000}], ids=["no", "numbers"])
def test_inv_49_a_smaller_prompt_is_smaller_in_the_models_own_tokens(
    named: dict[str, int],
    factor: float,
    alice: User,
    talked: Chat,
    now: datetime,
    work: Work,
    demo_model: ModelSpec,
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(calibration=factor)
    turn = ask(alice, talked, now)
    work(turn, [ProviderError("context_overflow", **named)], ANSWER)  # type: ignore[arg-type]  # numbers only
    first, second = Receipt.objects.filter(turn=turn).order_by("call")
    aim = 0.9 * (named["limit"] / named["actual"] if named else 1)
    limit = second.budget["prompt_limit"]
    assert limit == pytest.approx(first.prompt_tokens * factor * aim, rel=0.01)
    assert second.prompt_tokens * factor <= limit


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.4])
def test_inv_49_what_cannot_shrink_is_not_sent_twice_whatever_the_model_counts(
    factor: float, alice: User, chat: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    ModelSpec.objects.filter(pk=demo_model.pk).update(calibration=factor)
    turn = start_turn(user=alice, chat=chat, text="word " * 30, now=now).turn
    worker = work(turn, [ProviderError("context_overflow", status=413)], ANSWER)
    assert len(worker.scripted.requests) == 1
    assert (turn.status, turn.error_code) == ("failed", "context_overflow")


def test_inv_50_a_rate_limit_is_no_overflow(
    alice: User, talked: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    turn = ask(alice, talked, now)
    limited = ProviderError("provider_rate_limited", status=429, retry_after=0)
    worker = work(turn, [limited], ANSWER)
    first, second = worker.scripted.requests
    assert first.messages == second.messages
    demo_model.refresh_from_db()
    assert demo_model.learned_window is None


def test_inv_51_a_learned_limit_is_stored_used_and_can_be_forgotten(
    alice: User, talked: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    overflow = ProviderError("context_overflow", status=400, limit=9000, actual=12_000)
    work(ask(alice, talked, now), [overflow], ANSWER)
    demo_model.refresh_from_db()
    assert demo_model.window == demo_model.learned_window == 9000
    turn = ask(alice, talked, now)
    worker = work(turn, ANSWER)
    assert len(worker.scripted.requests) == 1
    assert Receipt.objects.get(turn=turn).budget["prompt_limit"] < 9000
    event = AuditEvent.objects.get(type="model.limit_learned")
    assert event.data == {"model": "demo", "from": 128_000, "to": 9000}
    for _ in range(2):
        forgotten = overflow_learning.reset_learned_window(
            model=demo_model, actor="user:1", now=now
        )
    assert forgotten.window == 128_000
    assert AuditEvent.objects.filter(type="model.limit_reset").count() == 1


@pytest.mark.parametrize("limit", [999, 128_000, 200_000])
def test_a_limit_that_says_nothing_new_is_not_learned(
    limit: int, demo_model: ModelSpec, now: datetime
) -> None:
    assert (
        overflow_learning.store_learned_window(model_id=demo_model.pk, limit=limit, now=now)
        is False
    )
    assert overflow_learning.store_learned_window(model_id=0, limit=4000, now=now) is False
    demo_model.refresh_from_db()
    assert demo_model.learned_window is None


def test_inv_28_a_smaller_model_is_heeded_before_the_next_reply(
    alice: User, talked: Chat, now: datetime, work: Work, demo_model: ModelSpec
) -> None:
    small = ModelSpec.objects.create(
        slug="small", provider="demo", name="small", context_window=5000
    )
    Chat.objects.filter(pk=talked.pk).update(model=small)
    turn = ask(alice, talked, now)
    work(turn, ANSWER)
    receipt = Receipt.objects.get(turn=turn)
    assert receipt.prompt_tokens <= receipt.budget["prompt_limit"] < 5000


@pytest.mark.requirement("S4.3", by="user")
def test_who_asks_on_the_page_gets_one_reply_after_both_gates(
    alice: User, talked: Chat, now: datetime, work: Work
) -> None:
    values = {"strategy": "sliding_window", "token_budget": 8_000, "reserve_tokens": 1_000}
    policy = create_policy(slug="narrow", name="Narrow", values=values, actor="system", now=now)
    assign_policy(policy=policy, level="instance", actor="system", now=now)
    page = Client()
    page.force_login(alice)
    address = f"/chats/{talked.pk}/"

    page.post(f"{address}messages", {"text": "And now?"})
    turn = Turn.objects.latest("accepted")
    refused = ProviderError("context_overflow", status=400, limit=6000, actual=9000)
    first, second = work(turn, [refused], ANSWER).scripted.requests

    # The estimate dropped some of the sixteen messages before the call. The refusal dropped more.
    assert len(second.messages) < len(first.messages) < 17
    html = page.get(address).content.decode()
    assert html.count("Here.") == 1
    assert html.index("And now?") < html.index("Here.")
    receipt = page.get(f"{address}turns/{turn.pk}/receipt").content.decode()
    assert receipt.count('data-note="prompt-hash"') == 2

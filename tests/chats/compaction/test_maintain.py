"""Background compaction: prepare, check, publish. A failed attempt changes nothing."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.compaction import maintain, perform
from chats.compaction.perform import Written
from chats.compaction.publish import publish_prepared
from chats.models import Chat, Compaction, Message, Receipt
from chats.prompt import model_choice
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import AuditEvent, PolicyVersion
from tests.support.chat_summaries import SENTENCE

Work = Callable[..., Any]


def test_old_messages_are_folded_and_stay_as_they_were(
    long_chat: Chat, counter: ApproximateCounter, now: datetime
) -> None:
    before = list(Message.objects.order_by("seq").values_list("seq", "parts"))
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    row = Compaction.objects.exclude(kind="window").get()
    assert row.status in {"prepared", "published"}
    assert (row.from_seq, row.source_count) == (1, row.to_seq)
    assert row.tokens_after < row.tokens_before
    assert "4711" in row.text
    assert any(section["bullets"] for section in row.sections)
    assert list(Message.objects.order_by("seq").values_list("seq", "parts")) == before


def test_the_next_prompt_has_the_summary_instead_of_its_sources(
    alice: User, long_chat: Chat, counter: ApproximateCounter, now: datetime, work: Work
) -> None:
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    branch = long_chat.active_branch
    assert branch is not None
    publish_prepared(branch_id=branch.pk, now=now)
    turn = start_turn(user=alice, chat=long_chat, text="And now?", now=now).turn
    worker = work(turn)
    row = Compaction.objects.get(status="published")
    receipt = Receipt.objects.get(turn=turn)
    origins = [segment[0] for segment in receipt.segments]
    assert origins[:2] == ["tools", "summary"]
    assert [1, row.to_seq, "covered"] in receipt.left_out
    first = worker.scripted.requests[0].messages[0]
    assert first.role == "user"
    assert row.text in first.content


def test_a_second_delivery_finds_the_place_taken(
    long_chat: Chat, counter: ApproximateCounter, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "should_publish_now", lambda claimed: False)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    assert Compaction.objects.filter(kind="summary").count() == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(Written(text=""), "empty", id="empty"),
        pytest.param(Written(text="I'm sorry, I can't."), "refusal", id="refusal"),
        pytest.param(Written(text="Some words", finish="length"), "cut_by_length", id="cut"),
        pytest.param(Written(text="", has_reasoning=True), "reasoning_only", id="reasoning"),
    ],
)
def test_a_bad_summary_is_rejected_and_nothing_changes(
    answer: Written,
    reason: str,
    long_chat: Chat,
    counter: ApproximateCounter,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    branch = long_chat.active_branch
    assert branch is not None
    branch.refresh_from_db()
    in_force = branch.active_compaction_id
    monkeypatch.setattr(perform, "build_extractive_summary", lambda *a, **k: answer.text)
    monkeypatch.setattr(perform, "Written", lambda **_: answer)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    row = Compaction.objects.get(kind="summary")
    assert row.status == "rejected"
    assert reason in row.reason
    branch.refresh_from_db()
    assert branch.active_compaction_id == in_force
    assert AuditEvent.objects.filter(type="compaction.rejected").exists()


def test_a_failed_call_leaves_a_row_with_the_reason(
    long_chat: Chat, counter: ApproximateCounter, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise ProviderError("provider_unavailable")

    monkeypatch.setattr(maintain, "perform_compaction", fail)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    row = Compaction.objects.get(kind="summary")
    assert (row.status, row.reason) == ("failed", "provider_unavailable")


def test_after_three_failures_it_pauses(
    long_chat: Chat, counter: ApproximateCounter, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise ProviderError("provider_unavailable")

    monkeypatch.setattr(maintain, "perform_compaction", fail)
    for _ in range(5):
        maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    assert Compaction.objects.filter(kind="summary").count() == 3


def test_a_summary_of_an_older_base_is_overtaken(
    long_chat: Chat, counter: ApproximateCounter, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain, "should_publish_now", lambda claimed: False)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=counter, now=now)
    branch = long_chat.active_branch
    assert branch is not None
    branch.refresh_from_db()
    branch.context_revision += 1
    branch.save()
    assert publish_prepared(branch_id=branch.pk, now=now) is False
    assert Compaction.objects.get(kind="summary").status == "overtaken"


def test_without_a_prepared_summary_the_window_answers_now(
    alice: User, chat: Chat, now: datetime, work: Work, small_policy: PolicyVersion
) -> None:
    for number in range(12):
        turn = start_turn(
            user=alice, chat=chat, text=f"Question {number}. {SENTENCE}", now=now
        ).turn
        work(turn, [TextDelta(SENTENCE * 6), Finished("stop")])
        assert turn.status == "completed"
        limit = PolicyValues(token_budget=2400, reserve_tokens=400)
        receipt = Receipt.objects.get(turn=turn)
        assert receipt.prompt_tokens <= limit.token_budget - limit.reserve_tokens
    assert Compaction.objects.filter(kind="window", status="published").exists()
    assert AuditEvent.objects.filter(type="window.moved").exists()


def test_meter_and_prompt_agree_on_the_policy(chat: Chat, small_policy: PolicyVersion) -> None:
    assert model_choice.choose_chat_model(chat=chat).effective.label == "Small v1"

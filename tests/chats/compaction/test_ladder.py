"""The fallback ladder after a failed attempt: the next rung as a new row, pause, window."""

import hashlib
import json
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from pytest_django.fixtures import Settings

from chats.compaction import attempts as attempt_specs
from chats.compaction import claims, maintain, pauses, perform, plan, publish
from chats.compaction.people import controls
from chats.compaction.report import skip_reasons
from chats.ground.commitments import is_commitment_valid
from chats.ground.leases import LeaseLost
from chats.models import Chat, Compaction, Message, QuotaUsage, Turn
from chats.prompt import model_choice
from chats.providers.base import Finished, ProviderError, TextDelta, UsageReport
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.summaries.compaction_plan import NotNeeded
from contextpolicy.engine.summaries.prompts import count_request_tokens
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    Fold,
    Say,
    SetPolicy,
    Writes,
    add_minutes,
    find_active_summary,
    get_summary_prompt,
    reload_branch,
    script_summary,
)
from tests.support.scripted_worker import ScriptedProvider
from tests.support.summary_attempts import REJECTED_SUMMARIES, SUMMARY_IN_ONE_REQUEST

COUNTER = ApproximateCounter()


@pytest.fixture
def by_model(set_policy: SetPolicy, writer: ModelSpec, long_chat: Chat) -> Chat:
    """A long chat whose summaries a model writes."""
    set_policy(summarization_model=writer.slug, **SUMMARY_IN_ONE_REQUEST)
    return long_chat


def attempts() -> list[tuple[str, str, str]]:
    """Return (rung, status, reason) of every summary, in order."""
    rows = Compaction.objects.filter(kind="summary").order_by("created_at", "attempt")
    return list(rows.values_list("rung", "status", "reason"))


def originals() -> str:
    """Return a hash of all messages."""
    rows = Message.objects.order_by("pk").values_list("pk", "seq", "parts", "token_count")
    return hashlib.sha256(repr(list(rows)).encode()).hexdigest()


@pytest.mark.parametrize("kind", sorted(REJECTED_SUMMARIES))
def test_inv_30_a_bad_summary_is_rejected_and_the_next_rung_goes_on(
    kind: str, by_model: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes(REJECTED_SUMMARIES[kind], REJECTED_SUMMARIES[kind], REJECTED_SUMMARIES[kind])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    found = attempts()
    assert found[0][:2] == ("model", "rejected")
    assert kind in found[0][2]
    assert found[-1][0] == "extractive"
    assert found[-1][1] in {"prepared", "published"}
    assert len(provider.requests) == len(found) - 1


def test_inv_31_a_rejection_changes_nothing_but_its_record(
    by_model: Chat, writes: Writes, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (originals(), reload_branch(by_model).active_compaction_id)
    writes(script_summary("I'm sorry, but no."), script_summary("I'm sorry, but no."))
    monkeypatch.setattr(perform, "build_extractive_summary", lambda *a, **k: "")
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert (originals(), reload_branch(by_model).active_compaction_id) == before
    row = Compaction.objects.filter(kind="summary", rung="model").get()
    assert (row.status, row.usage["input"]) == ("rejected", 1000)
    assert row.cost is not None


def test_usage_counts_what_the_provider_wrote_to_its_cache(
    by_model: Chat, writes: Writes, writer: ModelSpec, now: datetime
) -> None:
    writer.cached_price, writer.written_price = Decimal("0.2"), Decimal("2.5")
    writer.save()
    writes([TextDelta(GOOD_SUMMARY), UsageReport(1000, 100, 200, 300), Finished("stop")])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.filter(kind="summary", rung="model").get()
    assert row.usage == {"input": 1000, "output": 100, "cached": 200, "written": 300}
    # Each part of the input has a price: 500 at 2, 200 at 0.2, 300 at 2.5, and output 100 at 10.
    assert row.cost == Decimal("0.00279")


def test_the_cost_is_unknown_if_one_of_several_calls_reported_no_usage(
    by_model: Chat, writes: Writes, now: datetime, writer: ModelSpec
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_500)
    said = [TextDelta(GOOD_SUMMARY), UsageReport(100, 10, 20, 30), Finished("stop")]
    writes([TextDelta(GOOD_SUMMARY), Finished("stop")], *[said] * 20)
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.filter(kind="summary").order_by("attempt")[0]
    assert row.usage["input"] >= 100
    assert row.cost is None


def test_usage_of_several_calls_adds_up(
    by_model: Chat, writes: Writes, now: datetime, writer: ModelSpec
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_500)
    said = [TextDelta(GOOD_SUMMARY), UsageReport(100, 10, 20, 30), Finished("stop")]
    provider = writes(*[said] * 20)
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.filter(kind="summary").order_by("attempt")[0]
    calls = row.usage["input"] // 100
    assert 1 < calls <= len(provider.requests)
    assert (row.usage["cached"], row.usage["written"]) == (20 * calls, 30 * calls)


def test_a_summariser_without_end_is_cut_off(
    by_model: Chat, writes: Writes, now: datetime, settings: Settings
) -> None:
    settings.REPLY_CHARS = 5_000
    endless = [TextDelta("word " * 500)] * 40
    writes([*endless, Finished("stop")], [*endless, Finished("stop")])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.filter(kind="summary", rung="model").get()
    assert row.status == "rejected"
    assert "cut_by_length" in row.reason
    assert len(row.text) == 5_000


def test_a_summary_that_a_content_filter_cut_is_not_used(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes([TextDelta(GOOD_SUMMARY), ProviderError("content_filtered")])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert attempts()[0] == ("model", "failed", "content_filtered")
    assert [rung for rung, _, _ in attempts()] == ["model", "extractive"]
    assert len(provider.requests) == 1
    row = Compaction.objects.filter(rung="model").get()
    assert (row.text, row.published_at) == ("", None)


def test_inv_32_error_text_is_never_in_force(by_model: Chat, writes: Writes, fold: Fold) -> None:
    writes(REJECTED_SUMMARIES["error_text"])
    assert "Rate limit" not in fold(by_model).text


def test_what_was_lost_is_named_in_a_second_try(
    long_chat: Chat, set_policy: SetPolicy, writer: ModelSpec, writes: Writes, now: datetime
) -> None:
    set_policy(summarization_model=writer.slug, pinned_kinds=["url"], **SUMMARY_IN_ONE_REQUEST)
    with_url = GOOD_SUMMARY.replace("Oslo", "Oslo, see https://a.example/4711")
    provider = writes(script_summary(), script_summary(with_url))
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    assert attempts()[0][:2] == ("model", "rejected")
    assert attempts()[1][0] == "model_again"
    assert attempts()[1][1] in {"prepared", "published"}
    assert (
        "https://a.example/4711"
        in get_summary_prompt(provider.requests[1]).split("lost these facts")[1]
    )


def test_an_invented_url_is_named_in_a_second_try(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes(REJECTED_SUMMARIES["unknown_url"], script_summary())
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert [(rung, status) for rung, status, _ in attempts()] == [
        ("model", "rejected"),
        ("model_again", "prepared"),
    ]
    first, second = (get_summary_prompt(request) for request in provider.requests)
    assert second.split("Leave them out:\n")[1].startswith("- https://evil.example/x\n")
    assert first == second.replace(
        "Your first attempt had these URLs, which are in no message. Leave them out:\n"
        "- https://evil.example/x\n\n",
        "",
    )


def test_what_was_too_much_is_tried_with_fewer_sources(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    writes([ProviderError("context_overflow")], script_summary())
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    first, second = Compaction.objects.filter(kind="summary").order_by("attempt")
    assert (first.reason, second.rung) == ("context_overflow", "smaller_source")
    assert second.to_seq < first.to_seq
    assert second.status in {"prepared", "published"}


def test_inv_03_more_than_the_summariser_reads_is_read_in_chunks_and_merged(
    by_model: Chat, writer: ModelSpec, writes: Writes, now: datetime
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_500)
    provider = writes(*[script_summary()] * 12)
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.get(kind="summary")
    assert row.status in {"prepared", "published"}
    requests = [get_summary_prompt(request) for request in provider.requests]
    assert len(requests) >= 3
    for seq in range(1, row.to_seq + 1):
        holders = [text for text in requests if f'<message number="{seq}"' in text]
        assert len(holders) == 1, seq
    assert "The summary of part 1 of" in requests[-1]
    assert row.usage["input"] == 1000 * len(requests)


def test_inv_03_a_part_that_is_unsound_ends_the_attempt(
    by_model: Chat, writer: ModelSpec, writes: Writes, now: datetime
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_500)
    provider = writes(script_summary(), script_summary(GOOD_SUMMARY, "length"))
    provider.scripts += [[ProviderError("provider_unavailable")]] * 3
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert attempts()[0][:2] == ("model", "rejected")
    assert "cut_by_length" in attempts()[0][2]


def test_inv_39_a_stale_worker_neither_stores_nor_goes_on(
    by_model: Chat, writer: ModelSpec, writes: Writes, now: datetime
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=1_500)
    writes(*[script_summary()] * 12)
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    Compaction.objects.filter(pk=claimed.row.pk).update(lease_token="another's")
    with pytest.raises(LeaseLost):
        maintain.run_summary_attempt(claimed, counter=COUNTER, clock=lambda: now)
    with pytest.raises(LeaseLost):
        publish.mark_attempt_failed(claimed=claimed, reason="late", now=now)
    claimed.row.refresh_from_db()
    assert (claimed.row.status, claimed.row.text) == ("preparing", "")


def test_inv_38_one_preparation_of_a_branch_at_a_time(by_model: Chat, now: datetime) -> None:
    assert claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now) is not None
    assert claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now) is None
    assert skip_reasons.explain_skipped_compaction(last_turn(by_model)).code == "in_the_making"
    assert Compaction.objects.filter(kind="summary").count() == 1


def last_turn(chat: Chat) -> Turn:
    """Return the newest turn of the chat."""
    turn = Turn.objects.filter(branch__chat=chat).order_by("-accepted").first()
    assert turn is not None
    return turn


def test_inv_41_a_second_delivery_has_the_same_outcome(long_chat: Chat, now: datetime) -> None:
    for _ in range(3):
        maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    assert Compaction.objects.filter(kind="summary").count() == 1


def test_inv_42_a_lost_worker_leaves_a_failed_attempt_and_the_next_one_works(
    by_model: Chat, writes: Writes, fold: Fold, now: datetime
) -> None:
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    before = reload_branch(by_model).active_compaction_id
    assert maintain.sweep_summaries(now=now) == 0
    past = now - timedelta(days=365)
    Compaction.objects.filter(pk=claimed.row.pk).update(lease_until=past)
    assert maintain.sweep_summaries(now=now) == 1
    claimed.row.refresh_from_db()
    assert (claimed.row.status, claimed.row.reason) == ("failed", "worker_lost")
    assert reload_branch(by_model).active_compaction_id == before
    writes(script_summary())
    assert fold(by_model, at=add_minutes(now)).rung == "model"


def test_inv_69_half_a_summary_is_never_in_force(by_model: Chat, now: datetime) -> None:
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    Compaction.objects.filter(pk=claimed.row.pk).update(text="## Facts\n- half of")
    assert publish.publish_prepared(branch_id=claimed.row.branch_id, now=now) is False
    assert find_active_summary(by_model) is None


def test_inv_44_no_transaction_is_open_while_a_model_writes(
    by_model: Chat, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths: list[int] = []
    outer = len(connection.savepoint_ids)

    def look(*_args: Any, **_kwargs: Any) -> None:
        depths.append(len(connection.savepoint_ids) - outer)
        raise ProviderError("provider_unavailable")

    with transaction.atomic():
        outer = len(connection.savepoint_ids)
        monkeypatch.setattr(maintain, "perform_compaction", look)
        maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert set(depths) == {0}


def test_inv_45_a_call_that_takes_too_long_is_a_failure_that_changes_nothing(
    by_model: Chat, writes: Writes, now: datetime, settings: Any
) -> None:
    async def wait(_worker: Any) -> None:
        raise TimeoutError

    settings.SUMMARY_SECONDS = 1
    before = originals()
    writes([TextDelta("## Facts"), wait])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert attempts()[0] == ("model", "failed", "provider_timeout")
    assert originals() == before


def test_inv_26_failures_in_a_row_leave_the_model_alone_until_the_pause_is_over(
    by_model: Chat, writes: Writes, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = [ProviderError("provider_unavailable")]
    provider = writes(*[down] * 9)
    monkeypatch.setattr(perform, "build_extractive_summary", lambda *a, **k: GOOD_SUMMARY * 90)
    for minute in range(6):
        maintain.maintain_chat_context(
            chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, minute)
        )
    tried = len(provider.requests)
    assert tried <= 3
    found = skip_reasons.get_active_pauses(chat=by_model, now=add_minutes(now, 6))
    assert found.breaker.is_open
    assert found.breaker.retry_at is not None
    assert found.paused_at is None
    assert skip_reasons.explain_skipped_compaction(last_turn(by_model)).code == "breaker_open"
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, 120))
    assert len(provider.requests) == tried + 1


def test_inv_26_a_breaker_can_be_reset(
    by_model: Chat, writes: Writes, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = [ProviderError("provider_unavailable")]
    provider = writes(*[down] * 9)
    monkeypatch.setattr(perform, "build_extractive_summary", lambda *a, **k: "")
    for minute in range(6):
        maintain.maintain_chat_context(
            chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, minute)
        )
    tried = len(provider.requests)
    pauses.reset_breaker(chat=by_model, actor="user:1", now=add_minutes(now, 7))
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, 8))
    assert len(provider.requests) == tried + 1
    assert AuditEvent.objects.filter(type="compaction.breaker_reset").exists()


def test_a_used_up_quota_calls_no_model_and_does_not_open_the_breaker(
    by_model: Chat, writes: Writes, writer: ModelSpec, set_policy: SetPolicy, now: datetime
) -> None:
    limit = {"tokens_per_day": 10}
    set_policy(summarization_model=writer.slug, **SUMMARY_IN_ONE_REQUEST, **limit)
    QuotaUsage.objects.create(owner=by_model.owner, day=now.date(), tokens=10)
    provider = writes()
    for minute in range(6):
        maintain.maintain_chat_context(
            chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, minute)
        )
    assert provider.requests == []
    assert ("model", "failed", "quota_exceeded") in attempts()
    assert any(rung == "extractive" and status != "failed" for rung, status, _ in attempts())
    found = skip_reasons.get_active_pauses(chat=by_model, now=add_minutes(now, 6))
    assert not found.breaker.is_open


def test_failures_under_another_policy_do_not_count(
    long_chat: Chat, set_policy: SetPolicy, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perform, "build_extractive_summary", lambda *a, **k: "")
    for minute in range(5):
        maintain.maintain_chat_context(
            chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now, minute)
        )
    assert Compaction.objects.filter(kind="summary").count() == 3
    set_policy(summary_max_tokens=390)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now, 6))
    assert Compaction.objects.filter(kind="summary").count() == 4


def test_inv_24_after_a_success_the_next_one_waits_for_growth(
    long_chat: Chat, fold: Fold, say: Say, set_policy: SetPolicy
) -> None:
    row = fold(long_chat)
    say(long_chat, "And then?", "It was sent on the same day. " * 12)
    branch = reload_branch(long_chat)
    found = plan.plan_for(
        branch,
        choice=model_choice.choose_chat_model(chat=branch.chat),
        attempt=attempt_specs.AttemptSpec(asked=attempt_specs.CompactionRequest(by="user:1")),
        counter=COUNTER,
    )
    assert not isinstance(found, NotNeeded)
    choice = model_choice.choose_chat_model(chat=branch.chat)
    grown = replace(found, trigger="prepare", tokens_before=row.tokens_after + 200)
    assert plan.is_worth_it(branch, choice=choice, plan=grown)
    same = replace(grown, tokens_before=row.tokens_after + 10)
    assert not plan.is_worth_it(branch, choice=choice, plan=same)
    set_policy(summary_max_tokens=390)
    other = model_choice.choose_chat_model(chat=branch.chat)
    assert plan.is_worth_it(branch, choice=other, plan=same)


def test_inv_27_without_summaries_no_summariser_is_called(
    long_chat: Chat, set_policy: SetPolicy, writer: ModelSpec, writes: Writes, now: datetime
) -> None:
    set_policy(strategy="sliding_window", summarization_model=writer.slug)
    provider = writes(script_summary())
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    branch = reload_branch(long_chat)
    branch.asked = {"by": "user:1", "focus": "", "model": writer.slug, "compaction": ""}
    branch.asked_at = now
    branch.save()
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    assert provider.requests == []
    assert not Compaction.objects.filter(kind="summary").exists()
    assert AuditEvent.objects.get(type="compaction.skipped").data["reason"] == "strategy"


def test_inv_62_a_second_request_on_an_unchanged_chat_is_a_recorded_no_op(
    by_model: Chat, writes: Writes, fold: Fold, now: datetime
) -> None:
    provider = writes(script_summary())
    fold(by_model)
    branch = reload_branch(by_model)
    asked = {"by": "user:1", "focus": "", "model": None, "compaction": ""}
    for minute in (1, 2, 3):
        branch.asked, branch.asked_at = asked, now
        branch.save(update_fields=["asked", "asked_at"])
        maintain.maintain_chat_context(
            chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, minute)
        )
    assert AuditEvent.objects.filter(type="compaction.skipped").exists()
    count = len(provider.requests)
    branch.asked, branch.asked_at = asked, now
    branch.save(update_fields=["asked", "asked_at"])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, 9))
    assert len(provider.requests) == count


def test_inv_52_each_attempt_is_recorded_with_its_numbers(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    writes(script_summary())
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.get(kind="summary")
    assert (row.asked_by, row.trigger, row.model_name) == ("worker", "prepare", "writer")
    assert row.effective_policy_id
    assert len(row.source_digest) == 64
    assert is_commitment_valid(row.text_commitment, row.text, salt=row.salt)
    assert [len(committed) for committed in row.calls] == [64]
    assert row.tokens_before > row.tokens_after > 0
    assert row.usage == {"input": 1000, "output": 100, "cached": 0, "written": 0}
    assert row.cost == (1000 * 2 + 100 * 10) / 1_000_000 or float(row.cost or 0) == 0.003
    assert row.summary_tokens == COUNTER.count(row.text)
    assert row.duration_ms is not None
    assert not any(turn.usage.get("input") == 1000 for turn in Turn.objects.all())


def test_each_line_names_its_sources_and_says_when_it_has_none(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    text = (
        GOOD_SUMMARY.replace("[#1, #2]", "[#1, #999]")
        + "- Somebody paid for the order 4711 [#998]\n"
    )
    writes(script_summary(text))
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    row = Compaction.objects.get(kind="summary")
    bullets = [bullet for section in row.sections for bullet in section["bullets"]]
    first = Message.objects.get(branch=row.branch, seq=1)
    assert bullets[0]["sources"] == [1]
    assert bullets[0]["source_ids"] == [str(first.pk)]
    assert bullets[0]["invalid"] == [999]
    assert [bullet["unsupported"] for bullet in bullets] == [False, True]


def test_inv_63_each_turn_says_why_it_was_followed_by_no_summary(
    chat: Chat, set_policy: SetPolicy, say: Say, now: datetime
) -> None:
    set_policy()
    turn = say(chat, "Hello")
    assert skip_reasons.explain_skipped_compaction(turn).code == "below_threshold"
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=now)
    turn.refresh_from_db()
    found = skip_reasons.explain_skipped_compaction(turn)
    assert (found.code, found.was_started) == ("below_threshold", False)
    assert found.sentence == skip_reasons.SENTENCES["below_threshold"]
    assert found.tokens > 0


def test_inv_43_a_reply_is_there_while_the_summary_is_being_written(
    by_model: Chat, say: Say, now: datetime
) -> None:
    assert claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now) is not None
    for _ in range(4):
        assert say(by_model, "And?", "So. " * 60).status == "completed"
    assert Compaction.objects.get(kind="summary").status == "preparing"


def test_inv_58_a_policy_change_leaves_old_summaries_under_their_own(
    long_chat: Chat, set_policy: SetPolicy, fold: Fold
) -> None:
    row = fold(long_chat)
    before = row.effective_policy_id
    set_policy(summary_max_tokens=200)
    row.refresh_from_db()
    assert row.effective_policy_id == before
    assert find_active_summary(long_chat) == row


def test_a_policy_with_insufficient_room_says_so_at_the_row(
    long_chat: Chat, set_policy: SetPolicy, fold: Fold
) -> None:
    set_policy(keep_last_messages=8)
    row = fold(long_chat)
    low = 0.45 * 2000
    assert (row.reason == "insufficient") is (row.tokens_after > low)


# A request of this size fits a few messages, or two summaries to merge.
NARROW = 700


def kinds_of(provider: ScriptedProvider) -> list[str]:
    """Return for each request whether it summarises a chunk or merges summaries."""
    texts = [get_summary_prompt(request) for request in provider.requests]
    return ["chunk" if "<transcript>" in text else "merge" for text in texts]


def test_many_chunks_are_merged_round_by_round_under_a_renewed_claim(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes(*[script_summary()] * 60)
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    booked: list[str] = []
    small = replace(claimed, readable=NARROW)
    found = perform.perform_compaction(
        small, counter=COUNTER, renew=lambda prompt, _: booked.append(prompt)
    )
    assert found.reasons == ()
    chunks = kinds_of(provider).count("chunk")
    assert set(kinds_of(provider)[:chunks]) == {"chunk"}
    assert chunks >= 3
    assert kinds_of(provider).count("merge") >= chunks - 1
    assert len(booked) == len(provider.requests)


def test_an_unsound_merge_ends_the_attempt(by_model: Chat, writes: Writes, now: datetime) -> None:
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    small = replace(claimed, readable=NARROW)
    provider = writes(*[script_summary()] * 60)
    perform.perform_compaction(small, counter=COUNTER, renew=lambda *_: None)
    chunks = kinds_of(provider).count("chunk")
    provider = writes(*[script_summary()] * chunks, script_summary(""), *[script_summary()] * 60)
    found = perform.perform_compaction(small, counter=COUNTER, renew=lambda *_: None)
    assert "empty" in found.reasons
    assert len(provider.requests) == chunks + 1


@pytest.mark.parametrize("window", [None, 1_500, 1_300])
def test_no_request_for_a_summary_is_over_the_limit_of_model_and_policy(
    window: int | None, by_model: Chat, writer: ModelSpec, writes: Writes, say: Say, now: datetime
) -> None:
    say(by_model, "你" * 1_500, "Short.")
    say(by_model, "And now?", "<pinned>" * 200)
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=window)
    provider = writes(*[script_summary()] * 40)
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    taken = [
        count_request_tokens(request.messages, counter=COUNTER) for request in provider.requests
    ]
    assert len(taken) > 1
    assert max(taken) <= min(window or 4_000, 4_000) - 400
    assert attempts()[-1][1] in {"prepared", "published"}


def test_a_request_that_cannot_fit_is_not_sent(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    provider = writes(script_summary())
    with pytest.raises(ProviderError, match="context_overflow"):
        perform.perform_compaction(
            replace(claimed, readable=200), counter=COUNTER, renew=lambda *_: None
        )
    assert provider.requests == []


def test_the_extractive_rung_takes_the_whole_range_that_was_planned(
    by_model: Chat, writes: Writes, now: datetime
) -> None:
    writes(REJECTED_SUMMARIES["not_smaller"], REJECTED_SUMMARIES["not_smaller"])
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    first, halved, whole = Compaction.objects.filter(kind="summary").order_by("attempt")
    assert [first.rung, halved.rung, whole.rung] == ["model", "smaller_source", "extractive"]
    assert halved.to_seq < first.to_seq
    assert (whole.to_seq, whole.source_count) == (first.to_seq, first.source_count)


def test_after_a_ladder_in_which_the_model_failed_it_is_left_alone_at_once(
    by_model: Chat, writes: Writes, say: Say, now: datetime
) -> None:
    provider = writes(
        REJECTED_SUMMARIES["missing_sections"], REJECTED_SUMMARIES["missing_sections"]
    )
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert [rung for rung, _, _ in attempts()] == ["model", "model_again", "extractive"]
    found = skip_reasons.get_active_pauses(chat=by_model, now=add_minutes(now, 1))
    assert (found.model_breaker.is_open, found.breaker.is_open) == (True, False)
    publish.publish_prepared(branch_id=reload_branch(by_model).pk, now=now)
    asked = len(provider.requests)
    for number in range(8):
        say(by_model, f"And {number}?", f"The crate {number} weighs {number}00 kilograms. " * 25)
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now, 5))
    assert attempts()[-1][0] == "extractive"
    assert len(attempts()) == 4
    assert len(provider.requests) == asked


def test_a_reply_with_large_tool_calls_is_summarised_by_the_model(
    by_model: Chat, writer: ModelSpec, writes: Writes, now: datetime
) -> None:
    ModelSpec.objects.filter(pk=writer.pk).update(context_window=3_000)
    reply = Message.objects.filter(branch__chat=by_model, role="assistant").order_by("seq")[0]
    call = {
        "type": "tool_call",
        "call_id": "c",
        "name": "write_file",
        "arguments": json.dumps({"text": "x " * 60_000}),
    }
    result = {"type": "tool_result", "call_id": "c", "name": "write_file", "content": "ok"}
    Message.objects.filter(pk=reply.pk).update(
        parts=[call, result, *reply.parts], token_count=30_000
    )
    provider = writes(*[script_summary()] * 12)
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert [rung for rung, _, _ in attempts()] == ["model"]
    requests = [get_summary_prompt(request) for request in provider.requests]
    assert any("[called write_file with {" in text for text in requests)


def test_a_rerun_is_not_tried_with_the_same_sources_again(
    alice: User, by_model: Chat, writes: Writes, fold: Fold, now: datetime
) -> None:
    provider = writes(script_summary(), [ProviderError("context_overflow")], script_summary())
    first = fold(by_model)
    made = len(provider.requests)
    controls.request_summary_rerun(user=alice, compaction=first, now=add_minutes(now))
    maintain.maintain_chat_context(chat_id=by_model.pk, counter=COUNTER, now=add_minutes(now))
    rungs = [rung for rung, _, _ in attempts()]
    assert rungs == ["model", "model", "extractive"]
    assert len(provider.requests) == made + 1

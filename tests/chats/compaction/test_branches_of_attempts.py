"""An attempt and a request belong to one branch, and end with the chat."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models.functions import Now

from chats.actions import branching, deletion
from chats.compaction import claims, maintain, perform, running_summaries
from chats.compaction.people import controls
from chats.compaction.report import request_status, skip_reasons
from chats.models import Branch, Chat, Compaction, Message
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    SetPolicy,
    Writes,
    add_minutes,
    get_summary_prompt,
    reload_branch,
    script_summary,
)
from tests.support.summary_attempts import REJECTED_SUMMARIES, SUMMARY_IN_ONE_REQUEST

COUNTER = ApproximateCounter()
Interrupt = Callable[[Callable[[], Any]], None]
WHOLE = GOOD_SUMMARY.replace("Oslo", "Oslo, see https://a.example/4711")


@pytest.fixture
def by_model(set_policy: SetPolicy, writer: ModelSpec, long_chat: Chat) -> Chat:
    """A long chat whose summaries a model writes, without losing URLs."""
    values: dict[str, Any] = {"pinned_kinds": ["url"], **SUMMARY_IN_ONE_REQUEST}
    set_policy(summarization_model=writer.slug, **values)
    return long_chat


@pytest.fixture
def during_first_call(monkeypatch: pytest.MonkeyPatch) -> Interrupt:
    """Run an action while the first attempt waits for its model."""
    write = perform.perform_compaction

    def interrupt(action: Callable[[], Any]) -> None:
        def performing(claimed: claims.Claimed, **given: Any) -> Any:
            performed = write(claimed, **given)
            if claimed.attempt.number == 1:
                action()
            return performed

        monkeypatch.setattr(maintain, "perform_compaction", performing)

    return interrupt


def maintain_chat(chat: Chat, now: datetime) -> None:
    """Run the chat's maintenance task."""
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=now)


def fork(alice: User, chat: Chat, now: datetime, seq: int = 12) -> Branch:
    """Open another branch from one of the chat's messages. It becomes the active one."""
    message = Message.objects.get(branch__chat=chat, seq=seq)
    return branching.branch_from_message(user=alice, message=message, now=now)


def places() -> list[tuple[Any, str, str]]:
    """Return (branch, rung, status) of every summary, in order."""
    rows = Compaction.objects.filter(kind="summary").order_by("created_at", "attempt")
    return list(rows.values_list("branch", "rung", "status"))


def test_a_ladder_ends_if_another_branch_is_chosen_during_its_call(
    alice: User, by_model: Chat, writes: Writes, now: datetime, during_first_call: Interrupt
) -> None:
    first = reload_branch(by_model).pk
    provider = writes(*[script_summary()] * 4)
    during_first_call(lambda: fork(alice, by_model, now))
    maintain_chat(by_model, now)
    assert places() == [(first, "model", "rejected")]
    assert len(provider.requests) == 1


@pytest.mark.parametrize("answer", ["lost_facts", "cut_by_length"])
def test_the_ladder_of_a_request_stays_on_its_branch(
    alice: User,
    by_model: Chat,
    writes: Writes,
    now: datetime,
    during_first_call: Interrupt,
    answer: str,
) -> None:
    first = reload_branch(by_model).pk
    bad = script_summary() if answer == "lost_facts" else REJECTED_SUMMARIES[answer]
    writes(bad, script_summary(WHOLE))
    during_first_call(lambda: fork(alice, by_model, now))
    controls.compact_now(user=alice, chat=by_model, now=now, focus="the order")
    maintain_chat(by_model, now)
    rung = "model_again" if answer == "lost_facts" else "smaller_source"
    assert places() == [(first, "model", "rejected"), (first, rung, "published")]
    assert set(Compaction.objects.values_list("focus", flat=True)) == {"the order"}


def test_a_second_attempt_names_no_lost_fact_that_left_the_sources(
    by_model: Chat, writes: Writes, now: datetime, during_first_call: Interrupt
) -> None:
    provider = writes(script_summary(), script_summary(WHOLE))
    first = Message.objects.filter(branch__chat=by_model, seq=1)
    first.update(parts=[{"type": "text", "text": "See https://b.example/998877 too."}])

    def exclude() -> None:
        first.update(excluded=True)
        Branch.objects.filter(chat=by_model).update(context_revision=5)

    during_first_call(exclude)
    maintain_chat(by_model, now)
    assert "998877" in get_summary_prompt(provider.requests[0])
    assert "lost these facts" in get_summary_prompt(provider.requests[1])
    assert "998877" not in get_summary_prompt(provider.requests[1])


def test_a_request_is_done_on_the_branch_for_which_it_was_made(
    alice: User, by_model: Chat, writes: Writes, now: datetime
) -> None:
    writes(*[script_summary(WHOLE)] * 3)
    controls.compact_now(user=alice, chat=by_model, now=now, focus="the order")
    first = reload_branch(by_model)
    fork(alice, by_model, now, seq=2)
    maintain_chat(by_model, now)
    assert places() == [(first.pk, "model", "published")]
    first.refresh_from_db()
    assert (first.asked, first.asked_at) == ({}, None)
    status = request_status.get_request_status(first, now=now)
    assert status is not None
    assert status.state == "done"


def test_a_request_on_another_branch_is_done_by_a_prepared_summary(
    alice: User, by_model: Chat, writes: Writes, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes(*[script_summary(WHOLE)] * 3)
    monkeypatch.setattr(maintain, "should_publish_now", lambda claimed: False)
    first = reload_branch(by_model).pk
    maintain_chat(by_model, now)
    assert places() == [(first, "model", "prepared")]
    controls.compact_now(user=alice, chat=by_model, now=now)
    fork(alice, by_model, now, seq=2)
    maintain_chat(by_model, now)
    assert places() == [(first, "model", "published")]
    assert not Branch.objects.filter(asked_at__isnull=False).exists()


def test_a_branch_that_is_not_active_waits_for_requests_only(
    alice: User, by_model: Chat, now: datetime
) -> None:
    first = reload_branch(by_model)
    fork(alice, by_model, now, seq=2)
    Branch.objects.filter(pk=first.pk).update(summary_due_at=Now() - timedelta(hours=1))
    assert maintain.sweep_summaries(now=now) == 0
    Branch.objects.filter(pk=first.pk).update(asked={"by": "user:1"}, asked_at=now)
    assert maintain.sweep_summaries(now=now) == 1


def test_a_full_worker_marks_the_branch_of_the_request(
    alice: User, by_model: Chat, writes: Writes, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes(*[script_summary(WHOLE)] * 3)
    controls.compact_now(user=alice, chat=by_model, now=now)
    first = reload_branch(by_model)
    other = fork(alice, by_model, now, seq=2)
    here = running_summaries.Summaries()
    here.most = 0
    monkeypatch.setattr(running_summaries, "here", here)
    maintain_chat(by_model, now)
    due = Branch.objects.filter(pk__in=[first.pk, other.pk], summary_due_at=now)
    assert due.count() == 2
    assert places() == []


def test_a_deleted_chat_is_not_summarised(
    alice: User, by_model: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes(script_summary(WHOLE))
    controls.compact_now(user=alice, chat=by_model, now=now)
    Branch.objects.filter(chat=by_model).update(summary_due_at=Now() - timedelta(hours=1))
    deletion.delete_chat(chat=by_model, actor=f"user:{alice.pk}", now=now)
    assert maintain.sweep_summaries(now=now) == 0
    maintain_chat(by_model, now)
    branch = reload_branch(by_model)
    assert (provider.requests, places()) == ([], [])
    assert (branch.asked, branch.asked_at, branch.summary_due_at) == ({}, None, None)
    deletion.restore_chat(chat=by_model, actor=f"user:{alice.pk}", now=now)
    maintain_chat(by_model, now)
    assert len(provider.requests) == 1


def test_a_temporary_chat_that_waited_is_not_summarised_after_its_deletion(
    alice: User, by_model: Chat, writes: Writes, now: datetime
) -> None:
    provider = writes(script_summary(WHOLE))
    Chat.objects.filter(pk=by_model.pk).update(temporary=True)
    by_model.refresh_from_db()
    Branch.objects.filter(chat=by_model).update(summary_due_at=now)
    deletion.delete_chat(chat=by_model, actor=f"user:{alice.pk}", now=now)
    maintain_chat(by_model, now)
    assert (provider.requests, places()) == ([], [])


def test_a_deletion_cancels_the_summary_in_progress(
    alice: User, by_model: Chat, writes: Writes, now: datetime, during_first_call: Interrupt
) -> None:
    provider = writes(*[script_summary()] * 3)
    during_first_call(
        lambda: deletion.delete_chat(chat=by_model, actor=f"user:{alice.pk}", now=now)
    )
    maintain_chat(by_model, now)
    row = Compaction.objects.get()
    assert (row.status, row.reason, row.text) == ("overtaken", "chat_deleted", "")
    assert len(provider.requests) == 1


def test_no_attempt_follows_a_deletion(
    alice: User, by_model: Chat, writes: Writes, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = writes(*[script_summary()] * 3)
    following = maintain.plan_next_attempt

    def planning(*args: Any, **given: Any) -> Any:
        deletion.delete_chat(chat=by_model, actor=f"user:{alice.pk}", now=now)
        return following(*args, **given)

    monkeypatch.setattr(maintain, "plan_next_attempt", planning)
    controls.compact_now(user=alice, chat=by_model, now=now)
    maintain_chat(by_model, now)
    assert [status for _, _, status in places()] == ["rejected"]
    assert len(provider.requests) == 1


@pytest.fixture
def other_writer(by_model: Chat, demo_model: ModelSpec) -> ModelSpec:
    """Another model that can write summaries."""
    return ModelSpec.objects.create(
        slug="other", provider="demo", name="other", context_window=16_000
    )


@pytest.mark.parametrize("cause", ["not_allowed", "disabled", "deleted"])
def test_a_requested_model_that_may_no_longer_write_ends_the_request(
    alice: User,
    by_model: Chat,
    writer: ModelSpec,
    other_writer: ModelSpec,
    set_policy: SetPolicy,
    writes: Writes,
    now: datetime,
    cause: str,
) -> None:
    provider = writes(script_summary(WHOLE))
    controls.compact_now(user=alice, chat=by_model, now=now, model=other_writer.slug)
    if cause == "not_allowed":
        set_policy(allowed_models=["demo", "writer"], summarization_model=writer.slug)
    elif cause == "disabled":
        ModelSpec.objects.filter(pk=other_writer.pk).update(enabled=False)
    else:
        other_writer.delete()
    maintain_chat(by_model, now)
    assert (provider.requests, places()) == ([], [])
    branch = reload_branch(by_model)
    status = request_status.get_request_status(branch, now=now)
    assert status is not None
    assert (branch.asked, status.state, status.reason) == ({}, "nothing", "unknown_summariser")
    assert status.sentence == skip_reasons.SENTENCES["unknown_summariser"]
    assert AuditEvent.objects.filter(type="compaction.skipped").exists()


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_repeated_request_keeps_its_model(
    alice: User,
    by_model: Chat,
    other_writer: ModelSpec,
    writes: Writes,
    now: datetime,
    is_gone: bool,
) -> None:
    """A model that is gone is not replaced by the policy's."""
    provider = writes(script_summary(WHOLE))
    controls.compact_now(user=alice, chat=by_model, now=now, model=other_writer.slug)
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    past = now - timedelta(days=365)
    Compaction.objects.filter(pk=claimed.row.pk).update(lease_until=past)
    if is_gone:
        other_writer.delete()
        Branch.objects.filter(chat=by_model).update(request_outcome=None)
    assert maintain.sweep_summaries(now=now) == 1
    assert reload_branch(by_model).asked["model"] == "other"
    maintain_chat(by_model, add_minutes(now))
    assert len(provider.requests) == (0 if is_gone else 1)
    outcome = reload_branch(by_model).request_outcome or {}
    assert outcome["reason"] == ("unknown_summariser" if is_gone else "")


def test_a_repeated_request_for_the_policys_model_names_none(
    alice: User, by_model: Chat, now: datetime
) -> None:
    controls.compact_now(user=alice, chat=by_model, now=now)
    claimed = claims.claim_compaction(chat_id=by_model.pk, counter=COUNTER, now=now)
    assert claimed is not None
    past = now - timedelta(days=365)
    Compaction.objects.filter(pk=claimed.row.pk).update(lease_until=past)
    maintain.sweep_summaries(now=now)
    assert reload_branch(by_model).asked["model"] is None

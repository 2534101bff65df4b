"""The limit of concurrent summaries per user, and the order of waiting chats."""

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models.functions import Now
from pytest_django import Settings

from chats.actions import lifecycle
from chats.compaction import attempts, claims, maintain, plan, running_summaries, summary_slots
from chats.ground import queue
from chats.models import Branch, Chat, Compaction
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import Say, SetPolicy, add_minutes, reload_branch

COUNTER = ApproximateCounter()
Sent = list[tuple[str, dict[str, str]]]
WORDS = "The order 4711 of 3 May 2026 goes to Anna Berg in Oslo. " * 9


@pytest.fixture
def chats(
    alice: User, demo_model: ModelSpec, say: Say, set_policy: SetPolicy, now: datetime
) -> list[Chat]:
    """Three chats of Alice, each with a summary due."""
    set_policy()
    return [due_chat(alice, say, now) for _ in range(3)]


def due_chat(owner: User, say: Say, now: datetime) -> Chat:
    """A chat with a summary due."""
    chat = lifecycle.create_chat(owner=owner, now=now)
    for number in range(8):
        say(chat, f"Question {number}. {WORDS}", f"Answer {number}. {WORDS}")
    return chat


def claim(chat: Chat, now: datetime) -> claims.Claimed | None:
    """Return the summary that a worker would start in this chat."""
    return claims.claim_compaction(chat_id=chat.pk, counter=COUNTER, now=now)


def sent_for(sent: Sent) -> list[str]:
    """Return the chats with an enqueued maintenance task."""
    return [arguments["chat_id"] for task, arguments in sent if task == queue.MAINTAIN_CHAT]


def due_since(chat: Chat) -> datetime | None:
    """Return the time since when the chat's summary is due."""
    return reload_branch(chat).summary_due_at


def test_a_person_has_so_many_summaries_at_once_and_the_others_are_put_off(
    chats: list[Chat], now: datetime, settings: Settings
) -> None:
    settings.SUMMARIES_PER_USER = 2
    assert claim(chats[0], now)
    assert claim(chats[1], now)
    assert claim(chats[2], now) is None
    assert due_since(chats[2]) == now
    last = reload_branch(chats[2]).turns.order_by("-accepted").first()
    assert last is not None
    assert last.compaction_outcome == summary_slots.PUT_OFF


def test_a_claim_that_ran_out_takes_no_place(
    chats: list[Chat], now: datetime, settings: Settings
) -> None:
    settings.SUMMARIES_PER_USER = 1
    first = claim(chats[0], now)
    assert first is not None
    assert claim(chats[1], now) is None
    Compaction.objects.filter(pk=first.row.pk).update(lease_until=Now() - timedelta(seconds=1))
    assert claim(chats[1], now) is not None
    assert due_since(chats[1]) is None


def test_who_ends_a_summary_calls_the_person_with_the_fewest(
    chats: list[Chat],
    bob: User,
    say: Say,
    now: datetime,
    settings: Settings,
    sent: Sent,
    django_capture_on_commit_callbacks: Any,
) -> None:
    # Alice's second chat waits longer than Bob's, but she already has a running summary.
    settings.SUMMARIES_PER_USER = 1
    assert claim(chats[0], now)
    assert claim(chats[1], now) is None
    chat = lifecycle.create_chat(owner=bob, now=now)
    Branch.objects.filter(chat=chat).update(summary_due_at=add_minutes(now))
    with django_capture_on_commit_callbacks(execute=True):
        summary_slots.call_next(now=add_minutes(now, 2))
    assert sent_for(sent)[-1] == str(chat.pk)
    # A chat whose task was enqueued moves to the end of the queue until a worker starts.
    assert due_since(chat) == add_minutes(now, 2)


def test_the_end_of_a_summary_calls_the_next_chat(
    chats: list[Chat],
    now: datetime,
    settings: Settings,
    sent: Sent,
    django_capture_on_commit_callbacks: Any,
) -> None:
    settings.SUMMARIES_PER_USER = 1
    blocking = claim(chats[0], now)
    assert blocking is not None
    maintain.maintain_chat_context(chat_id=chats[1].pk, counter=COUNTER, now=now)
    assert due_since(chats[1])
    with django_capture_on_commit_callbacks(execute=True):
        maintain.run_attempt_ladder(blocking, counter=COUNTER, clock=lambda: now)
        summary_slots.call_next(now=add_minutes(now))
    assert sent_for(sent)[-1] == str(chats[1].pk)
    maintain.maintain_chat_context(chat_id=chats[1].pk, counter=COUNTER, now=add_minutes(now))
    assert reload_branch(chats[1]).compactions.exists()
    assert due_since(chats[1]) is None


def test_the_sweep_asks_again_for_as_many_of_a_person_as_there_are_places(
    chats: list[Chat],
    now: datetime,
    settings: Settings,
    sent: Sent,
    django_capture_on_commit_callbacks: Any,
) -> None:
    settings.SUMMARIES_PER_USER = 2
    Branch.objects.filter(chat__in=chats).update(summary_due_at=Now() - timedelta(seconds=60))
    with django_capture_on_commit_callbacks(execute=True):
        assert maintain.sweep_summaries(now=now) == 2
    assert len(sent_for(sent)[-2:]) == 2
    Branch.objects.filter(chat__in=chats).update(summary_due_at=Now())
    assert maintain.sweep_summaries(now=now) == 0


def test_what_is_not_due_any_more_waits_no_longer(chats: list[Chat], now: datetime) -> None:
    empty = lifecycle.create_chat(owner=chats[0].owner, now=now)
    Branch.objects.filter(chat=empty).update(summary_due_at=now)
    maintain.maintain_chat_context(chat_id=empty.pk, counter=COUNTER, now=now)
    assert due_since(empty) is None


def test_a_full_worker_puts_off_and_a_ladder_keeps_its_place(
    chats: list[Chat], now: datetime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SUMMARIES_PER_USER = 1
    here = running_summaries.Summaries()
    here.most = 1
    monkeypatch.setattr(running_summaries, "here", here)
    first = claim(chats[0], now)
    assert first is not None
    with here.place() as is_free:
        assert is_free
        maintain.maintain_chat_context(chat_id=chats[1].pk, counter=COUNTER, now=now)
        assert due_since(chats[1]) == now
        assert not reload_branch(chats[1]).compactions.filter(kind="summary").exists()
    # The next rung needs no free slot: its previous attempt is closed, that of another chat is not.
    assert claim(chats[2], now) is None
    maintain.record_failed_attempt(first, reason="provider_timeout", now=now)
    assert claim(chats[2], now)
    attempt = attempts.AttemptSpec(number=2, rung="extractive")
    assert claims.claim_compaction(chat_id=chats[0].pk, counter=COUNTER, now=now, attempt=attempt)


@pytest.mark.skipif(
    "connection.vendor == 'sqlite'", reason="threads of a test share SQLite's memory, not a file"
)
def test_claims_of_one_person_at_the_same_moment_see_each_other(
    transactional_ledger: None, chats: list[Chat], now: datetime, settings: Settings
) -> None:
    settings.SUMMARIES_PER_USER = 1
    start = threading.Barrier(len(chats))
    found: list[claims.Claimed | None] = []

    def claim_one(chat: Chat) -> None:
        try:
            start.wait()
            found.append(claim(chat, now))
        finally:
            connection.close()

    threads = [threading.Thread(target=claim_one, args=(chat,)) for chat in chats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(claimed is not None for claimed in found) == 1


def test_what_changes_while_it_is_planned_is_planned_again(
    chats: list[Chat], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = []
    plan_for = plan.plan_for

    def slow(branch: Branch, **given: Any) -> Any:
        planned.append(branch.context_revision)
        if len(planned) == 1:
            Branch.objects.filter(pk=branch.pk).update(context_revision=7)
        return plan_for(branch, **given)

    monkeypatch.setattr(plan, "plan_for", slow)
    claimed = claim(chats[0], now)
    assert claimed is not None
    assert planned == [0, 7]
    assert claimed.row.context_revision == 7


def test_planning_holds_no_lock(
    chats: list[Chat], now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    plan_for = plan.plan_for

    def watched(branch: Branch, **given: Any) -> Any:
        # The test's outer transaction has no savepoint.
        held.append(bool(connection.savepoint_ids))
        return plan_for(branch, **given)

    monkeypatch.setattr(plan, "plan_for", watched)
    assert claim(chats[0], now)
    assert held == [False]

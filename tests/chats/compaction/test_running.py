"""Summaries in progress in a process: leases renewed together, cancelled at shutdown."""

import asyncio
import threading
import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError

from chats.compaction import claims, maintain, pauses, running_summaries
from chats.compaction.people import controls
from chats.ground import queue
from chats.models import Branch, Chat, Compaction
from chats.providers.base import Finished, TextDelta
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import ModelSpec
from tests.support.chat_summaries import (
    SetPolicy,
    Writes,
    add_minutes,
    reload_branch,
    script_summary,
)

COUNTER = ApproximateCounter()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> running_summaries.Summaries:
    """The registry of one process."""
    summaries = running_summaries.Summaries()
    monkeypatch.setattr(running_summaries, "here", summaries)
    return summaries


def test_a_call_that_waits_is_cancelled_when_the_process_ends(
    here: running_summaries.Summaries,
) -> None:
    waits = threading.Event()
    found: list[BaseException] = []

    async def wait() -> None:
        waits.set()
        await asyncio.sleep(60)

    def write() -> None:
        with here.held(row_id=uuid.uuid4(), token="one"):
            try:
                here.wait_for(wait(), token="one")
            except running_summaries.HandedBack as error:
                found.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    assert waits.wait(10)
    assert len(here.writing) == 1
    here.hand_back()
    thread.join(10)
    assert len(found) == 1
    assert not here.writing
    with here.place() as is_free:
        assert not is_free


def test_a_process_that_ends_begins_no_call(here: running_summaries.Summaries) -> None:
    here.hand_back()
    begun = []

    async def call() -> None:
        begun.append(1)

    with here.held(row_id=uuid.uuid4(), token="one"), pytest.raises(running_summaries.HandedBack):
        here.wait_for(call(), token="one")
    assert not begun


@pytest.mark.django_db
def test_all_claims_are_renewed_at_every_beat_also_after_one_that_failed(
    here: running_summaries.Summaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[dict[uuid.UUID, str]] = []
    row = uuid.uuid4()

    class Over(Exception):
        """Ends the loop after enough beats."""

    def sleep(_seconds: float) -> None:
        if len(beats) == 2:
            raise Over

    def renew(tokens: dict[uuid.UUID, str]) -> None:
        beats.append(tokens)
        if len(beats) == 1:
            raise DatabaseError

    monkeypatch.setattr("chats.compaction.running_summaries.time.sleep", sleep)
    with here.held(row_id=row, token="one"), pytest.raises(Over):
        here.beat(renew)
    assert beats == [{row: "one"}] * 2


def test_a_summary_that_is_handed_back_is_asked_for_again_and_counts_as_no_failure(
    long_chat: Chat,
    set_policy: SetPolicy,
    writes: Writes,
    here: running_summaries.Summaries,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    set_policy(summarization_model="writer")
    writes(script_summary())
    claimed = claims.claim_compaction(chat_id=long_chat.pk, counter=COUNTER, now=now)
    assert claimed is not None
    here.hand_back()
    with django_capture_on_commit_callbacks(execute=True):
        maintain.run_attempt_ladder(claimed, counter=COUNTER, clock=lambda: add_minutes(now))
    row = Compaction.objects.get(pk=claimed.row.pk)
    assert (row.status, row.reason, row.finished_at) == ("failed", "handed_back", add_minutes(now))
    assert sent[-1] == (queue.MAINTAIN_CHAT, {"chat_id": str(long_chat.pk)})
    branch = reload_branch(long_chat)
    assert branch.summary_due_at == add_minutes(now)
    assert not pauses.list_counted_attempts(branch).exists()
    # The next worker writes the summary.
    here.closing = False
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now, 2))
    assert branch.compactions.filter(status__in=["prepared", "published"]).exists()
    assert Branch.objects.get(pk=branch.pk).summary_due_at is None


@pytest.mark.parametrize("options", [{"focus": "the order"}, {"model": ""}, {"model": "writer"}])
def test_a_request_whose_worker_is_lost_is_repeated_with_its_options_but_not_for_ever(
    alice: User, roomy: Chat, writer: ModelSpec, now: datetime, options: dict[str, Any]
) -> None:
    controls.compact_now(user=alice, chat=roomy, now=now, **options)
    asked = reload_branch(roomy).asked
    for _ in range(claims.MOST_LOST):
        claimed = claims.claim_compaction(chat_id=roomy.pk, counter=COUNTER, now=now)
        assert claimed is not None
        assert reload_branch(roomy).asked_at is None
        past = now - timedelta(days=365)
        Compaction.objects.filter(pk=claimed.row.pk).update(lease_until=past)
        assert maintain.sweep_summaries(now=now) == 1
        branch = reload_branch(roomy)
        if branch.asked:
            assert {**branch.asked, **options} == branch.asked
            assert (branch.asked["by"], branch.asked["after"]) == (asked["by"], asked["after"])
    assert branch.asked == {}
    assert branch.compactions.count() == claims.MOST_LOST


def test_what_follows_a_call_to_a_model_reads_the_clock_again(
    long_chat: Chat, set_policy: SetPolicy, writes: Writes, now: datetime
) -> None:
    set_policy(summarization_model="writer")
    # Two calls of five minutes each.
    writes([TextDelta("No"), Finished("length")], script_summary())
    minutes = iter(range(0, 1000, 5))
    maintain.maintain_chat_context(
        chat_id=long_chat.pk,
        counter=COUNTER,
        now=now,
        clock=lambda: add_minutes(now, next(minutes)),
    )
    rows = list(reload_branch(long_chat).compactions.order_by("attempt"))
    times = [at for row in rows for at in (row.created_at, row.finished_at) if at]
    assert len(rows) >= 2
    assert len(times) == 2 * len(rows)
    assert times == sorted(times)
    assert len(set(times)) == len(times)

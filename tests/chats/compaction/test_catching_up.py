"""A chat imported with ten thousand messages is compacted in one step."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from chats.compaction import indexing, maintain, plan
from chats.ground import queue
from chats.memory.search import archive, index_progress
from chats.models import Branch, Chat, Compaction, ImportedChat, Message
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent, ModelSpec
from tests.support.chat_summaries import (
    GOOD_SUMMARY,
    SMALL_POLICY,
    Say,
    SetPolicy,
    Writes,
    add_minutes,
    find_active_summary,
    get_summary_prompt,
    reload_branch,
    script_summary,
)

COUNTER = ApproximateCounter()
MANY = 10_000
SAID = "The crate {n} of 3 May 2026 goes to Anna Berg in Oslo, who pays {n} kroner at the door. "
BUDGET = {
    "token_budget": 16_000,
    "reserve_tokens": 4_000,
    "summary_max_tokens": 1_000,
    "turn_threshold": None,
}
Fill = Callable[[int], None]


@pytest.fixture
def fill(chat: Chat, now: datetime, set_policy: SetPolicy) -> Fill:
    """Add this number of old messages to the chat."""
    set_policy(**BUDGET)

    def filling(count: int) -> None:
        branch = reload_branch(chat)
        texts = ((seq, SAID.format(n=seq)) for seq in range(1, count + 1))
        rows = (
            Message(
                branch=branch,
                seq=seq,
                accepted=seq,
                role="user" if seq % 2 else "assistant",
                parts=[{"type": "text", "text": text}],
                token_count=COUNTER.count(text) + 4,
                counter_version=COUNTER.version,
                finish="" if seq % 2 else "stop",
                created_at=now,
            )
            for seq, text in texts
        )
        Message.objects.bulk_create(rows, batch_size=5_000)
        Chat.objects.filter(pk=chat.pk).update(accepted_count=count)
        Branch.objects.filter(pk=branch.pk).update(last_seq=count)
        chat.refresh_from_db()

    return filling


def tend(chat: Chat, at: datetime) -> None:
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=at)


def rows_of(kind: str) -> list[Compaction]:
    return list(Compaction.objects.filter(kind=kind).order_by("created_at"))


def caught_up(chat: Chat, *, say: Say, now: datetime) -> None:
    """Run a few turns, each followed by maintenance."""
    for minute in range(4):
        say(chat, f"And now, for the {minute + 1}. time?", "Like this.")
        tend(chat, add_minutes(now, minute))


@pytest.mark.slow
@pytest.mark.in_turn
def test_one_window_and_one_summary_without_a_model_catch_up(
    chat: Chat, fill: Fill, say: Say, now: datetime
) -> None:
    fill(MANY)
    caught_up(chat, say=say, now=now)
    (window,), (summary,) = rows_of("window"), rows_of("summary")
    assert (summary.status, summary.reason) == ("published", "")
    assert summary.to_seq >= window.to_seq
    assert 0.2 < summary.tokens_after / 12_000 <= SMALL_POLICY["compact_to"]
    assert reload_branch(chat).active_compaction == summary
    assert AuditEvent.objects.filter(type="window.moved").count() == 1


@pytest.mark.slow
@pytest.mark.in_turn
def test_one_window_and_one_summary_of_a_bounded_number_of_calls_catch_up(
    chat: Chat, fill: Fill, say: Say, set_policy: SetPolicy, writer: ModelSpec, writes: Writes,
    now: datetime,
) -> None:  # fmt: skip
    fill(MANY)
    set_policy(summarization_model=writer.slug, **BUDGET)
    wanted = script_summary(GOOD_SUMMARY)
    say(chat, "And now?", "Like this.")
    provider = writes(*[wanted] * 40)
    tend(chat, now)
    (window,), (summary,) = rows_of("window"), rows_of("summary")
    assert (summary.status, summary.rung, summary.from_seq) == ("published", "model", 1)
    assert summary.to_seq >= window.to_seq
    requests = [get_summary_prompt(request) for request in provider.requests]
    chunks = [text for text in requests if "<transcript>" in text]
    assert len(chunks) == 8
    assert len(requests) <= 12
    # Messages that no call read are summarised by extraction and merged as a separate part.
    merges = "\n".join(text for text in requests if text not in chunks)
    assert "kroner at the door. [#" in merges
    assert 'number="1"' not in "\n".join(chunks)
    asked = len(provider.requests)
    for minute in (1, 2, 3):
        say(chat, "And now?", "Like this.")
        tend(chat, add_minutes(now, minute))
    assert (len(rows_of("window")), len(rows_of("summary"))) == (1, 1)
    assert len(provider.requests) == asked


@pytest.mark.slow
@pytest.mark.in_turn
def test_a_chat_that_nobody_opens_keeps_its_window_where_it_is(
    chat: Chat, fill: Fill, now: datetime
) -> None:
    fill(MANY)
    tend(chat, now)
    tend(chat, add_minutes(now))
    assert rows_of("window") == []
    (summary,) = rows_of("summary")
    assert (summary.status, summary.reason) == ("published", "")


def test_a_thousand_turns_are_not_folded_five_at_a_time(
    chat: Chat, fill: Fill, say: Say, set_policy: SetPolicy, now: datetime
) -> None:
    fill(2_000)
    set_policy(**{**BUDGET, "turn_threshold": 10, "fold_turns": 5})
    say(chat, "And now?", "Like this.")
    tend(chat, now)
    (summary,) = rows_of("summary")
    assert (summary.trigger, summary.to_seq) == ("turns", 2_002 - 2 * 6)
    assert reload_branch(chat).active_compaction == summary


def test_a_chat_of_more_than_one_plan_looks_at_keeps_its_window_meanwhile(
    chat: Chat, fill: Fill, say: Say, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(3_000)
    monkeypatch.setattr(plan, "MOST_MESSAGES", 1_200)
    say(chat, "And now?", "Like this.")
    (window,) = rows_of("window")
    tend(chat, now)
    kept = reload_branch(chat).active_compaction
    assert kept is not None
    first = find_active_summary(chat)
    assert (kept.kind, kept.to_seq, kept.base) == ("window", window.to_seq, first)
    assert kept.from_seq == (first.to_seq if first else 0) + 1
    caught_up(chat, say=say, now=add_minutes(now))
    assert {row.to_seq for row in rows_of("window")} == {window.to_seq}
    last = find_active_summary(chat)
    assert last is not None
    assert last.to_seq >= window.to_seq
    assert reload_branch(chat).active_compaction == last
    assert len(rows_of("summary")) == 3


def import_row(chat: Chat, now: datetime) -> None:
    """Record that the chat was imported from a file."""
    ImportedChat.objects.create(
        chat=chat, owner=chat.owner, form="ui", source_id="x", created_at=now
    )


def test_an_imported_chat_is_indexed_before_it_is_summarised(
    chat: Chat, fill: Fill, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[str] = []
    monkeypatch.setattr(queue, "enqueue", lambda task, **_: tasks.append(task))
    fill(1_000)
    import_row(chat, now)

    tend(chat, now)

    assert not Compaction.objects.exists()
    assert reload_branch(chat).summary_due_at == now
    assert queue.MAINTAIN_CHAT not in tasks
    for _ in range(100):
        indexing.update_chat_index(chat_id=chat.pk)
        if queue.MAINTAIN_CHAT in tasks:
            break
    assert index_progress.count_missing(reload_branch(chat)) <= indexing.MANY
    tend(chat, add_minutes(now))
    assert rows_of("summary")
    assert reload_branch(chat).summary_due_at is None


@pytest.mark.parametrize("case", ["written here", "long ago", "requested", "indexed"])
def test_other_summaries_do_not_wait_for_the_index(
    chat: Chat, fill: Fill, now: datetime, case: str
) -> None:
    fill(400)
    if case != "written here":
        import_row(chat, now - timedelta(hours=2) if case == "long ago" else now)
    if case == "requested":
        asked = {"by": f"user:{chat.owner_id}"}
        Branch.objects.filter(chat=chat).update(asked=asked, asked_at=now)
    if case == "indexed":
        archive.index_branch(reload_branch(chat))

    tend(chat, now)

    assert rows_of("summary")

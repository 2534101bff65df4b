"""Pins, exclusions and kept replies: effects on prompts, summaries and the context revision."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import marks
from chats.compaction import claims, maintain
from chats.compaction.people import controls, undo
from chats.compaction.publish import publish_prepared
from chats.ground.leases import LeaseLost
from chats.models import Chat, Compaction, Message, Receipt
from chats.providers.base import Finished, TextDelta
from chats.turns.start import start_turn
from contextpolicy.engine.compose.partition import LeftOut, check_partition
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.models import AuditEvent
from tests.support.chat_summaries import (
    SENTENCE,
    Fold,
    Say,
    SetPolicy,
    add_minutes,
    compose_next_prompt,
    find_active_summary,
    reload_branch,
)

COUNTER = ApproximateCounter()
ACTOR = "user:1"


def message(chat: Chat, seq: int) -> Message:
    """Return the message at a position of the active branch."""
    return Message.objects.select_related("branch").get(branch=reload_branch(chat), seq=seq)


def check(receipt: Receipt) -> None:
    """Check that every message of the branch is either sent or left out, exactly once."""
    sent = sorted(segment[2] for segment in receipt.segments if segment[2])
    check_partition(
        last_seq=receipt.last_seq,
        sent=sent,
        left_out=[LeftOut(*part) for part in receipt.left_out],
    )


def newest_receipt(chat: Chat) -> Receipt:
    """Return the receipt of the last call."""
    rows = Receipt.objects.filter(turn__branch__chat=chat)
    found = rows.order_by("-last_seq", "-created_at").first()
    assert found is not None
    return found


def test_inv_11_a_pinned_message_survives_every_compaction(
    long_chat: Chat, say: Say, fold: Fold, now: datetime
) -> None:
    pinned = marks.pin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    for number in range(3):
        row = fold(long_chat, at=add_minutes(now, number))
        assert 3 in row.exceptions
        for _ in range(7):
            say(long_chat, f"More. {SENTENCE}", SENTENCE * 6)
        receipt = newest_receipt(long_chat)
        assert ["pin", str(pinned.pk)] in [segment[:2] for segment in receipt.segments]
        check(receipt)


def test_inv_11_a_pin_behind_a_window_is_sent(
    chat: Chat, say: Say, set_policy: SetPolicy, now: datetime
) -> None:
    set_policy(strategy="sliding_window")
    say(chat, f"Remember this: {SENTENCE}")
    marks.pin_message(message=message(chat, 1), actor=ACTOR, now=now)
    for _ in range(14):
        say(chat, f"More. {SENTENCE}", SENTENCE * 6)
    assert Compaction.objects.filter(kind="window").exists()
    receipt = newest_receipt(chat)
    assert [segment[2] for segment in receipt.segments if segment[0] == "pin"] == [1]
    check(receipt)


def test_a_pin_in_the_window_changes_nothing_until_it_would_be_folded(
    long_chat: Chat, now: datetime
) -> None:
    before = compose_next_prompt(long_chat)
    branch = reload_branch(long_chat)
    marks.pin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    marks.pin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    assert compose_next_prompt(long_chat) == before
    assert reload_branch(long_chat).context_revision == branch.context_revision
    assert AuditEvent.objects.filter(type="message.pinned").count() == 1


def test_pinning_a_covered_message_takes_effect_and_unpinning_takes_it_back(
    long_chat: Chat, fold: Fold, now: datetime
) -> None:
    row = fold(long_chat)
    assert row.from_seq <= 3 <= row.to_seq
    before, revision = compose_next_prompt(long_chat), reload_branch(long_chat).context_revision
    marks.pin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    assert any("Pinned message #3" in content for content in compose_next_prompt(long_chat)[1])
    assert reload_branch(long_chat).context_revision == revision + 1
    event = AuditEvent.objects.get(type="message.pinned")
    assert event.data["prefix_break"] == "pin"
    marks.unpin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    marks.unpin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    assert compose_next_prompt(long_chat) == before
    assert reload_branch(long_chat).context_revision == revision + 2


def test_a_message_unpinned_later_stands_first_in_history_until_folded(
    long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    marks.pin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    fold(long_chat)
    marks.unpin_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    say(long_chat)
    receipt = newest_receipt(long_chat)
    history = [segment[2] for segment in receipt.segments if segment[0] == "history"]
    assert history[0] == 3
    check(receipt)


def test_pins_have_room_and_no_more(long_chat: Chat, set_policy: SetPolicy, now: datetime) -> None:
    set_policy(pins_tokens=300)
    marks.pin_message(message=message(long_chat, 2), actor=ACTOR, now=now)
    room = marks.load_pin_room(chat=long_chat)
    assert 0 < room.used <= room.limit == 300
    with pytest.raises(marks.PinsFull) as refused:
        marks.pin_message(message=message(long_chat, 4), actor=ACTOR, now=now)
    assert refused.value.details["used"] == room.used
    marks.unpin_message(message=message(long_chat, 2), actor=ACTOR, now=now)
    marks.pin_message(message=message(long_chat, 4), actor=ACTOR, now=now)


def test_inv_46_an_excluded_message_leaves_its_summaries_and_the_originals_are_sent(
    long_chat: Chat,
    fold: Fold,
    say: Say,
    now: datetime,
    sent: Any,
    django_capture_on_commit_callbacks: Any,
) -> None:
    row = fold(long_chat)
    with django_capture_on_commit_callbacks(execute=True):
        marks.exclude_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    assert ("chats.maintain_chat", {"chat_id": str(long_chat.pk)}) in sent
    row.refresh_from_db()
    assert (row.status, row.reason) == ("overtaken", "message_excluded")
    assert find_active_summary(long_chat) is None
    turn = say(long_chat)
    assert turn.status == "completed"
    receipt = newest_receipt(long_chat)
    assert not any(segment[0] == "summary" for segment in receipt.segments)
    assert any(first <= 3 <= last for first, last, _ in receipt.left_out)
    check(receipt)
    new = fold(long_chat, at=add_minutes(now))
    assert 3 in new.exceptions
    with pytest.raises(undo.NothingToRedo):
        undo.redo_summary(user=long_chat.owner, compaction=row, now=now)


def test_inv_46_the_summary_before_the_message_stays(
    long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    first = fold(long_chat)
    for _ in range(6):
        say(long_chat, f"More. {SENTENCE}", SENTENCE * 6)
    second = fold(long_chat, at=add_minutes(now))
    assert second.previous == first
    assert second.to_seq > first.to_seq
    marks.exclude_message(message=message(long_chat, second.to_seq), actor=ACTOR, now=now)
    assert find_active_summary(long_chat) == first
    marks.exclude_message(message=message(long_chat, 1), actor=ACTOR, now=now)
    assert find_active_summary(long_chat) is None


def test_an_exclusion_can_be_taken_back(
    long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    marks.exclude_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    marks.exclude_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    fold(long_chat)
    revision = reload_branch(long_chat).context_revision
    marks.include_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    marks.include_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    assert reload_branch(long_chat).context_revision == revision + 1
    say(long_chat)
    receipt = newest_receipt(long_chat)
    assert 3 in [segment[2] for segment in receipt.segments if segment[0] == "history"]
    check(receipt)


def test_inv_40_an_exclusion_overtakes_what_is_being_written_of_the_message(
    long_chat: Chat, now: datetime
) -> None:
    claimed = claims.claim_compaction(chat_id=long_chat.pk, counter=COUNTER, now=now)
    assert claimed is not None
    marks.exclude_message(message=message(long_chat, 3), actor=ACTOR, now=now)
    with pytest.raises(LeaseLost):
        maintain.run_summary_attempt(claimed, counter=COUNTER, clock=lambda: now)
    claimed.row.refresh_from_db()
    assert (claimed.row.status, claimed.row.text) == ("overtaken", "")


def test_inv_40_a_pin_of_a_covered_message_overtakes_what_is_prepared(
    long_chat: Chat, fold: Fold, say: Say, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold(long_chat)
    for _ in range(6):
        say(long_chat, f"More. {SENTENCE}", SENTENCE * 6)
    monkeypatch.setattr(maintain, "should_publish_now", lambda claimed: False)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now))
    prepared = Compaction.objects.get(status="prepared")
    marks.pin_message(message=message(long_chat, 1), actor=ACTOR, now=now)
    assert publish_prepared(branch_id=prepared.branch_id, now=now) is False
    prepared.refresh_from_db()
    assert prepared.status == "overtaken"


def test_a_cut_reply_counts_once_somebody_keeps_it(
    alice: User, chat: Chat, now: datetime, work: Callable[..., Any], say: Say
) -> None:
    turn = start_turn(user=alice, chat=chat, text="Tell me", now=now).turn
    work(turn, [TextDelta("Half of"), Finished("none")])
    reply = turn.messages.get(role="assistant")
    with pytest.raises(marks.NothingToKeep):
        marks.keep_incomplete_reply(message=message(chat, 1), actor=ACTOR, now=now)
    for _ in range(2):
        marks.keep_incomplete_reply(message=reply, actor=ACTOR, now=now)
    assert AuditEvent.objects.filter(type="message.kept").count() == 1
    say(chat)
    assert 2 in [segment[2] for segment in newest_receipt(chat).segments]


def test_a_waiting_message_cannot_be_marked(alice: User, chat: Chat, now: datetime) -> None:
    waiting = start_turn(user=alice, chat=chat, text="Soon", now=now).message
    for mark in (
        marks.pin_message,
        marks.unpin_message,
        marks.exclude_message,
        marks.include_message,
    ):
        with pytest.raises(marks.NotTakenUp):
            mark(message=waiting, actor=ACTOR, now=now)


def test_inv_02_the_partition_holds_after_many_compactions(
    alice: User, long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    seen = set()
    for number in range(4):
        row = fold(long_chat, at=add_minutes(now, number))
        seen.add(row.pk)
        marks.pin_message(message=message(long_chat, row.to_seq), actor=ACTOR, now=now)
        for _ in range(6):
            say(long_chat, f"More. {SENTENCE}", SENTENCE * 6)
            check(newest_receipt(long_chat))
        marks.unpin_message(message=message(long_chat, row.to_seq), actor=ACTOR, now=now)
    assert len(seen) >= 3
    row = fold(long_chat, at=add_minutes(now, 9))
    undo_to = row.displaced
    controls.compact_now(user=alice, chat=long_chat, now=now)
    assert undo_to is not None


def test_inv_64_coverage_never_moves_backwards(
    long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    frontier = 0
    for number in range(3):
        row = fold(long_chat, at=add_minutes(now, number))
        assert row.to_seq > frontier
        frontier = row.to_seq
        for _ in range(6):
            say(long_chat, f"More. {SENTENCE}", SENTENCE * 6)

"""Edits, regenerated replies and branches: new branches, and the summaries visible on them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from chats.actions import branching, marks
from chats.actions.branching import (
    branch_from_message,
    choose_branch,
    edit_message,
    regenerate_reply,
)
from chats.compaction.coverage import is_range_on_path
from chats.ground.refusals import NotFound
from chats.models import Branch, Chat, Compaction, Message, Receipt
from chats.providers.base import Finished, TextDelta, ToolCallDelta
from chats.record.history import select_path_messages
from chats.record.message_text import MessageEmpty
from chats.turns.follow_up_turns import continue_reply
from chats.turns.start import start_turn
from chats.web.thread.thread import load_thread_page
from contextpolicy.models import AuditEvent
from tests.support.chat_summaries import (
    SENTENCE,
    Fold,
    Say,
    add_minutes,
    find_active_summary,
    reload_branch,
)

Work = Callable[..., Any]


def message(chat: Chat, seq: int) -> Message:
    """Return the message at a position of the active branch's path."""
    branch = reload_branch(chat)
    return (
        select_path_messages(branch, after=seq - 1, before=seq + 1).select_related("branch").get()
    )


def words(chat: Chat) -> list[str]:
    """Return all texts of the active branch."""
    branch = reload_branch(chat)
    rows = select_path_messages(branch, after=0, before=branch.last_seq + 1).order_by("seq")
    return [row.text for row in rows]


def answer(work: Work, turn: Any, text: str) -> None:
    """Let a worker reply to the turn."""
    work(turn, [TextDelta(text), Finished("stop")])
    assert turn.status == "completed"


def test_an_edit_leaves_the_old_path_and_answers_on_a_new_one(
    alice: User, chat: Chat, say: Say, work: Work, now: datetime
) -> None:
    say(chat, "One?", "1")
    say(chat, "Two?", "2")
    old = reload_branch(chat)
    accepted = edit_message(user=alice, message=message(chat, 3), text="Zwei?", now=now)
    answer(work, accepted.turn, "zwei")
    assert words(chat) == ["One?", "1", "Zwei?", "zwei"]
    new = reload_branch(chat)
    assert (new.parent, new.fork_seq, new.last_seq) == (old, 2, 4)
    choose_branch(user=alice, chat=chat, branch_id=old.pk, now=now)
    assert words(chat) == ["One?", "1", "Two?", "2"]
    event = AuditEvent.objects.get(type="branch.created")
    assert (event.data["cause"], event.data["fork_seq"]) == ("edit", 2)


def test_the_first_message_can_be_edited(
    alice: User, chat: Chat, say: Say, work: Work, now: datetime
) -> None:
    say(chat, "One?", "1")
    accepted = edit_message(user=alice, message=message(chat, 1), text="Eins?", now=now)
    answer(work, accepted.turn, "eins")
    assert words(chat) == ["Eins?", "eins"]


def test_an_edit_with_a_key_is_made_once(alice: User, chat: Chat, say: Say, now: datetime) -> None:
    say(chat, "One?", "1")
    target = message(chat, 1)
    made = [
        edit_message(user=alice, message=target, text="Eins?", now=now, idempotency_key="k")
        for _ in range(2)
    ]
    assert made[0].message == made[1].message
    assert made[1].repeated
    assert chat.branches.count() == 2


def test_another_reply_answers_the_same_message_on_a_branch_of_its_own(
    alice: User, chat: Chat, say: Say, work: Work, now: datetime
) -> None:
    say(chat, "One?", "1")
    say(chat, "Two?", "2")
    turn = regenerate_reply(user=alice, message=message(chat, 4), now=now)
    answer(work, turn, "two")
    assert words(chat) == ["One?", "1", "Two?", "two"]
    receipt = Receipt.objects.get(turn=turn)
    assert [s[2] for s in receipt.segments if s[2]] == [1, 2, 3]
    assert receipt.last_seq == 3


def test_a_message_taken_up_within_the_turn_is_answered_again_too(
    alice: User, chat: Chat, work: Work, now: datetime
) -> None:
    async def write_more(worker: Any) -> None:
        await worker.db(start_turn, user=alice, chat=chat, text="Wait: three?", now=now)

    turn = start_turn(user=alice, chat=chat, text="Two?", now=now).turn
    call = ToolCallDelta(0, "c", "none-such", "{}")
    work(
        turn,
        [write_more, call, Finished("tool_calls")],
        [TextDelta("3"), Finished("stop")],
    )
    reply = Message.objects.get(role="assistant", finish="stop")
    again = regenerate_reply(user=alice, message=reply, now=now)
    assert again.trigger is not None
    assert again.trigger.text == "Wait: three?"
    answer(work, again, "three")
    assert words(chat)[-2:] == ["Wait: three?", "three"]


def test_a_continuation_can_be_written_again(
    alice: User, chat: Chat, work: Work, now: datetime
) -> None:
    first = start_turn(user=alice, chat=chat, text="Tell me", now=now).turn
    work(first, [TextDelta("Once"), Finished("length")])
    more = continue_reply(user=alice, turn=first, now=now)
    work(more, [TextDelta(" upon"), Finished("stop")])
    reply = more.messages.get(role="assistant")
    again = regenerate_reply(user=alice, message=reply, now=now)
    assert again.continues == first
    answer(work, again, " more")
    assert words(chat) == ["Tell me", "Once", " more"]


def test_what_cannot_begin_a_branch_is_refused(
    alice: User, bob: User, chat: Chat, say: Say, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(chat, "One?", "1")
    with pytest.raises(branching.NotAUserMessage):
        edit_message(user=alice, message=message(chat, 2), text="x", now=now)
    with pytest.raises(branching.NotAReply):
        regenerate_reply(user=alice, message=message(chat, 1), now=now)
    with pytest.raises(MessageEmpty):
        edit_message(user=alice, message=message(chat, 1), text=" ", now=now)
    assert chat.branches.count() == 1
    with pytest.raises(NotFound):
        choose_branch(user=alice, chat=chat, branch_id=alice_has_no(chat), now=now)
    monkeypatch.setattr(branching, "BRANCHES_PER_CHAT", 1)
    with pytest.raises(branching.TooManyBranches):
        branch_from_message(user=alice, message=message(chat, 1), now=now)
    waiting = start_turn(user=alice, chat=chat, text="Soon", now=now).message
    with pytest.raises(branching.StillWaiting):
        edit_message(user=alice, message=waiting, text="x", now=now)


def alice_has_no(chat: Chat) -> Any:
    """Return the id of a branch in another chat."""
    other = Chat.objects.create(
        owner=chat.owner, created_at=chat.created_at, updated_at=chat.created_at
    )
    return Branch.objects.create(chat=other, created_at=chat.created_at).pk


def test_inv_47_a_branch_starts_with_the_newest_summary_of_its_own_path(
    alice: User, long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    first = fold(long_chat)
    for _ in range(6):
        say(long_chat, f"More. {SENTENCE}", SENTENCE * 6)
    second = fold(long_chat, at=add_minutes(now))
    main = reload_branch(long_chat)
    behind = branch_from_message(user=alice, message=message(long_chat, second.to_seq), now=now)
    assert find_active_summary(long_chat) == second
    between = branch_from_message(user=alice, message=message(long_chat, first.to_seq), now=now)
    assert find_active_summary(long_chat) == first
    assert between.parent == main
    before = branch_from_message(user=alice, message=message(long_chat, first.to_seq - 1), now=now)
    assert find_active_summary(long_chat) is None
    assert [is_range_on_path(second, b) for b in (main, behind, between, before)] == [
        True,
        True,
        False,
        False,
    ]
    assert [is_range_on_path(first, b) for b in (main, behind, between, before)] == [
        True,
        True,
        True,
        False,
    ]
    first.refresh_from_db()
    assert first.status == "published"
    for branch in (behind, between, before):
        choose_branch(user=alice, chat=long_chat, branch_id=branch.pk, now=now)
        assert say(long_chat).status == "completed"


def test_inv_47_nested_branches_share_summaries_of_their_common_path_only(
    alice: User, long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    root_summary = fold(long_chat)
    child = branch_from_message(user=alice, message=message(long_chat, 14), now=now)
    for _ in range(8):
        say(long_chat, f"On the child. {SENTENCE}", SENTENCE * 6)
    child_summary = fold(long_chat, at=add_minutes(now))
    assert child_summary.branch == child
    assert child_summary.to_seq > child.fork_seq
    inner = child_summary.to_seq
    branch_from_message(user=alice, message=message(long_chat, inner), now=now)
    assert find_active_summary(long_chat) == child_summary
    grandchild = branch_from_message(user=alice, message=message(long_chat, inner - 1), now=now)
    assert find_active_summary(long_chat) == root_summary
    assert not is_range_on_path(child_summary, grandchild)
    # On the root, the child's summary would describe messages that do not exist there.
    root = long_chat.branches.get(parent=None)
    assert not is_range_on_path(child_summary, root)
    choose_branch(user=alice, chat=long_chat, branch_id=root.pk, now=now)
    assert find_active_summary(long_chat) == root_summary


def test_a_summary_replaced_on_one_branch_stays_in_force_on_another(
    alice: User, long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    shared = fold(long_chat)
    branch_from_message(user=alice, message=message(long_chat, 14), now=now)
    for _ in range(6):
        say(long_chat, f"On the child. {SENTENCE}", SENTENCE * 6)
    fold(long_chat, at=add_minutes(now))
    shared.refresh_from_db()
    assert shared.status == "published"
    root = long_chat.branches.get(parent=None)
    assert root.active_compaction == shared


def test_inv_46_what_was_edited_lives_on_in_no_summary(
    alice: User, long_chat: Chat, fold: Fold, work: Work, now: datetime
) -> None:
    row = fold(long_chat)
    accepted = edit_message(user=alice, message=message(long_chat, 3), text="Never mind.", now=now)
    assert find_active_summary(long_chat) is None
    worker = work(accepted.turn, [TextDelta("Fine."), Finished("stop")])
    prompt = " ".join(m.content for m in worker.scripted.requests[0].messages)
    assert row.text not in prompt
    assert "Question 1." not in prompt


def test_inv_46_an_excluded_message_leaves_summaries_on_every_branch_that_has_it(
    alice: User, long_chat: Chat, fold: Fold, say: Say, now: datetime
) -> None:
    fold(long_chat)
    branch_from_message(user=alice, message=message(long_chat, 14), now=now)
    for _ in range(6):
        say(long_chat, f"On the child. {SENTENCE}", SENTENCE * 6)
    fold(long_chat, at=add_minutes(now))
    early = branch_from_message(user=alice, message=message(long_chat, 2), now=now)
    marks.exclude_message(message=message_at(long_chat, 3), actor="user:1", now=now)
    for branch in long_chat.branches.all():
        assert branch.active_compaction is None, branch
    assert not Compaction.objects.filter(kind="summary", status="published").exists()
    early.refresh_from_db()
    assert early.context_revision == 0


def message_at(chat: Chat, seq: int) -> Message:
    """Return the message at a position of the root branch."""
    root = chat.branches.get(parent=None)
    return Message.objects.select_related("branch").get(branch=root, seq=seq)


def test_a_page_shows_the_replies_of_its_own_path(
    alice: User, chat: Chat, say: Say, now: datetime
) -> None:
    say(chat, "One?", "1")
    old = reload_branch(chat)
    regenerate_reply(user=alice, message=message(chat, 2), now=now)
    chat.refresh_from_db()
    assert load_thread_page(chat=chat, user=alice).is_replying
    choose_branch(user=alice, chat=chat, branch_id=old.pk, now=now)
    chat.refresh_from_db()
    assert not load_thread_page(chat=chat, user=alice).is_replying

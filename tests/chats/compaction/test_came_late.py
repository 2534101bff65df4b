"""Start of summaries: late if the summariser keeps up, early if it did not."""

from datetime import datetime

import pytest
from django.contrib.auth.models import User

from chats.compaction import maintain, plan
from chats.compaction.people import controls
from chats.models import Chat, Compaction, Turn
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.support.chat_summaries import (
    SENTENCE,
    Say,
    SetPolicy,
    add_minutes,
    find_active_summary,
    reload_branch,
)

COUNTER = ApproximateCounter()


def test_summaries_that_came_late_begin_early(
    alice: User, chat: Chat, say: Say, set_policy: SetPolicy, now: datetime
) -> None:
    """After a window moved before its summary was ready, the next three summaries start early."""
    set_policy(compact_to=0.45)
    while not Compaction.objects.filter(kind="window").exists():
        say(chat, f"Question. {SENTENCE}", SENTENCE * 6)
    assert plan.has_late_summaries(reload_branch(chat))
    maintain.maintain_chat_context(chat_id=chat.pk, counter=COUNTER, now=now)
    row = find_active_summary(chat)
    assert row is not None
    assert row.displaced is not None
    assert (row.displaced.kind, reload_branch(chat).active_compaction) == ("window", row)
    for number in range(1, 4):
        assert plan.has_late_summaries(reload_branch(chat))
        for _ in range(2):
            say(chat, f"Question. {SENTENCE}", SENTENCE * 3)
        controls.compact_now(user=alice, chat=chat, now=add_minutes(now, number))
        maintain.maintain_chat_context(
            chat_id=chat.pk, counter=COUNTER, now=add_minutes(now, number)
        )
    assert not plan.has_late_summaries(reload_branch(chat))


@pytest.mark.parametrize(("came_late", "outcome"), [(True, "started"), (False, "too_early")])
def test_a_summary_waits_for_another_turn_unless_the_last_ones_came_late(
    came_late: bool,
    outcome: str,
    long_chat: Chat,
    set_policy: SetPolicy,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_policy(compact_to=0.45)
    monkeypatch.setattr(plan, "has_late_summaries", lambda branch: came_late)
    maintain.maintain_chat_context(chat_id=long_chat.pk, counter=COUNTER, now=now)
    turn = Turn.objects.order_by("-accepted").first()
    assert turn is not None
    assert turn.compaction_outcome == outcome

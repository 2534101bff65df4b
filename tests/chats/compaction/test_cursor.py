"""The summarisation cursor: where it is reported, and that no range is summarised twice."""

import re
from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from chats.actions import branching
from chats.compaction import maintain, pauses, perform
from chats.compaction.cursor import Cursor, get_summary_cursor
from chats.compaction.people import controls, undo
from chats.models import Chat, Message
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.summaries.extractive import build_extractive_summary
from contextpolicy.roles import AUDITOR
from tests.contextpolicy.pages import opened
from tests.contextpolicy.people import person, signed_in
from tests.support.chat_summaries import SENTENCE, Fold, Say, add_minutes, reload_branch

pytestmark = pytest.mark.requirement("S4.5")
COUNTER = ApproximateCounter()


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Record the new messages of each summary, without the previous summary."""
    seen: list[list[int]] = []
    written = build_extractive_summary

    def spy(sources: Any, previous: Any, **options: Any) -> str:
        seen.append([message.seq for message in sources])
        return written(sources, previous, **options)

    monkeypatch.setattr(perform, "build_extractive_summary", spy)
    return seen


def talk(chat: Chat, say: Say, rounds: int = 6) -> None:
    """Add enough turns for another summary."""
    for number in range(rounds):
        say(chat, f"Question {number}. {SENTENCE}", f"Answer {number}. " + SENTENCE * 6)


def cursor(chat: Chat) -> Cursor:
    """Return the cursor of the active branch."""
    return get_summary_cursor(reload_branch(chat))


def test_no_range_is_folded_twice(
    long_chat: Chat, say: Say, fold: Fold, folded: list[list[int]], now: datetime
) -> None:
    for number in range(4):
        row = fold(long_chat, add_minutes(now, number))
        # A repeated delivery of the task finds no work.
        maintain.maintain_chat_context(
            chat_id=long_chat.pk, counter=COUNTER, now=add_minutes(now, number)
        )
        assert cursor(long_chat) == Cursor(row.to_seq, add_minutes(now, number), number + 1)
        talk(long_chat, say)
    read = [seq for seqs in folded for seq in seqs]
    assert len(folded) == 4
    assert max(Counter(read).values()) == 1
    assert read == list(range(1, max(read) + 1))


def test_the_cursor_goes_back_with_an_undo_and_forward_with_a_redo(
    alice: User, long_chat: Chat, fold: Fold, now: datetime
) -> None:
    assert cursor(long_chat) == Cursor(0, None, 0)
    row = fold(long_chat)
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now))
    assert cursor(long_chat) == Cursor(0, now, 2)
    row.refresh_from_db()
    undo.redo_summary(user=alice, compaction=row, now=add_minutes(now, 2))
    assert cursor(long_chat).position == row.to_seq
    assert cursor(long_chat).version == 3


def test_after_an_undo_the_same_range_is_folded_only_because_it_is_unfolded_again(
    alice: User, long_chat: Chat, fold: Fold, folded: list[list[int]], now: datetime
) -> None:
    row = fold(long_chat)
    undo.undo_summary(user=alice, compaction=row, now=add_minutes(now))
    pauses.resume_compaction(chat=long_chat, actor="user:1", now=add_minutes(now, 2))
    assert cursor(long_chat).position == 0
    controls.compact_now(user=alice, chat=long_chat, now=add_minutes(now, 3))
    again = fold(long_chat, add_minutes(now, 3))
    assert folded[0] == folded[1][: len(folded[0])]
    assert cursor(long_chat).position == again.to_seq


def test_a_branch_has_the_cursor_of_where_it_begins(
    alice: User, long_chat: Chat, say: Say, fold: Fold, now: datetime
) -> None:
    first = fold(long_chat)
    talk(long_chat, say)
    fold(long_chat, add_minutes(now))
    at = Message.objects.get(branch__chat=long_chat, seq=first.to_seq + 2)
    branching.branch_from_message(user=alice, message=at, now=add_minutes(now, 2))
    assert cursor(long_chat).position == first.to_seq
    assert cursor(long_chat).compacted_at == now


def test_it_is_read_on_the_page(
    alice: User, charlie: User, long_chat: Chat, fold: Fold, client: Client
) -> None:
    row = fold(long_chat)
    client.force_login(alice)
    address = f"/chats/{long_chat.pk}/compactions/"
    html = client.get(address).content.decode()
    told = html.split('id="cursor"')[1].split("</dl>")[0]
    assert f'data-position="{row.to_seq}"' in told
    assert 'datetime="2026-11-20T12:00:00+00:00"' in told
    assert re.search(r"<dd>\s*1 \(increases with", told)
    client.force_login(charlie)
    assert client.get(address).status_code == 404


@pytest.mark.requirement("S4.5", by="auditor")
def test_the_auditor_reads_it_in_the_administration(long_chat: Chat, fold: Fold) -> None:
    row = fold(long_chat)
    auditor = signed_in(person("ada", AUDITOR))
    page = opened(auditor, reverse("admin:chats_compaction_change", args=[row.pk]))
    for words in (
        f"Summarised up to message: {row.to_seq}",
        "Last summary published: 2026-11-20 12:00:00 UTC",
        "Branch context version: 1",
    ):
        assert words in " ".join(page.words.split())
    assert "Anna Berg" not in page.words

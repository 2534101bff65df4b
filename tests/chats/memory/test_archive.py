"""The archive of a branch and its search, on the database that runs the tests."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from chats.actions import lifecycle
from chats.memory.search import archive, finding, index_progress
from chats.memory.search.search import search_archive
from chats.models import Branch, Chat, Message, SearchText
from tests.support.messages_without_turns import Say, reload_first_branch


def found(chat: Chat, question: str, *, most: int = 10) -> list[int | None]:
    """Update the index, then return the sequence numbers that a search finds."""
    archive.index_branch(reload_first_branch(chat))
    return [
        row.seq
        for row in search_archive(reload_first_branch(chat), question=question, most=most).rows
    ]


def test_only_what_is_covered_is_found(chat: Chat, say: Say, cover: Callable[..., object]) -> None:
    for text in ("The heron stood at the lake", "Nothing else", "Another heron came"):
        say(text)
    assert found(chat, "herons") == []
    cover(2)
    assert found(chat, "Where did the heron stand?") == [1, 2]
    cover(3)
    assert set(found(chat, "herons")) == {1, 2, 3}


def test_indexing_again_adds_only_what_is_new(
    chat: Chat, say: Say, cover: Callable[..., object]
) -> None:
    for number in range(5):
        say(f"message {number}")
    cover(3)
    # Five messages and the summary. A later summary replaces it in the index.
    assert archive.index_branch(reload_first_branch(chat)) == 6
    assert archive.index_branch(reload_first_branch(chat)) == 0
    say("message 5")
    cover(5)
    assert archive.index_branch(reload_first_branch(chat)) == 2
    assert SearchText.objects.count() == 7


def test_another_chat_is_never_found(
    alice: User, charlie: User, chat: Chat, say: Say, cover: Callable[..., object], now: datetime
) -> None:
    other = lifecycle.create_chat(owner=charlie, now=now)
    say("The heron is mine")
    say("The heron of somebody else", branch=other.active_branch)
    cover(1)
    cover(1, branch=reload_first_branch(other))
    archive.index_branch(reload_first_branch(other))
    archive.index_branch(reload_first_branch(chat))
    rows = search_archive(reload_first_branch(chat), question="heron", most=9).rows
    assert [row.text for row in rows] == ["The heron is mine"]
    assert found(chat, f"chat{other.pk.hex} heron") == [1]


def test_a_branch_finds_what_its_path_holds_and_nothing_beside_it(
    chat: Chat, say: Say, cover: Callable[..., object], now: datetime
) -> None:
    for text in ("first heron", "second heron", "third heron of the parent"):
        say(text)
    parent = reload_first_branch(chat)
    child = Branch.objects.create(chat=chat, parent=parent, fork_seq=2, last_seq=2, created_at=now)
    Message.objects.create(
        branch=child,
        seq=3,
        accepted=4,
        role="user",
        parts=[{"type": "text", "text": "third heron of the child"}],
        created_at=now,
    )
    Branch.objects.filter(pk=child.pk).update(last_seq=3)
    cover(3)
    cover(3, branch=child)
    child = Branch.objects.select_related("active_compaction", "chat", "parent").get(pk=child.pk)
    archive.index_branch(child)
    texts = {row.text for row in search_archive(child, question="heron", most=9).rows}
    assert texts == {"first heron", "second heron", "third heron of the child"}


def test_what_was_excluded_or_erased_is_not_found(
    chat: Chat, say: Say, cover: Callable[..., object], now: datetime
) -> None:
    rows = [say(f"heron number {number}") for number in range(3)]
    cover(3)
    archive.index_branch(reload_first_branch(chat))
    Message.objects.filter(pk=rows[0].pk).update(excluded=True)
    Message.objects.filter(pk=rows[1].pk).update(erased_at=now)
    assert found(chat, "heron") == [3]


def test_a_message_that_is_deleted_takes_its_words_along(
    chat: Chat, say: Say, cover: Callable[..., object]
) -> None:
    row = say("the heron")
    cover(1)
    archive.index_branch(reload_first_branch(chat))
    row.delete()
    assert not SearchText.objects.filter(summary=None).exists()
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM chats_searchtext_words('heron')")
            assert cursor.fetchone()[0] == 0
    assert found(chat, "heron") == []


def test_tool_output_is_found_and_a_huge_one_only_by_its_beginning(
    chat: Chat, say: Say, cover: Callable[..., object]
) -> None:
    result = {"type": "tool_result", "call_id": "1", "name": "t"}
    say("", parts=[{**result, "content": "a heron in a log"}], role="assistant")
    say("", parts=[{**result, "content": "x " * 20_000 + "late heron"}], role="assistant")
    say("noise")
    cover(3)
    assert found(chat, "heron")[0] == 1
    assert "late" not in SearchText.objects.get(message__seq=2).words.split()


def test_a_speaker_and_a_day_are_found(chat: Chat, say: Say, cover: Callable[..., object]) -> None:
    say("It rained", speaker={"roleId": "c", "roleName": "Caroline", "type": "human"})
    for _ in range(4):
        say("noise")
    cover(5)
    assert found(chat, "What did Caroline say?")[0] == 1
    assert len(found(chat, "November 2026")) == 5


@pytest.mark.parametrize("question", ["", "   ", '"', "NEAR(", "' OR 1=1 --", "*", "\x00", "the"])
def test_any_question_has_an_answer(
    question: str, chat: Chat, say: Say, cover: Callable[..., object]
) -> None:
    say("a heron")
    cover(1)
    assert found(chat, question) == []


def test_common_words_do_not_hide_a_rare_one(
    chat: Chat, say: Say, cover: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MOST_COMPARED", 5)
    monkeypatch.setattr(finding, "MOST_CHOSEN", 5)
    say("the heron of the lake")
    for _ in range(20):
        say("the lake")
    cover(21)
    assert found(chat, "heron lake", most=1) == [1]


def test_the_number_of_queries_does_not_follow_the_length(
    chat: Chat,
    say: Say,
    cover: Callable[..., object],
    django_assert_max_num_queries: Any,
) -> None:
    for number in range(60):
        say(f"heron {number}")
    cover(60)
    archive.index_branch(reload_first_branch(chat))
    branch = reload_first_branch(chat)
    # One of them reads the time zone of the account.
    with django_assert_max_num_queries(11):
        assert len(search_archive(branch, question="heron lake", most=20).rows) == 20


def test_no_compaction_means_no_archive(chat: Chat, say: Say) -> None:
    say("a heron")
    assert archive.index_branch(reload_first_branch(chat)) == 1
    assert index_progress.get_archived_seq(reload_first_branch(chat)) is None
    assert search_archive(reload_first_branch(chat), question="heron", most=9).rows == ()

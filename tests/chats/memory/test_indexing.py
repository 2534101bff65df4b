"""Background indexing: short steps, outside of requests."""

import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models.functions import Now

from chats.actions import erasure
from chats.compaction import coverage
from chats.ground import queue
from chats.memory.search import archive, index_schedule
from chats.memory.search.search import search_archive
from chats.models import Chat, Message, SearchCount, SearchPlace, SearchText
from chats.prompt.tools import history_search
from contextpolicy.engine.messages.tokens import ApproximateCounter
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

Sent = list[tuple[str, dict[str, str]]]
Commit = Any


def asked(sent: Sent) -> int:
    """Return the number of enqueued indexing tasks."""
    return sum(task == queue.INDEX_CHAT for task, _ in sent)


def test_a_search_indexes_nothing_and_says_how_much_it_could_not_search(
    chat: Chat, say: Say, cover: Cover, sent: Sent, django_capture_on_commit_callbacks: Commit
) -> None:
    for number in range(2):
        say(f"heron {number}")
    archive.index_branch(reload_first_branch(chat))
    for number in range(2):
        say(f"heron {number}")
    cover(4)
    with django_capture_on_commit_callbacks(execute=True):
        found = search_archive(reload_first_branch(chat), question="heron", most=9)
        search_archive(reload_first_branch(chat), question="heron", most=9)
    assert ([row.seq for row in found.rows], found.missing) == ([2, 1], 2)
    assert SearchText.objects.count() == 2
    assert asked(sent) == 1
    index_schedule.index_due_branches(chat_id=chat.pk)
    found = search_archive(reload_first_branch(chat), question="heron", most=9)
    assert (len(found.rows), found.missing) == (4, 0)


def test_the_model_hears_that_the_search_is_not_complete(
    chat: Chat, say: Say, cover: Cover
) -> None:
    say("heron")
    cover(1)
    answer, _ = history_search.run_history_search(
        '{"query": "heron"}',
        branch=reload_first_branch(chat),
        counter=ApproximateCounter(),
        sent={2},
    )
    assert answer.startswith(history_search.NOTHING)
    assert "1 of the earlier messages cannot be searched yet" in answer


def test_what_comes_in_force_is_asked_to_be_indexed(
    chat: Chat, say: Say, cover: Cover, sent: Sent, django_capture_on_commit_callbacks: Commit
) -> None:
    for number in range(3):
        say(f"heron {number}")
    row = cover(2)
    with django_capture_on_commit_callbacks(execute=True):
        coverage.activate_compaction(reload_first_branch(chat), to=row)
    assert (queue.INDEX_CHAT, {"chat_id": str(chat.pk)}) in sent
    assert SearchPlace.objects.get().due_at is not None
    # On a busy machine, one step may not be enough.
    for _ in range(3):
        index_schedule.index_due_branches(chat_id=chat.pk)
    assert SearchPlace.objects.get().due_at is None
    with django_capture_on_commit_callbacks(execute=True):
        index_schedule.request_indexing(reload_first_branch(chat))
    assert asked(sent) == 1


def test_a_task_ends_after_its_time_and_the_next_one_goes_on_where_it_ended(
    chat: Chat,
    say: Say,
    cover: Cover,
    sent: Sent,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Commit,
) -> None:
    monkeypatch.setattr(archive, "BATCH", 2)
    monkeypatch.setattr(index_schedule, "TASK_SECONDS", 0.0)
    for number in range(5):
        say(f"heron {number}")
    cover(5)
    index_schedule.request_indexing(reload_first_branch(chat))
    counts = []
    for _ in range(5):
        with django_capture_on_commit_callbacks(execute=True):
            index_schedule.index_due_branches(chat_id=chat.pk)
        counts.append((SearchText.objects.count(), asked(sent)))
    # The last item is the summary.
    assert counts == [(2, 1), (4, 2), (5, 3), (6, 4), (6, 4)]
    assert SearchPlace.objects.get().due_at is None


def test_the_next_task_leaves_a_pause_to_what_people_wait_for(
    chat: Chat,
    say: Say,
    cover: Cover,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Commit,
) -> None:
    monkeypatch.setattr(archive, "BATCH", 1)
    monkeypatch.setattr(index_schedule, "TASK_SECONDS", 0.0)
    pauses: list[float] = []
    monkeypatch.setattr(queue, "publish_task", lambda *_, countdown: pauses.append(countdown))
    for number in range(3):
        say(f"heron {number}")
    cover(3)
    with django_capture_on_commit_callbacks(execute=True):
        index_schedule.request_indexing(reload_first_branch(chat))
        for _ in range(3):
            index_schedule.index_due_branches(chat_id=chat.pk)
    # The first task starts immediately. Each later task starts after the pause.
    assert pauses[:2] == [0.0, index_schedule.PAUSE_SECONDS]
    assert set(pauses[1:]) == {index_schedule.PAUSE_SECONDS}


def test_a_task_holds_no_thread_of_its_worker_asleep(
    chat: Chat, say: Say, cover: Cover, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("heron")
    cover(1)
    index_schedule.request_indexing(reload_first_branch(chat))
    asleep: list[float] = []
    sleep, own = time.sleep, threading.get_ident()

    def note_own_sleep(seconds: float) -> None:
        # Servers of earlier tests may sleep in other threads.
        (asleep.append if threading.get_ident() == own else sleep)(seconds)

    monkeypatch.setattr(time, "sleep", note_own_sleep)
    index_schedule.index_due_branches(chat_id=chat.pk)
    assert (SearchText.objects.count(), asleep) == (2, [])


def test_a_lost_task_is_sent_again_and_one_at_work_is_not(
    chat: Chat, say: Say, cover: Cover, sent: Sent, django_capture_on_commit_callbacks: Commit
) -> None:
    say("heron")
    cover(1)
    index_schedule.request_indexing(reload_first_branch(chat))
    assert index_schedule.requeue_stalled_indexing() == 0
    long_ago = Now() - timedelta(seconds=settings.REQUEUE_AFTER + 1)
    SearchPlace.objects.update(due_at=long_ago)
    with django_capture_on_commit_callbacks(execute=True):
        assert index_schedule.requeue_stalled_indexing() == 1
        assert index_schedule.requeue_stalled_indexing() == 0
    assert sent == [(queue.INDEX_CHAT, {"chat_id": str(chat.pk)})]


def test_a_message_that_is_erased_while_it_is_indexed_never_gets_in(
    chat: Chat, say: Say, cover: Cover, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [say("the heron"), say("the lake")]
    cover(2)
    hold = archive.lock_search_place

    def too_late(branch_id: Any) -> SearchPlace:
        # The text was read before the erasure. The transaction that indexes it starts afterwards.
        Message.objects.filter(pk=rows[0].pk).update(erased_at=now)
        return hold(branch_id)

    monkeypatch.setattr(archive, "lock_search_place", too_late)
    assert archive.index_branch(reload_first_branch(chat)) == 2
    assert not SearchCount.objects.filter(word="heron").exists()
    assert search_archive(reload_first_branch(chat), question="heron", most=9).rows == []


def test_two_tasks_at_once_count_a_message_once(
    chat: Chat, say: Say, cover: Cover, monkeypatch: pytest.MonkeyPatch
) -> None:
    say("the heron")
    cover(1)
    hold = archive.lock_search_place

    def second(branch_id: Any) -> SearchPlace:
        monkeypatch.setattr(archive, "lock_search_place", hold)
        archive.index_batch(branch_id, to=1)
        return hold(branch_id)

    monkeypatch.setattr(archive, "lock_search_place", second)
    archive.index_branch(reload_first_branch(chat))
    assert SearchText.objects.filter(summary=None).count() == 1
    assert SearchCount.objects.get(word="heron").texts == 1


def test_an_erasure_takes_the_counts_of_the_words_along(
    alice: User, chat: Chat, say: Say, cover: Cover, now: datetime
) -> None:
    row = say("the heron of Zanzibar")
    say("a heron")
    cover(2)
    archive.index_branch(reload_first_branch(chat))
    erasure.erase_message(user=alice, message=row, now=now)
    left = dict(SearchCount.objects.values_list("word", "texts"))
    assert left["heron"] == 1
    assert "zanzibar" not in left
    assert min(left.values()) > 0


def test_an_erased_chat_leaves_nothing_in_the_index(
    alice: User, chat: Chat, say: Say, cover: Cover, now: datetime
) -> None:
    say("the heron")
    cover(1)
    archive.index_branch(reload_first_branch(chat))
    erasure.erase_chat(user=alice, chat=chat, now=now)
    for model in (SearchText, SearchCount, SearchPlace):
        assert not model._default_manager.exists()
    index_schedule.index_due_branches(chat_id=chat.pk)

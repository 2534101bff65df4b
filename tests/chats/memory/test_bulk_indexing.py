"""The newest messages of many chats are indexed together, with the same result as one by one."""

import uuid
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from chats.actions import erasure, lifecycle
from chats.compaction import indexing
from chats.ground import queue
from chats.memory.search import archive, bulk_indexing, index_schedule, searchable_text
from chats.memory.search.words import VERSION
from chats.models import Branch, Chat, Message, SearchCount, SearchPlace, SearchText
from contextpolicy.policy_assignments import assign_policy
from contextpolicy.publish import create_policy
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

TEXTS = ("The heron waits in the lake.", "Herons are patient.", "白鹭在湖里", "The lake again")
# Statements for eight chats: one by one they take 320.
MOST_STATEMENTS = 20


@pytest.fixture
def many(alice: User, bob: User, demo_model: Any, now: datetime) -> list[Chat]:
    """Eight empty chats of two people."""
    return [
        lifecycle.create_chat(owner=alice if number % 2 else bob, now=now) for number in range(8)
    ]


def indexed() -> tuple[list[tuple[Any, ...]], dict[tuple[int, str], int]]:
    """Return the rows of the index without ids that depend on the order, and the word counts."""
    fields = ("message", "keys", "words", "full", "speaker", "session", "written_at")
    rows = sorted(SearchText.objects.values_list(*fields), key=str)
    counts = SearchCount.objects.values_list("owner", "word", "texts")
    return rows, {(owner, word): texts for owner, word, texts in counts}


def run_all(
    chats: list[uuid.UUID], *, sent: list[tuple[str, dict[str, str]]], commit: Any
) -> list[uuid.UUID]:
    """Run the task of several chats, then the tasks that it sends; return the chats of these."""
    with commit(execute=True):
        indexing.index_chats(chat_ids=chats)
    alone = [uuid.UUID(given["chat_id"]) for task, given in sent if task == queue.INDEX_CHAT]
    for chat_id in alone:
        indexing.update_chat_index(chat_id=chat_id)
    return alone


def forget_all(chats: list[Chat]) -> None:
    """Empty the index."""
    for chat in chats:
        archive.remove_indexed_chat(chat.pk)
    SearchPlace.objects.all().delete()


def test_the_rows_and_counts_are_those_of_single_chats(many: list[Chat], say: Say) -> None:
    for number, chat in enumerate(many):
        say(TEXTS[number % 4], branch=reload_first_branch(chat))
    done = bulk_indexing.index_newest([chat.pk for chat in many])
    for number, chat in enumerate(many):
        say(
            TEXTS[(number + 1) % 4],
            branch=reload_first_branch(chat),
            role="assistant",
            speaker={"roleName": "Kingfisher"} if number == 3 else None,
        )
    done &= bulk_indexing.index_newest([chat.pk for chat in many])
    assert done == {chat.pk for chat in many}
    together = indexed()
    forget_all(many)
    for chat in many:
        archive.index_branch(reload_first_branch(chat))
    assert together == indexed()
    assert len(together[0]) == 16


def test_a_long_silence_begins_a_session(many: list[Chat], say: Say, now: datetime) -> None:
    chat = many[0]
    for hours in (0, 0, 3, 3):
        message = say("heron", branch=reload_first_branch(chat))
        Message.objects.filter(pk=message.pk).update(created_at=now + timedelta(hours=hours))
        bulk_indexing.index_newest([chat.pk])
    assert list(SearchText.objects.order_by("pk").values_list("session", flat=True)) == [1, 1, 3, 3]


def test_eight_chats_take_few_statements(many: list[Chat], say: Say) -> None:
    for chat in many:
        say("heron", branch=reload_first_branch(chat))
    bulk_indexing.index_newest([chat.pk for chat in many])
    for chat in many:
        say("lake", branch=reload_first_branch(chat))
    with CaptureQueriesContext(connection) as queries:
        bulk_indexing.index_newest([chat.pk for chat in many])
    assert SearchText.objects.count() == 16
    assert len(queries) <= MOST_STATEMENTS


def test_what_is_not_simple_is_left_to_the_single_way(
    many: list[Chat],
    say: Say,
    cover: Cover,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    # On a busy machine, one step may not be enough.
    monkeypatch.setattr(index_schedule, "TASK_SECONDS", 60.0)
    usual, covered, long, closed, temporary = many[:5]
    for chat in many[:5]:
        say("heron", branch=reload_first_branch(chat))
    cover(1, branch=reload_first_branch(covered))
    for _ in range(archive.BATCH):
        say("heron", branch=reload_first_branch(long))
    SearchPlace.objects.create(branch=reload_first_branch(closed), closed=True, version=VERSION)
    Chat.objects.filter(pk=temporary.pk).update(temporary=True)
    deleted = uuid.uuid4()
    chat_ids = [usual.pk, covered.pk, long.pk, closed.pk, temporary.pk, deleted]
    assert bulk_indexing.index_newest(chat_ids) == {usual.pk}
    alone = run_all(chat_ids, sent=sent, commit=django_capture_on_commit_callbacks)
    assert alone == chat_ids[1:]
    of_chats = {
        chat.pk: SearchText.objects.filter(message__branch__chat=chat.pk).count()
        for chat in many[:5]
    }
    # A closed chat is opened again, because no policy closes it any more.
    assert list(of_chats.values()) == [1, 1, 11, 1, 0]
    assert SearchText.objects.filter(summary__isnull=False).count() == 1


def test_a_policy_that_closes_the_archive_is_respected(
    many: list[Chat],
    say: Say,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    row = create_policy(slug="p", name="P", values={"archive": False}, actor="system", now=now)
    assign_policy(policy=row, level="instance", actor="system", now=now)
    for chat in many:
        say("heron", branch=reload_first_branch(chat))
    chats = [chat.pk for chat in many]
    assert run_all(chats, sent=sent, commit=django_capture_on_commit_callbacks) == chats
    assert SearchText.objects.count() == 0


def test_a_chat_that_cannot_be_indexed_holds_up_no_other(
    many: list[Chat],
    say: Say,
    monkeypatch: pytest.MonkeyPatch,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    for chat in many:
        say("heron", branch=reload_first_branch(chat))
    read, broken = searchable_text.build_indexed_text, many[2]

    def failing(row: Message) -> SearchText:
        if row.branch.chat_id == broken.pk:
            raise ValueError("a row that no version of the product wrote")
        return read(row)

    monkeypatch.setattr(searchable_text, "build_indexed_text", failing)
    monkeypatch.setattr(bulk_indexing, "AT_ONCE", 4)
    with django_capture_on_commit_callbacks(execute=True):
        indexing.index_chats(chat_ids=[chat.pk for chat in many])
    # The four chats next to it get a task each.
    assert sent == [(queue.INDEX_CHAT, {"chat_id": str(chat.pk)}) for chat in many[:4]]
    for chat in many[:4]:
        if chat != broken:
            indexing.update_chat_index(chat_id=chat.pk)
    with pytest.raises(ValueError, match="no version"):
        indexing.update_chat_index(chat_id=broken.pk)
    found = SearchText.objects.values_list("message__branch__chat", flat=True)
    assert set(found) == {chat.pk for chat in many} - {broken.pk}


def test_a_due_mark_of_another_task_stays(many: list[Chat], say: Say) -> None:
    chat = many[0]
    say("heron", branch=reload_first_branch(chat))
    index_schedule.mark_due(reload_first_branch(chat))
    SearchPlace.objects.update(version=VERSION)
    assert bulk_indexing.index_newest([chat.pk]) == {chat.pk}
    assert SearchPlace.objects.get().due_at is not None


def test_a_message_erased_while_its_words_are_read_stays_out(
    many: list[Chat], say: Say, now: datetime, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = many[1]
    said = [
        say("the heron", branch=reload_first_branch(chat)),
        say("the lake", branch=reload_first_branch(chat)),
    ]
    read = searchable_text.build_indexed_text

    def erased_meanwhile(row: Message) -> SearchText:
        text = read(row)
        if row.pk == said[0].pk:
            erasure.erase_message(user=alice, message=said[0], now=now)
        return text

    monkeypatch.setattr(searchable_text, "build_indexed_text", erased_meanwhile)
    bulk_indexing.index_newest([chat.pk])
    monkeypatch.setattr(searchable_text, "build_indexed_text", read)
    archive.index_branch(reload_first_branch(chat))
    assert list(SearchText.objects.values_list("message", flat=True)) == [said[1].pk]
    assert not SearchCount.objects.filter(word="heron", texts__gt=0).exists()


def test_two_workers_index_a_message_once(
    many: list[Chat], say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = many[1]
    say("heron", branch=reload_first_branch(chat))
    bulk_indexing.index_newest([chat.pk])
    say("lake", branch=reload_first_branch(chat))
    read = searchable_text.build_indexed_text
    first: list[Message] = []

    def other_worker(row: Message) -> SearchText:
        if not first:
            first.append(row)
            monkeypatch.setattr(searchable_text, "build_indexed_text", read)
            archive.index_branch(reload_first_branch(chat))
        return read(row)

    monkeypatch.setattr(searchable_text, "build_indexed_text", other_worker)
    assert bulk_indexing.index_newest([chat.pk]) == set()
    assert SearchCount.objects.get(word="lake").texts == 1
    assert SearchText.objects.count() == 2


def test_waiting_summaries_go_on_after_the_index(
    many: list[Chat],
    say: Say,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    chat = many[0]
    say("heron", branch=reload_first_branch(chat))
    Branch.objects.filter(chat=chat.pk).update(summary_due_at=now)
    with django_capture_on_commit_callbacks(execute=True):
        indexing.index_chats(chat_ids=[one.pk for one in many])
    assert sent == [(queue.MAINTAIN_CHAT, {"chat_id": str(chat.pk)})]


def test_a_process_sends_one_task_for_its_chats(sent: list[tuple[str, dict[str, str]]]) -> None:
    batcher = queue.IndexBatcher()
    batcher.add("a")
    assert sent == [(queue.INDEX_CHATS, {"chat_ids": "a"})]
    batcher.SECONDS = 60.0
    batcher.start()
    for chat in ("b", "c", "b"):
        batcher.add(chat)
    assert len(sent) == 1
    batcher.stop()
    assert sent[1:] == [(queue.INDEX_CHATS, {"chat_ids": "b,c"})]
    batcher.add("d")
    assert sent[2:] == [(queue.INDEX_CHATS, {"chat_ids": "d"})]


def test_a_full_collection_is_sent_at_once_and_another_after_its_time(
    sent: list[tuple[str, dict[str, str]]],
) -> None:
    batcher = queue.IndexBatcher()
    batcher.SECONDS, batcher.MOST = 0.05, 3
    batcher.start()
    for number in range(4):
        batcher.add(str(number))
    assert sent == [(queue.INDEX_CHATS, {"chat_ids": "0,1,2"})]
    timer = batcher._timer
    assert timer is not None
    timer.join(timeout=10)
    assert sent[1:] == [(queue.INDEX_CHATS, {"chat_ids": "3"})]

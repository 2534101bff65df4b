"""Recall in a user's index: matches, and data of other users that it never returns."""

import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from chats.actions import deletion, erasure, lifecycle, marks
from chats.memory.search import archive, finding, index_schedule, recall, titles
from chats.memory.search.days import parse_time_ranges
from chats.memory.search.question import parse_question
from chats.memory.search.recall import Recalled, recall_excerpts, remove_speaker_names
from chats.memory.search.recall_scope import Scope
from chats.memory.search.titles import find_chats_by_title
from chats.memory.search.words import VERSION
from chats.models import Branch, Chat, Folder, Message, SearchCount, SearchPlace, SearchText
from tests.support.messages_without_turns import Cover, Say, reload_first_branch

Ask = Callable[..., Recalled]


@pytest.fixture
def ask(alice: User, now: datetime) -> Ask:
    """Update the index, then search Alice's chats."""

    def asking(question: str, *, who: User = alice, most: int = 20, **scope: Any) -> Recalled:
        for branch in Branch.objects.select_related("chat", "active_compaction__base", "parent"):
            archive.index_branch(branch)
        return recall_excerpts(who.pk, question, scope=Scope(**scope), limit=most, at=now)

    return asking


def said(found: Recalled) -> list[str]:
    """Return the texts found, best first."""
    return [excerpt.text for excerpt in found.excerpts]


def test_what_was_said_is_found_before_any_summary(chat: Chat, say: Say, ask: Ask) -> None:
    say("The heron stood at the lake")
    say("Something else")
    (first, *_) = ask("Where did the herons stand?").excerpts
    assert first.text == "The heron stood at the lake"
    assert [first.text[a:b] for a, b in first.marks] == ["heron", "stood"][: len(first.marks)]
    assert (first.chat_id, first.seq, first.role, first.speaker) == (chat.pk, 1, "user", "You")
    assert "herons" in first.why


def test_a_text_that_is_not_the_best_by_its_words_is_ranked_too(
    chat: Chat, say: Say, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("a heron at a pond of the park", *["noise"] * 5, "heron heron", *["noise"] * 5):
        say(each)
    monkeypatch.setattr(finding, "MOST_WITH_NEIGHBOURS", 1)
    assert {"heron heron", "a heron at a pond of the park"} <= set(said(ask("heron")))


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("What is Ann Lee's boat called?", "What is boat called?"),
        ("Where does Lee live?", "Where does Lee live?"),
        ("Where is Bob's boat?", "Where is Bob's boat?"),
        ("Ann Lee", "Ann Lee"),
    ],
)
def test_names_of_speakers_are_not_compared_by_meaning(
    alice: User, charlie: User, say: Say, ask: Ask, now: datetime, question: str, left: str
) -> None:
    row = say("My boat is the Heron, Bob")
    Message.objects.filter(pk=row.pk).update(speaker={"roleId": "a", "roleName": "Ann Lee"})
    say("Ann Lee, what a boat! Bob, look")
    ask("boat")
    assert remove_speaker_names(alice.pk, question) == left
    # Speakers in chats of other users are unknown.
    assert remove_speaker_names(charlie.pk, question) == question


def test_a_possessive_names_too(now: datetime) -> None:
    assert {"ann", "boats"} <= parse_question("Where are Ann's boats?", at=now).names
    assert "anns" not in parse_question("Where are Ann’s boats?", at=now).names


@pytest.mark.memory_case(19)
def test_another_person_is_never_found(
    chat: Chat, say: Say, ask: Ask, charlie: User, now: datetime
) -> None:
    say("My heron")
    theirs = lifecycle.create_chat(owner=charlie, now=now)
    say(f"o{chat.owner_id} c{chat.pk.hex} heron of Charlie", branch=theirs.active_branch)
    assert said(ask("heron")) == ["My heron"]
    assert said(ask("heron Charlie", chat=theirs.pk)) == []
    assert said(ask("heron", kind="chat", id=theirs.pk)) == []
    (theirs_alone,) = said(ask("my heron", who=charlie))
    assert theirs_alone.endswith("heron of Charlie")


@pytest.mark.memory_case(19)
def test_nobodys_texts_move_the_weights_of_another(
    alice: User, chat: Chat, say: Say, ask: Ask, charlie: User, now: datetime
) -> None:
    say("heron")
    say("lake")
    before = [(each.message_id, each.score) for each in ask("heron lake").excerpts]
    theirs = lifecycle.create_chat(owner=charlie, now=now)
    for _ in range(5):
        say("heron", branch=theirs.active_branch)
    assert [(each.message_id, each.score) for each in ask("heron lake").excerpts] == before
    assert SearchCount.objects.get(owner=alice, word="heron").texts == 1


@pytest.mark.memory_case(18)
def test_a_temporary_chat_is_never_indexed(chat: Chat, say: Say, ask: Ask, cover: Cover) -> None:
    Chat.objects.filter(pk=chat.pk).update(temporary=True)
    say("a heron")
    say("a lake")
    cover(1)
    assert said(ask("heron")) == []
    index_schedule.request_indexing(reload_first_branch(Chat.objects.get(pk=chat.pk)))
    assert not SearchText.objects.exists()
    assert not SearchPlace.objects.exists()
    # The chat's own archive search still works, by reading all messages.
    from chats.memory.search.search import search_archive  # noqa: PLC0415

    found = search_archive(
        reload_first_branch(Chat.objects.get(pk=chat.pk)), question="herons", most=5
    )
    assert ([row.text for row in found.rows], found.missing) == (["a heron"], 0)


def test_what_is_excluded_leaves_the_index_and_comes_back(
    alice: User, chat: Chat, say: Say, ask: Ask, now: datetime
) -> None:
    row = say("the heron")
    say("a lake")
    assert said(ask("heron"))[0] == "the heron"
    marks.exclude_message(message=row, actor="user:1", now=now)
    assert not SearchText.objects.filter(message=row).exists()
    assert not SearchCount.objects.filter(owner=alice, word="heron").exists()
    assert said(ask("heron")) == []
    marks.include_message(message=row, actor="user:1", now=now)
    assert said(ask("heron"))[0] == "the heron"
    assert SearchCount.objects.get(owner=alice, word="heron").texts == 1


@pytest.mark.memory_case(15)
def test_an_erasure_reaches_the_index_in_its_transaction(
    alice: User, chat: Chat, say: Say, ask: Ask, now: datetime
) -> None:
    row = say("the zanzibar7781 heron")
    say("a lake")
    ask("heron")
    erasure.erase_message(user=alice, message=row, now=now)
    assert not SearchText.objects.filter(words__contains="zanzibar7781").exists()
    assert not SearchCount.objects.filter(word__contains="zanzibar").exists()
    assert said(ask("zanzibar7781")) == []


@pytest.mark.memory_case(17)
def test_a_hit_is_looked_for_once_more_before_it_is_shown(
    alice: User, chat: Chat, say: Say, ask: Ask, now: datetime
) -> None:
    rows = [say("one heron"), say("two herons"), say("three herons")]
    assert len(ask("heron").excerpts) == 3
    # Simulates an outdated index.
    Message.objects.filter(pk=rows[0].pk).update(erased_at=now)
    Message.objects.filter(pk=rows[1].pk).update(excluded=True)
    assert said(ask("heron")) == ["three herons"]
    deletion.delete_chat(chat=Chat.objects.get(pk=chat.pk), actor="user:1", now=now)
    assert said(ask("heron")) == []


def test_a_summary_is_found_while_it_is_in_force(
    chat: Chat, say: Say, ask: Ask, cover: Cover
) -> None:
    say("one")
    row = cover(1)
    type(row).objects.filter(pk=row.pk).update(text="- The ibis flew away.")
    (hit,) = [each for each in ask("ibis").excerpts if each.summary_id]
    assert (hit.summary_id, hit.message_id, hit.role) == (row.pk, None, "summary")
    assert said(ask("ibis", role="summary")) == ["- The ibis flew away."]
    assert all(each.summary_id is None for each in ask("ibis", role="user").excerpts)
    Branch.objects.update(active_compaction=None)
    assert said(ask("ibis", role="summary")) == []
    assert not SearchText.objects.filter(summary__isnull=False).exists()


def test_a_closed_archive_has_no_words(chat: Chat, say: Say, ask: Ask) -> None:
    say("the heron")
    ask("heron")
    index_schedule.index_due_branches(chat_id=chat.pk, is_closed=True)
    assert not SearchText.objects.exists()
    assert not SearchCount.objects.exclude(word="").exists()
    assert said(ask("heron")) == []
    index_schedule.index_due_branches(chat_id=chat.pk)
    assert said(ask("heron")) == ["the heron"]


def test_the_scopes(alice: User, chat: Chat, say: Say, ask: Ask, now: datetime) -> None:
    folder = Folder.objects.create(owner=alice, name="Birds")
    other = lifecycle.create_chat(owner=alice, now=now)
    Chat.objects.filter(pk=other.pk).update(folder=folder)
    say("heron here")
    say("heron there", branch=other.active_branch)
    assert set(said(ask("heron"))) == {"heron here", "heron there"}
    assert said(ask("heron", unfiled=True)) == ["heron here"]
    assert said(ask("heron", kind="folder", id=folder.pk)) == ["heron there"]
    assert said(ask("heron", kind="folder", id=uuid.uuid4())) == []
    assert said(ask("heron", kind="chat", id=other.pk)) == ["heron there"]
    assert said(ask("heron", chat=chat.pk)) == ["heron here"]


@pytest.mark.parametrize("most", [0, 1, 2])
def test_all_chats_of_a_large_folder_are_searched(
    alice: User, charlie: User, now: datetime, ask: Ask, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(recall, "MOST_NAMED_CHATS", most)
    folder = Folder.objects.create(owner=alice, name="Birds")
    for owner, place in ((alice, folder), (alice, folder), (alice, None), (charlie, None)):
        made = lifecycle.create_chat(owner=owner, now=now)
        Chat.objects.filter(pk=made.pk).update(folder=place)
        Message.objects.create(
            branch=Branch.objects.get(chat=made),
            seq=1,
            accepted=1,
            role="user",
            parts=[{"type": "text", "text": f"heron of {owner} in {place}"}],
            created_at=now,
        )
        Branch.objects.filter(chat=made).update(last_seq=1)
    inside = said(ask("heron", kind="folder", id=folder.pk, after=now - timedelta(days=1)))
    assert inside == ["heron of alice in Birds"] * 2
    assert said(ask("heron", kind="folder", id=folder.pk, after=now + timedelta(days=1))) == []
    assert said(ask("heron", unfiled=True)) == ["heron of alice in None"]


def test_the_filters(chat: Chat, say: Say, ask: Ask, now: datetime) -> None:
    ann = {"roleId": "ann", "roleName": "Ann-Marie", "type": "human"}
    rows = [say("old heron"), say("reply heron", role="assistant"), say("heron", speaker=ann)]
    Message.objects.filter(pk=rows[0].pk).update(created_at=now - timedelta(days=9))
    assert set(said(ask("heron", role="assistant"))) == {"reply heron"}
    assert said(ask("heron", speaker="ann marie")) == ["heron"]
    assert said(ask("heron", before=now - timedelta(days=1))) == ["old heron"]
    assert set(said(ask("heron", after=now - timedelta(days=1)))) == {"reply heron", "heron"}


def test_the_beginning_of_a_word_is_found_while_it_is_typed(
    alice: User, chat: Chat, say: Say, ask: Ask, now: datetime
) -> None:
    say("She was running")
    say("회의는 오늘입니다")
    ask("x")
    for begun in ("runni", "ru", "회의"):
        found = recall_excerpts(alice.pk, begun, scope=Scope(), limit=5, at=now, is_typed=True)
        assert len(found.excerpts) == 1, begun
        assert found.excerpts[0].marks
    assert said(ask("runni")) == []


@pytest.mark.memory_case(24)
@pytest.mark.parametrize("greeting", ["hi", "Hello!", "你好", "how are you?", "thanks", "Привет"])
def test_a_greeting_is_below_the_floor(greeting: str, chat: Chat, say: Say, ask: Ask) -> None:
    say(f"{greeting} there")
    for number in range(5):
        say(f"lake {number}")
    assert not any(excerpt.above_floor for excerpt in ask(greeting).excerpts)


def test_two_telling_words_or_a_rare_one_are_above_the_floor(
    chat: Chat, say: Say, ask: Ask
) -> None:
    say("the heron at the lake")
    for number in range(8):
        say(f"a heron {number}")
        say(f"a lake {number}")
    floor = {each.text: each.above_floor for each in ask("heron lake").excerpts}
    assert floor["the heron at the lake"]
    assert not floor["a heron 1"]
    say("the ibis")
    assert next(each for each in ask("ibis").excerpts if "ibis" in each.text).above_floor


def test_messages_can_be_left_out(
    alice: User, chat: Chat, say: Say, ask: Ask, now: datetime
) -> None:
    row = say("the heron")
    ask("heron")
    found = recall_excerpts(alice.pk, "heron", scope=Scope(), limit=5, at=now, leave_out=[row.pk])
    assert found.excerpts == []


@pytest.mark.memory_case(33)
@pytest.mark.parametrize(
    "question",
    ["", " ", '"', "NEAR(", "a* OR b", "' OR 1=1 --", "\x00", "{x} : ^", "the", "x" * 1_000_000,
     "heron " * 200_000, "用Django做 heron เด", "\ud800"],
)  # fmt: skip
def test_any_question_has_an_answer(question: str, chat: Chat, say: Say, ask: Ask) -> None:
    say("a heron")
    assert len(ask(question).excerpts) <= 1


def test_the_words_after_the_32nd_are_named_as_ignored(chat: Chat, say: Say, ask: Ask) -> None:
    say("word1")
    found = ask(" ".join(f"word{number}" for number in range(40)))
    assert list(found.ignored) == [f"word{number}" for number in range(32, 40)]


@pytest.mark.memory_case(41)
def test_it_says_how_far_the_index_is(
    alice: User, chat: Chat, say: Say, ask: Ask, now: datetime
) -> None:
    for _ in range(4):
        say("heron")
    found = recall_excerpts(alice.pk, "heron", scope=Scope(), limit=5, at=now)
    assert (list(found.excerpts), found.indexed_share) == ([], 0.0)
    assert ask("heron").indexed_share == 1.0
    say("heron")
    assert recall_excerpts(alice.pk, "heron", scope=Scope(), limit=5, at=now).indexed_share == 0.8


def test_words_of_an_older_version_are_made_anew_once(
    alice: User, chat: Chat, say: Say, ask: Ask
) -> None:
    for number in range(25):
        say(f"heron {number}")
    ask("heron")
    before = dict(SearchCount.objects.values_list("word", "texts"))
    SearchPlace.objects.update(version=VERSION - 1)
    SearchText.objects.update(words="stale words")
    fulltext = SearchCount.objects.filter(owner=alice)
    fulltext.delete()
    SearchCount.objects.create(owner=alice, word="stale", texts=25)
    SearchCount.objects.create(owner=alice, word="words", texts=25)
    SearchCount.objects.create(owner=alice, word="", texts=25)
    assert index_schedule.Looking().find() == {chat.pk}
    index_schedule.index_due_branches(chat_id=chat.pk)
    assert len(ask("heron", most=30).excerpts) == 25
    assert dict(SearchCount.objects.values_list("word", "texts")) == before
    assert SearchText.objects.count() == 25


def test_the_sweep_finds_what_nobody_asked_for(chat: Chat, say: Say) -> None:
    say("heron")
    looking = index_schedule.Looking()
    assert looking.find() == {chat.pk}
    assert looking.find() == set()
    looking.next_at = 0.0
    assert looking.find() == set(), "it is due already"
    index_schedule.index_due_branches(chat_id=chat.pk)
    looking.next_at = 0.0
    assert looking.find() == set()


def test_candidates_are_bounded(
    chat: Chat, say: Say, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "MOST_CHOSEN", 6)
    monkeypatch.setattr(finding, "MOST_COMPARED", 4)
    for number in range(30):
        say(f"heron lake {number}")
    say("the ibis of the lake")
    found = ask("ibis lake heron")
    assert found.excerpts[0].text == "the ibis of the lake"
    assert len(found.excerpts) <= 4 * 5


@pytest.mark.memory_case(42)
def test_titles_are_found_by_the_middle_of_a_word(
    alice: User, charlie: User, chat: Chat, now: datetime
) -> None:
    Chat.objects.filter(pk=chat.pk).update(title="Die Vorlesepaten")
    lifecycle.create_chat(owner=charlie, now=now, title="Vorlesepaten")
    assert find_chats_by_title(alice.pk, "lese", scope=Scope(), most=5) == [chat]
    assert find_chats_by_title(alice.pk, "VORLESE die", scope=Scope(), most=5) == [chat]
    assert find_chats_by_title(alice.pk, "lese nie", scope=Scope(), most=5) == []
    assert find_chats_by_title(alice.pk, "%", scope=Scope(), most=5) == []
    assert find_chats_by_title(alice.pk, "lese", scope=Scope(role="user"), most=5) == []


def test_days_are_read_by_rule(now: datetime) -> None:
    def days(question: str) -> list[tuple[str, str]]:
        return [(f"{a:%Y-%m-%d}", f"{b:%Y-%m-%d}") for a, b in parse_time_ranges(question, at=now)]

    assert days("on 8 May 2023") == days("May 8th, 2023") == [("2023-05-08", "2023-05-09")]
    assert days("2023-05-08") == days("2023年5月8日") == [("2023-05-08", "2023-05-09")]
    assert days("in May 2023") == [("2023-05-01", "2023-06-01")]
    assert days("in 2023") == [("2023-01-01", "2024-01-01")]
    assert ("2025-12-01", "2026-01-01") in days("in December")
    assert days("What may I do? March on! 31 February 2023") == []
    assert len(days("yesterday")) == len(days("last week")) == 1


def test_a_search_by_a_person_is_led_by_the_index(chat: Chat, say: Say, ask: Ask) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL chooses by its statistics")
    for number in range(30):
        say(f"heron {number}")
    ask("heron")
    heard: list[tuple[str, Any]] = []

    def hear(execute: Any, sql: str, given: Any, many: bool, context: Any) -> Any:
        heard.append((sql, given))
        return execute(sql, given, many, context)

    with connection.execute_wrapper(hear):
        ask("heron 7")
    with connection.cursor() as cursor:
        for sql, given in heard:
            if sql.lstrip().startswith("SELECT"):
                cursor.execute("EXPLAIN QUERY PLAN " + sql, given)
                plan = "\n".join(str(row[-1]) for row in cursor.fetchall())
                assert "SCAN chats_searchtext\n" not in plan + "\n", sql
                assert "SCAN chats_message\n" not in plan + "\n", sql


def test_titles_of_chats_that_were_used_long_ago_are_found(
    alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles, "MOST_LOOKED_AT", 2)
    for age, title in enumerate(
        ["Graureiher", "Boats", "Reiher am See", "小鸟 Reiher", "Lakes", "Überblick"]
    ):
        made = lifecycle.create_chat(owner=alice, now=now, title=title)
        Chat.objects.filter(pk=made.pk).update(updated_at=now - timedelta(days=age))

    def found(question: str, most: int = 10) -> list[str]:
        return [
            row.title for row in find_chats_by_title(alice.pk, question, scope=Scope(), most=most)
        ]

    assert found("reiher") == ["Graureiher", "Reiher am See", "小鸟 Reiher"]
    assert found("reiher", most=2) == ["Graureiher", "Reiher am See"]
    assert found("小鸟") == ["小鸟 Reiher"]
    assert found("überblick") == found("Überblick") == ["Überblick"]
    assert found("boats lakes") == []

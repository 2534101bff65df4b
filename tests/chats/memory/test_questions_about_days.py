"""A question about a time finds the messages of that time, without a shared word."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from django.contrib.auth.models import User

from chats.memory.search import archive
from chats.memory.search.asking import is_question_or_request
from chats.memory.search.days import parse_time_ranges
from chats.memory.search.excerpts import find_in_chat
from chats.memory.search.recall import Recalled, recall_excerpts
from chats.memory.search.recall_scope import Scope
from chats.models import Branch, Chat, Message
from contextpolicy.engine.messages.tokens import ApproximateCounter
from contextpolicy.engine.policy.policy import PolicyValues
from tests.support.messages_without_turns import Say

Told = Callable[..., Message]


@pytest.fixture
def told(say: Say, now: datetime) -> Told:
    """Store an indexed message that was written some days ago."""

    def telling(text: str, *, days: int) -> Message:
        row = say(text)
        Message.objects.filter(pk=row.pk).update(created_at=now - timedelta(days=days))
        archive.index_branch(Branch.objects.select_related("chat").get(pk=row.branch_id))
        return row

    return telling


def recall(alice: User, question: str, now: datetime) -> Recalled:
    return recall_excerpts(alice.pk, question, scope=Scope(), limit=20, at=now)


QUESTIONS = [
    "What did we talk about yesterday?",
    "Please summarise yesterday",
    "昨天我们聊了什么？",
    "昨日何を話しましたか",
    "Worüber haben wir gestern gesprochen?",
    "¿De qué hablamos ayer?",
    "О чём мы говорили вчера?",
]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_about_a_day_finds_its_messages(
    alice: User, told: Told, now: datetime, question: str
) -> None:
    told("The ferry needs a new anchor.", days=9)
    told("We bake bread with rye flour.", days=1)
    told("The heron nests at the lake.", days=0)
    above = [each for each in recall(alice, question, now).excerpts if each.above_floor]
    assert [each.text for each in above] == ["We bake bread with rye flour."]


def test_excerpts_of_the_chat_itself_are_chosen_by_their_day(
    chat: Chat, told: Told, now: datetime
) -> None:
    told("The ferry needs a new anchor.", days=9)
    bread = told("We bake bread with rye flour.", days=1)
    found = find_in_chat(
        Branch.objects.select_related("chat").get(chat=chat),
        question="What did we talk about yesterday?",
        before=10,
        values=PolicyValues(),
        room=500,
        sent=(),
        is_closed=False,
        counter=ApproximateCounter(),
        at=now,
    )
    assert bread.seq in {each.match_seq for each in found.references}


def test_a_day_and_one_shared_word_are_above_the_floor(
    alice: User, told: Told, now: datetime
) -> None:
    for number in range(120):
        told(f"The {'stone' if number % 10 else 'heron'} of nest {number}.", days=9)
    told("Another heron came.", days=1)
    told("We bake bread.", days=1)
    question = "Which boat scared the heron yesterday?"
    found = recall_excerpts(alice.pk, question, scope=Scope(), limit=200, at=now)
    assert [each.text for each in found.excerpts if each.above_floor] == ["Another heron came."]


def test_many_messages_of_a_time_are_spread(alice: User, told: Told, now: datetime) -> None:
    for number in range(130):
        told(f"Line {number} of the log.", days=1)
    found = recall_excerpts(
        alice.pk, "What did we talk about yesterday?", scope=Scope(), limit=200, at=now
    )
    numbers = {int(each.text.split()[1]) for each in found.excerpts}
    assert len(numbers) <= 130
    assert min(numbers) < 5
    assert numbers >= set(range(80, 130))


def test_a_statement_about_a_day_brings_nothing(alice: User, told: Told, now: datetime) -> None:
    told("We bake bread with rye flour.", days=1)
    found = recall(alice, "I met the dentist yesterday", now)
    assert not any(each.above_floor for each in found.excerpts)


@pytest.mark.parametrize(
    "question",
    ["今天吃什么？", "Was kann ich heute kochen?", "What can I do this week?"],
)
def test_a_question_about_a_day_to_come_brings_nothing_unrelated(
    question: str, alice: User, told: Told, now: datetime
) -> None:
    for days in (0, 1, 2, 3):
        told(f"The heron number {days} stood in the reeds.", days=days)
    assert not any(each.above_floor for each in recall(alice, question, now).excerpts)


@pytest.mark.parametrize(
    ("question", "has_range"),
    [
        ("What is a Mars rover?", False),
        ("Upgrade to 3.5. Why?", False),
        ("Was ist 2.10.?", False),
        ("Was war am 3.5.?", True),
        ("Que s'est-il passé en mars ?", True),
    ],
)
def test_words_and_numbers_that_look_like_dates(
    question: str, has_range: bool, now: datetime
) -> None:
    assert bool(parse_time_ranges(question, at=now)) == has_range


def test_a_long_row_of_leading_words_is_read_in_linear_time() -> None:
    started = time.process_time()
    assert not is_question_or_request("ok " * 200_000)
    assert time.process_time() - started < 5

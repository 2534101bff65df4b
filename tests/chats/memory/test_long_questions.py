"""Long questions, and questions after a long text: the question itself is always searched."""

from datetime import UTC, datetime

import pytest

from chats.memory.search.follow_up import build_search_question
from chats.memory.search.question import (
    MOST_CHARACTERS,
    MOST_PIECES,
    count_question_words,
    parse_question,
)
from chats.models import Chat
from tests.support.messages_without_turns import Say, reload_first_branch

AT = datetime(2026, 11, 30, tzinfo=UTC)
FILLER = ". ".join(f"Line{at} of the pasted log says alpha{at} beta{at}" for at in range(90))
CHINESE_FILLER = "。".join(f"第{at}条记录说明系统运行正常，没有发现新的问题" for at in range(120))


@pytest.mark.parametrize("filler", [FILLER, FILLER.replace(". ", " "), CHINESE_FILLER])
@pytest.mark.parametrize(
    ("question", "stems"),
    [
        ("Which team runs the acceptance test?", {"run", "accept"}),
        ("验收测试最后由谁来负责？", {"验收", "负责"}),
        ("Tell me the price of the boat", {"price", "boat"}),
    ],
)
def test_the_question_after_a_long_text_is_searched(
    filler: str, question: str, stems: set[str]
) -> None:
    for text in (f"{filler}\n{question}", f"{question}\n{filler}"):
        asked = parse_question(text, at=AT)
        assert stems <= asked.telling.keys()
        assert asked.ignored
        assert len(asked.telling) <= MOST_PIECES
        assert len(asked.text) <= MOST_CHARACTERS
        for stem, places in asked.telling.items():
            assert all(asked.text[start:end] for start, end in places), stem


def test_the_end_of_a_chinese_question_is_searched() -> None:
    asked = parse_question(
        "我们上周在讨论新的支付系统，当时决定数据库先用什么方案来存储交易记录，"
        "另外请告诉我验收测试最后由谁来负责？",
        at=AT,
    )
    assert {"验收", "测试", "负责", "支付"} <= asked.telling.keys()
    assert asked.ignored == []


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("And the café?", 2, 4),
        ("那咖啡馆呢", 1, 4),
        ("当时决定数据库先用什么方案来存储交易记录", 8, 12),
        ("เราตกลงกันเรื่องงบประมาณไว้เท่าไร", 5, 12),
        ("오늘 카페 어때요", 3, 3),
        ("كم كانت الميزانية", 3, 3),
    ],
)
def test_words_are_counted_in_every_script(text: str, least: float, most: float) -> None:
    assert least <= count_question_words(text) <= most


@pytest.mark.django_db
def test_a_short_question_comes_before_the_previous_message(say: Say, chat: Chat) -> None:
    say(FILLER)
    say("And the café?")
    branch = reload_first_branch(chat)
    text = build_search_question("And the café?", seq=2, branch=branch)
    assert "cafe" in parse_question(text, at=AT).telling
    assert "alpha0" in parse_question(text, at=AT).telling


@pytest.mark.django_db
def test_a_chinese_question_of_full_length_is_searched_alone(say: Say, chat: Chat) -> None:
    say(CHINESE_FILLER)
    branch = reload_first_branch(chat)
    question = "当时决定数据库先用什么方案来存储交易记录"
    assert build_search_question(question, seq=2, branch=branch) == question


def test_the_pairs_of_a_long_clause_are_searched_with_its_characters() -> None:
    clause = "".join(chr(0x4E00 + 7 * at) for at in range(70))
    asked = parse_question(clause, at=AT)
    assert clause[:2] in asked.telling
    assert len(asked.telling) > 100

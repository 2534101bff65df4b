"""Sentences end with the marks of their script, and long pieces without marks are split."""

import pytest

from contextpolicy.engine.summaries.sentence_splitting import split_sentences
from contextpolicy.engine.text.claims import split_bullet_claims
from contextpolicy.engine.text.sentence_ends import LONGEST_PIECE, SHORTEST_PART, find_breaks


@pytest.mark.parametrize(
    "sentences",
    [
        ["मैं दिल्ली में रहता हूँ।", "किराया कितना है?", "मुझे ट्रेन पसंद है॥"],
        ["میں لاہور میں رہتا ہوں۔", "کرایہ کتنا ہے؟", "مجھے ٹرین پسند ہے۔"],
        ["أين تقع الشقة؟", "الإيجار أربعون يورو.", "هل هذا صحيح؟"],
        ["Ես ապրում եմ Երևանում։", "Շատ լավ է։"],
        ["我住在上海。", "房租多少？"],
        ["We take the train.", "It costs 40 euros."],
    ],
)
def test_a_sentence_ends_with_the_marks_of_its_script(sentences: list[str]) -> None:
    assert list(split_sentences(" ".join(sentences))) == sentences


def test_a_source_after_such_a_mark_ends_a_claim() -> None:
    claims = split_bullet_claims("User: मैं दिल्ली में रहता हूँ। [#3] किराया कम है। [#5]")
    assert [claim.sources for claim in claims] == [(3,), (5,)]


@pytest.mark.parametrize(
    "text",
    [
        "ฉันอยู่กรุงเทพ " * 30,
        "we went to the lake, then home, " * 30,
        "我们去了湖边，然后回家，" * 60,
    ],
)
def test_a_long_piece_without_marks_is_split(text: str) -> None:
    found = list(split_sentences(text))
    assert len(found) > 3
    assert all(len(part) <= LONGEST_PIECE for part in found)
    assert "".join("".join(found).split()) == "".join(text.split())


def test_thai_is_split_at_its_spaces() -> None:
    text = "ฉันอยู่กรุงเทพและชอบเดินทางโดยรถไฟมากที่สุด ค่าเช่าเดือนละห้าพันบาทรวมน้ำและไฟแล้ว ขอบคุณ"
    assert next(split_sentences(text)) == text.split()[0]


@pytest.mark.parametrize(
    "text", ["x" * 900, "short piece", "", "word " * 90 + "end.", "ไทย", "and so on " * 50]
)
def test_what_has_no_break_stays_whole(text: str) -> None:
    assert list(find_breaks(text)) == []
    assert SHORTEST_PART < LONGEST_PIECE

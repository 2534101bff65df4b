"""The Chinese texts use one word for each term."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Words that stand for the same term as the word after them.
REPLACED = {"擦除": "清除", "法律保留": "法定保留", "聊天用户": "用户", "新的来源": "新的起点"}
PLACES = [*ROOT.glob("locale/zh_Hans/LC_MESSAGES/*.po"), *ROOT.glob("docs/zh-hans/*.md")]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_each_term_has_one_word(place: Path) -> None:
    # Long texts of a catalogue are split into lines.
    text = place.read_text(encoding="utf-8").replace('"\n"', "")
    assert [word for word in REPLACED if word in text] == []
